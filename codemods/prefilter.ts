/**
 * Which files are worth parsing with types, by their text alone. Names count here and nowhere else: a file that is
 * let in by mistake costs time, never a wrong edit.
 */

import { ts } from 'ts-morph';
import type { CodemodConfig } from './config.js';
import type { SourceText } from './files.js';
import { calledName } from './origins.js';
import { BROKER_SENDS, BROKERS } from './packages.js';
import { parse } from './program.js';
import { eachNode, isFn, nameOf } from './syntax.js';

/** More names than this are not looked for: the pattern would match everything. */
const MAX_NAMES = 5_000;

const BROKER_IMPORT = new RegExp(`['"](?:${BROKERS.map(escaped).join('|')})(?:/[^'"\\n]*)?['"]`);
const SENDS = new Set(Object.values(BROKER_SENDS).flat());

/** Files that name a broker library, and those that the configuration names. */
export function seeds(files: ReadonlyMap<string, SourceText>, config: CodemodConfig): Set<string> {
  const found = new Set<string>();
  for (const [path, file] of files) if (BROKER_IMPORT.test(file.text)) found.add(path);
  for (const id of config.wrappers.keys()) {
    const path = id.slice(0, id.indexOf('#'));
    if (files.has(path)) found.add(path);
  }
  return found;
}

/** Names under which the seeds' own functions that call a send method may be called elsewhere. */
export function firstNames(
  files: ReadonlyMap<string, SourceText>,
  paths: Iterable<string>,
  config: CodemodConfig,
): Set<string> {
  const list = [...paths];
  const texts = list.flatMap((path) => files.get(path)?.text ?? []);
  const used = BROKERS.filter((pkg) => texts.some((text) => text.includes(pkg)));
  const names = new Set<string>(used.flatMap((pkg) => BROKER_SENDS[pkg] ?? []));
  for (const id of config.wrappers.keys()) names.add(lastPart(id));
  for (const path of list) {
    const file = files.get(path);
    const parsed = file === undefined ? undefined : parse(path, file.text);
    if (parsed === undefined) continue;
    eachNode(parsed, (node) => {
      if (!ts.isCallExpression(node) || !SENDS.has(calledName(node))) return;
      for (let n: ts.Node = node; !ts.isSourceFile(n); n = n.parent) {
        const name = isFn(n) ? nameOf(n) : undefined;
        if (name !== undefined) names.add(lastPart(name));
      }
    });
    for (const alias of aliases(parsed, names)) names.add(alias);
  }
  return names;
}

/** Other names that a file gives to these: `export { publish as emitEvent }`, `const send = publish`. */
export function aliases(file: ts.SourceFile, names: ReadonlySet<string>): string[] {
  const found: string[] = [];
  const known = (node: ts.Node | undefined): boolean =>
    node !== undefined && ts.isIdentifier(node) && names.has(node.text);
  eachNode(file, (n) => {
    if (
      (ts.isExportSpecifier(n) || ts.isImportSpecifier(n) || ts.isBindingElement(n)) &&
      known(n.propertyName)
    ) {
      if (ts.isIdentifier(n.name)) found.push(n.name.text);
    }
    if (
      (ts.isVariableDeclaration(n) || ts.isPropertyAssignment(n)) &&
      n.initializer !== undefined &&
      ts.isIdentifier(n.name)
    ) {
      const value = n.initializer;
      const last = ts.isPropertyAccessExpression(value) ? value.name : value;
      if (known(last)) found.push(n.name.text);
    }
  });
  return found;
}

/** Files that hold one of the names as a word. */
export function withNames(files: ReadonlyMap<string, SourceText>, names: ReadonlySet<string>): string[] {
  const words = [...names].filter((n) => /^[\w$]+$/.test(n)).slice(0, MAX_NAMES);
  if (words.length === 0) return [];
  const pattern = new RegExp(`(?<![\\w$])(?:${words.map(escaped).join('|')})(?![\\w$])`);
  return [...files].filter(([, file]) => pattern.test(file.text)).map(([path]) => path);
}

export function lastPart(name: string): string {
  return name.slice(Math.max(name.lastIndexOf('.'), name.lastIndexOf('#')) + 1);
}

function escaped(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\/]/g, '\\$&');
}
