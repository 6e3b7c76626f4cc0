/**
 * The method that opens a transaction for others, as text: what is written beside the methods of a class, and what a
 * later run knows again there. It edits nothing.
 */

import { ts } from 'ts-morph';
import type { Layout } from './edits.js';
import type { HandleType } from './handle-types.js';
import type { Opener } from './thread-shapes.js';

/** How a type is written in a file: it adds the import that it needs. */
export type TypeText = (type: HandleType) => string;

/** The parameter of the callback. */
export const HANDED = 'transaction';

export function signatureText({ name, handle }: Opener, text: TypeText): string {
  return `${name}<T>(work: (${HANDED}: ${text(handle)}) => Promise<T>): Promise<T>`;
}

export function methodLines(
  opener: Opener,
  head: string,
  { unit, semi, quote }: Pick<Layout, 'unit' | 'semi' | 'quote'>,
): string[] {
  const { run, pool } = opener;
  const said = (word: string): string => `await client.query(${quote}${word}${quote})${semi}`;
  if (run !== undefined) return [`async ${head} {`, `${unit}return ${run}${semi}`, '}'];
  return [
    `async ${head} {`,
    `${unit}const client = await ${pool}.connect()${semi}`,
    `${unit}try {`,
    `${unit}${unit}${said('BEGIN')}`,
    `${unit}${unit}const result = await work(client)${semi}`,
    `${unit}${unit}${said('COMMIT')}`,
    `${unit}${unit}return result${semi}`,
    `${unit}} catch (error) {`,
    `${unit}${unit}${said('ROLLBACK')}`,
    `${unit}${unit}throw error${semi}`,
    `${unit}} finally {`,
    `${unit}${unit}client.release()${semi}`,
    `${unit}}`,
    '}',
  ];
}

/** Whether a member of a class or an interface is what would be written there, by whatever formatter it went since. */
export function isWritten(member: ts.ClassElement | ts.TypeElement, opener: Opener): boolean {
  const typed = signatureText(opener, named);
  if (ts.isMethodSignature(member)) return squeezed(member.getText()) === squeezed(typed);
  if (!ts.isMethodDeclaration(member) || member.body === undefined) return false;
  const heads = [typed, `${opener.name}(work)`];
  const made = heads.map((head) => methodLines(opener, head, { unit: '', semi: ';', quote: "'" }).join(''));
  return made.map(squeezed).includes(squeezed(member.getText()));
}

/** By its own name: what an import calls it otherwise is not known again. */
function named({ type, need }: HandleType): string {
  return need === undefined ? type : type.replaceAll('*', () => need.name);
}

function squeezed(text: string): string {
  const bare = text.replace(/[\s;]/g, '').replaceAll('"', "'");
  // A formatter that breaks the signature ends it with a comma.
  return bare.replaceAll(',)', ')');
}
