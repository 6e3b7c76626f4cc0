/**
 * The text of a registry of kinds: `unbroker.kinds.ts`, or a `.js` with its `.d.ts`. A hash in the head says whether
 * somebody edited it since. Pure: entries in, text out. It knows no program and no disk.
 */

import { createHash } from 'node:crypto';

export interface KindEntry {
  readonly kind: string;
  /** The payload as TypeScript; `unknown` where nothing says what it is. */
  readonly type: string;
  /** Whether some part of the type is unknown. */
  readonly unknown: boolean;
  /** Whether the calls have different types; the entry's is their union. */
  readonly disagree: boolean;
  /** Files that enqueue or publish the kind, sorted. */
  readonly files: readonly string[];
  readonly calls: number;
}

export interface TypeImport {
  readonly specifier: string;
  readonly name: string;
  readonly local: string;
}

/** What a generated file is: TypeScript, JavaScript as a module or with require, or types alone. */
export type KindFileForm = 'ts' | 'esm' | 'commonjs' | 'types';

/** Names that the file uses itself. */
export const RESERVED_NAMES = ['kinds', 'Payloads', 'defineKind', 'PayloadSchema', 'Kind', 'typed', 'Record'];

const HEAD =
  '// Made by unbroker codemod from the calls of this repository, and made anew each time; not to be edited.';
const HASH = /^\/\/ sha256 ([0-9a-f]{64})$/;

export function renderKindFile(
  entries: readonly KindEntry[],
  imports: readonly TypeImport[],
  form: KindFileForm,
): string {
  const isScript = form === 'esm' || form === 'commonjs';
  const body = isScript ? script(entries, form === 'commonjs') : typed(entries, imports, form === 'types');
  return `${HEAD}\n// sha256 ${hashOf(body)}\n\n${body}`;
}

/** Whether a file is as it was made: `made`, or `edited` when its text is not the one that its head speaks of. */
export function stateOfText(text: string): 'made' | 'edited' {
  const lines = text
    .replace(/^\uFEFF/, '')
    .replaceAll('\r\n', '\n')
    .split('\n');
  const said = HASH.exec(lines[1] ?? '')?.[1];
  return lines[0] === HEAD && said === hashOf(lines.slice(3).join('\n')) ? 'made' : 'edited';
}

/** How a call names a kind of the registry: `kinds.placed`, `kinds['order.placed']`. */
export function kindReference(local: string, kind: string, quote: "'" | '"' = "'"): string {
  return IDENTIFIER.test(kind) ? `${local}.${kind}` : `${local}[${literal(kind, quote)}]`;
}

const IDENTIFIER = /^[A-Za-z_$][\w$]*$/;

function typed(entries: readonly KindEntry[], imports: readonly TypeImport[], typesOnly: boolean): string {
  const from = typesOnly
    ? "import type { Kind } from 'unbroker/enqueue';"
    : "import { defineKind, type PayloadSchema } from 'unbroker/enqueue';";
  const lines = [
    from,
    ...importLines(imports),
    '',
    '/** What is enqueued under each kind, as JSON. */',
    'export interface Payloads {',
    ...entries.flatMap((e) => [`  /** ${about(e)} */`, `  ${key(e.kind)}: ${e.type};`]),
    '}',
    '',
  ];
  if (typesOnly)
    return [
      ...lines,
      'export declare const kinds: { readonly [K in keyof Payloads]: Kind<Payloads[K]> };',
      '',
    ].join('\n');
  return [
    ...lines,
    '/** Types alone: it refuses nothing while running. */',
    'const typed = <T>(): PayloadSchema<T> => ({',
    "  '~standard': { version: 1, validate: (value) => ({ value: value as T }) },",
    '});',
    '',
    'export const kinds = {',
    ...entries.map(
      (e) => `  ${key(e.kind)}: defineKind(${literal(e.kind)}, typed<Payloads[${literal(e.kind)}]>()),`,
    ),
    '};',
    '',
  ].join('\n');
}

function script(entries: readonly KindEntry[], commonJs: boolean): string {
  return [
    commonJs
      ? "const { defineKind } = require('unbroker/enqueue');"
      : "import { defineKind } from 'unbroker/enqueue';",
    '',
    '/** Types alone (they are in the declarations beside): it refuses nothing while running. */',
    "/** @type {import('unbroker/enqueue').PayloadSchema<any>} */",
    "const typed = { '~standard': { version: 1, validate: (value) => ({ value }) } };",
    '',
    commonJs ? 'exports.kinds = {' : 'export const kinds = {',
    ...entries.map((e) => `  ${key(e.kind)}: defineKind(${literal(e.kind)}, typed),`),
    '};',
    '',
  ].join('\n');
}

function importLines(imports: readonly TypeImport[]): string[] {
  const modules = [...new Set(imports.map((i) => i.specifier))].sort();
  return modules.map((module) => {
    const names = imports
      .filter((i) => i.specifier === module)
      .map(({ name, local }) => (name === local ? name : `${name} as ${local}`))
      .sort();
    return `import type { ${names.join(', ')} } from ${literal(module)};`;
  });
}

function about({ files, disagree }: KindEntry): string {
  const said = files.join(', ').replaceAll('*/', '* /');
  return disagree ? `${said}; the calls disagree` : said;
}

function key(kind: string): string {
  return IDENTIFIER.test(kind) && kind !== '__proto__'
    ? kind
    : kind === '__proto__'
      ? `[${literal(kind)}]`
      : literal(kind);
}

function literal(text: string, quote: "'" | '"' = "'"): string {
  const inner = JSON.stringify(text).slice(1, -1);
  return quote === '"' ? `"${inner}"` : `'${inner.replaceAll('\\"', '"').replaceAll("'", "\\'")}'`;
}

function hashOf(body: string): string {
  return createHash('sha256').update(body).digest('hex');
}
