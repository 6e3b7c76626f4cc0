/**
 * A fixture: a folder `input`, what is expected of it (`expect.json`), and `output` with the files that change. This
 * file copies one into a place of its own and runs the codemod over it; type-errors.ts checks its types.
 */
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { makePlan, type Plan, type PlanOptions } from '../../codemods/index.js';

const HERE = dirname(fileURLToPath(import.meta.url));
export const REPOSITORY = join(HERE, '..', '..');
const FIXTURES = join(HERE, 'fixtures');
const PACKAGES = ['pg', 'amqplib', '@types/node', '@types/pg'];

/** What expect.json says. */
export interface Expectation {
  readonly options?: Partial<Pick<PlanOptions, 'level' | 'inlineSql' | 'todo' | 'target' | 'kinds'>>;
  /** The report says that known packages could not be resolved. */
  readonly degraded?: boolean;
  /** false: without node_modules, nothing from packages has a type. */
  readonly installed?: boolean;
  /** Packages that the fixture imports, beside pg and amqplib: this repository's own, or the declarations in stubs/. */
  readonly packages?: readonly string[];
  /** `file:line level` or `file:line refused reason`, in order. */
  readonly sites: readonly string[];
  /** `file:line` to what its message says, where a reason has many causes. */
  readonly whys?: Readonly<Record<string, string>>;
  readonly skipped?: readonly string[];
}

export interface Workspace {
  readonly name: string;
  readonly folder: string;
  readonly expected: Expectation;
  plan(): Plan;
  remove(): void;
}

export function fixtureNames(): string[] {
  return readdirSync(FIXTURES).sort();
}

export function openFixture(name: string): Workspace {
  const expected = JSON.parse(readFileSync(join(FIXTURES, name, 'expect.json'), 'utf8')) as Expectation;
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'codemod-')));
  cpSync(join(FIXTURES, name, 'input'), folder, { recursive: true });
  if (expected.installed !== false) linkPackages(folder, expected.packages);
  return {
    name,
    folder,
    expected,
    plan: () =>
      makePlan({
        root: folder,
        paths: [],
        level: 'safe',
        inlineSql: false,
        todo: false,
        types: true,
        ...expected.options,
      }),
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}

export function linkPackages(folder: string, more: readonly string[] = []): void {
  for (const name of [...PACKAGES, ...more]) {
    const stub = join(HERE, 'stubs', name);
    link(folder, name, existsSync(stub) ? stub : join(REPOSITORY, 'node_modules', name));
  }
}

function link(folder: string, name: string, target: string): void {
  const path = join(folder, 'node_modules', name);
  mkdirSync(dirname(path), { recursive: true });
  // A link to a stub would lead out of node_modules, and what lies elsewhere is no package.
  if (target.includes(join('codemods', 'stubs'))) cpSync(target, path, { recursive: true });
  else symlinkSync(target, path);
}

/** Relative path to text of every file below, node_modules left out. */
export function filesOf(folder: string): Map<string, string> {
  const files = new Map<string, string>();
  if (!existsSync(folder)) return files;
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    const path = relative(folder, join(entry.parentPath, entry.name));
    if (entry.isFile() && !/(?:^|\/)(?:node_modules|\.unbroker|\.git)\//.test(path)) {
      files.set(path, readFileSync(join(folder, path), 'utf8'));
    }
  }
  return files;
}

export const inputOf = (name: string): Map<string, string> => filesOf(join(FIXTURES, name, 'input'));
export const outputOf = (name: string): Map<string, string> => filesOf(join(FIXTURES, name, 'output'));
export const outputFolder = (name: string): string => join(FIXTURES, name, 'output');

export function verdicts(plan: Plan): string[] {
  return plan.sites.map((s) => `${s.file}:${s.line} ${s.level}${s.reason === null ? '' : ` ${s.reason}`}`);
}
