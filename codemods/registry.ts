/**
 * The registry of kinds: which kinds a repository publishes or enqueues, and what type each payload has. It reads the
 * program and the file that is there, and gives the file that should be; writing is apply.ts's. It never touches a
 * file that somebody edited.
 */

import { existsSync, lstatSync, readFileSync, realpathSync } from 'node:fs';
import { basename, dirname, join, relative, resolve, sep } from 'node:path';
import type { ts } from 'ts-morph';
import { EXIT, UnbrokerError } from '../src/errors.js';
import type { FileChange } from './changes.js';
import { sha256 } from './files.js';
import { isModulePackage } from './imports.js';
import {
  type KindEntry,
  type KindFileForm,
  RESERVED_NAMES,
  renderKindFile,
  stateOfText,
  type TypeImport,
} from './kind-file.js';
import { type KindUse, kindUses } from './kind-uses.js';
import { PayloadTypes, UNKNOWN, union } from './payload-types.js';
import type { Analysis } from './program.js';
import type { SiteReader } from './site.js';

export interface KindsOption {
  /** The file, relative to the root or absolute; .ts, .js (with a .d.ts beside) or .d.ts. */
  readonly path: string;
  /** Enqueue with the kinds of that file in place of their names. */
  readonly use: boolean;
}

export interface PlanKinds {
  /** Relative to the root, with `/`. */
  readonly path: string;
  /** That file and, for JavaScript, its declarations. */
  readonly files: readonly string[];
  /** `edited`: somebody changed it, and it is left alone. */
  readonly state: 'new' | 'same' | 'changed' | 'edited';
  readonly entries: readonly KindEntry[];
}

export interface Registry {
  readonly plan: PlanKinds;
  readonly changes: readonly FileChange[];
  /** The file that `kinds` is imported from, when calls of a file may use it. */
  readonly moduleFor: (file: ts.SourceFile) => { readonly fileName: string } | undefined;
}

const MAX_BYTES = 4_194_304;

/** Before anything is scanned: whether somebody edited the file that would be written. Throws `kinds-path-invalid`. */
export function isEditedRegistry(option: KindsOption, root: string): boolean {
  return formsOf(targetOf(option.path, root).absolute).some(
    ({ absolute }) => existing(absolute, root).state === 'edited',
  );
}

export function editedKinds(path: string): UnbrokerError {
  return new UnbrokerError('kinds-edited', `${path} was edited by hand or is not ours; nothing was written`, {
    hint: 'Move what you need out of it and delete it, or name another file with --kinds',
    exitStatus: EXIT.badInput,
  });
}

/** Throws `kinds-path-invalid`. */
export function makeRegistry(
  option: KindsOption,
  root: string,
  analysis: Analysis,
  reader: SiteReader,
): Registry {
  const target = targetOf(option.path, root);
  const folder = packageFolder(target.absolute, root);
  const inPackage = (file: ts.SourceFile): boolean => packageFolder(file.fileName, root) === folder;
  const imports = new Imports(target.absolute, inPackage, importEnding(analysis, inPackage));
  const types = new PayloadTypes(analysis.checker, reader.values, imports.nameOf);
  const entries = entriesOf(kindUses(analysis, reader), types, analysis);
  const files = formsOf(target.absolute).map(({ absolute, form }) => {
    const text = renderKindFile(entries, imports.of(entries), form);
    return { ...existing(absolute, root), absolute, text };
  });
  const state = files.some((f) => f.state === 'edited')
    ? 'edited'
    : files.every((f) => f.before?.replaceAll('\r\n', '\n') === f.text)
      ? 'same'
      : files.every((f) => f.before === undefined)
        ? 'new'
        : 'changed';
  const pathOf = (absolute: string): string => relative(root, absolute).split(sep).join('/');
  return {
    plan: { path: target.path, files: files.map((f) => pathOf(f.absolute)), state, entries },
    changes: state === 'edited' ? [] : files.flatMap((f) => changeOf(f, root)),
    moduleFor: (file) =>
      option.use && state !== 'edited' && inPackage(file) ? { fileName: target.absolute } : undefined,
  };
}

function entriesOf(uses: readonly KindUse[], types: PayloadTypes, analysis: Analysis): KindEntry[] {
  const fileOf = (use: KindUse): string => analysis.pathOf(use.node.getSourceFile());
  const kinds = [...new Set(uses.map((u) => u.kind))].sort();
  return kinds.map((kind) => {
    const mine = uses
      .filter((u) => u.kind === kind)
      .sort((a, b) => compare(fileOf(a), fileOf(b)) || a.node.pos - b.node.pos);
    const texts = mine.map((u) => textOf(u, types));
    const type = union(texts);
    return {
      ...{ kind, type },
      unknown: isUnknown(type),
      disagree: new Set(texts).size > 1,
      files: [...new Set(mine.map(fileOf))],
      calls: mine.length,
    };
  });
}

function textOf({ payload, called }: KindUse, types: PayloadTypes): string {
  if (payload === undefined) return UNKNOWN;
  const text = types.textOf(payload);
  if (!isUnknown(text) || called.length === 0) return text;
  const told = union(called.map((value) => types.textOf(value)));
  return isUnknown(told) ? text : told;
}

function isUnknown(type: string): boolean {
  return /\bunknown\b/.test(type.replace(/'(?:[^'\\]|\\.)*'/g, ''));
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

// ── names of types ──

/** The types that the registry imports. Two of one name get numbers, in the order of the kinds. */
class Imports {
  private readonly taken = new Set(RESERVED_NAMES);
  private readonly known = new Map<string, TypeImport>();

  constructor(
    private readonly target: string,
    private readonly inPackage: (file: ts.SourceFile) => boolean,
    private readonly ending: string,
  ) {}

  readonly nameOf = (file: ts.SourceFile, name: string): string | undefined => {
    // The types of a JavaScript file are comments, and those of another package another package's.
    if (!/(?<!\.d)\.[cm]?tsx?$/.test(file.fileName) || !this.inPackage(file)) return undefined;
    const key = `${file.fileName}#${name}`;
    const known = this.known.get(key);
    if (known !== undefined) return known.local;
    let local = name;
    for (let n = 2; this.taken.has(local); n++) local = `${name}${n}`;
    this.taken.add(local);
    this.known.set(key, { specifier: this.specifier(file.fileName), name, local });
    return local;
  };

  /** Those that are in the text at last: a type that was too long is not. */
  of(entries: readonly KindEntry[]): TypeImport[] {
    const used = new Set(entries.flatMap((e) => e.type.match(/[A-Za-z_$][\w$]*/g) ?? []));
    return [...this.known.values()].filter((i) => used.has(i.local));
  }

  private specifier(fileName: string): string {
    const path = relative(dirname(this.target), fileName).split(sep).join('/');
    const dotted = path.startsWith('.') ? path : `./${path}`;
    if (this.ending === 'ts') return dotted;
    return this.ending === 'js'
      ? dotted.replace(/\.([cm]?)tsx?$/, '.$1js')
      : dotted.replace(/\.tsx?$/, '').replace(/\.([cm])ts$/, '.$1js');
  }
}

/** How the package's own files end the paths of their imports: `js`, `ts` or nothing; by count. */
function importEnding(analysis: Analysis, inPackage: (file: ts.SourceFile) => boolean): string {
  const counts = new Map<string, number>();
  for (const file of analysis.own) {
    if (!inPackage(file)) continue;
    for (const [, path = ''] of file.text.matchAll(/(?:from|import\()\s*['"](\.[^'"\n]*)['"]/g)) {
      const ending = /\.[cm]?js$/.test(path) ? 'js' : /\.[cm]?tsx?$/.test(path) ? 'ts' : '';
      counts.set(ending, (counts.get(ending) ?? 0) + 1);
    }
  }
  const [best] = [...counts].sort((a, b) => b[1] - a[1] || compare(b[0], a[0]));
  return best?.[0] ?? 'js';
}

// ── the file ──

function targetOf(path: string, root: string): { readonly absolute: string; readonly path: string } {
  const given = resolve(root, path);
  const folder = dirname(given);
  const real = existsSync(folder) ? join(realpathSync(folder), basename(given)) : given;
  const inside = relative(root, real).split(sep).join('/');
  if (!/\.[cm]?[jt]s$/.test(real)) throw invalid(path, 'it ends in neither .ts nor .js');
  if (inside.startsWith('..')) throw invalid(path, 'it lies outside of the repository');
  if (inside.includes('node_modules/')) throw invalid(path, 'it lies in node_modules');
  if (!existsSync(folder)) throw invalid(path, 'its folder does not exist');
  return { absolute: real, path: inside };
}

function formsOf(absolute: string): { readonly absolute: string; readonly form: KindFileForm }[] {
  if (/\.d\.[cm]?ts$/.test(absolute)) return [{ absolute, form: 'types' }];
  if (/ts$/.test(absolute)) return [{ absolute, form: 'ts' }];
  const commonJs = absolute.endsWith('.cjs') || (absolute.endsWith('.js') && !isModulePackage(absolute));
  return [
    { absolute, form: commonJs ? 'commonjs' : 'esm' },
    { absolute: absolute.replace(/\.([cm]?)js$/, '.d.$1ts'), form: 'types' },
  ];
}

interface Existing {
  readonly before: string | undefined;
  readonly hash: string | null;
  readonly bom: boolean;
  readonly state: 'none' | 'made' | 'edited';
}

function existing(absolute: string, root: string): Existing {
  const stats = lstatSync(absolute, { throwIfNoEntry: false });
  if (stats === undefined) return { before: undefined, hash: null, bom: false, state: 'none' };
  const path = relative(root, absolute);
  if (!stats.isFile()) throw invalid(path, 'it is no file');
  if (stats.size > MAX_BYTES) throw invalid(path, `it is larger than ${MAX_BYTES} bytes`);
  const bytes = readFileSync(absolute);
  const text = bytes.toString('utf8');
  const bom = text.startsWith('\uFEFF');
  return { before: bom ? text.slice(1) : text, hash: sha256(bytes), bom, state: stateOfText(text) };
}

function changeOf(
  file: Existing & { readonly absolute: string; readonly text: string },
  root: string,
): FileChange[] {
  const { absolute, hash, bom } = file;
  const before = file.before ?? '';
  // A checkout with other line ends is the same file.
  const after = before.includes('\r\n') ? file.text.replaceAll('\n', '\r\n') : file.text;
  if (file.before !== undefined && before === after) return [];
  const path = relative(root, absolute).split(sep).join('/');
  const edits = [{ start: 0, end: before.length, text: after }];
  return [{ path, absolute, hash, bom, before, after, edits, leftovers: [] }];
}

/** The nearest folder with a package.json, up to the root. */
function packageFolder(path: string, root: string): string {
  let folder = dirname(path);
  while (folder !== root && folder.startsWith(root) && !existsSync(join(folder, 'package.json')))
    folder = dirname(folder);
  return folder;
}

function invalid(path: string, why: string): UnbrokerError {
  return new UnbrokerError('kinds-path-invalid', `The kinds cannot be written to ${path}: ${why}`, {
    hint: 'Name a file of the repository, as in: --kinds unbroker.kinds.ts',
    exitStatus: EXIT.badInput,
  });
}
