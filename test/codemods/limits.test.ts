/** How much a codemod looks at before it says that this is no repository, and what it says meanwhile. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { readSources } from '../../codemods/files.js';
import { applyPlan, checkApply, makePlan, type PlanOptions } from '../../codemods/index.js';
import { stepLine } from '../../src/cli/codemod-progress.js';

let root: string;

beforeEach(() => {
  root = realpathSync(mkdtempSync(join(tmpdir(), 'codemod-limits-')));
  for (const name of ['a.ts', 'b.ts', 'c.js']) writeFileSync(join(root, name), 'export {};\n');
});

afterEach(() => {
  vi.unstubAllEnvs();
  rmSync(root, { recursive: true, force: true });
});

const refused = (code: string): unknown => expect.objectContaining({ code, exitStatus: 2 });

describe('a repository has limits', () => {
  test('as many source files as allowed are read, one more and none is', () => {
    expect([...readSources(root, [], { maxFiles: 3 }).files.keys()]).toEqual(['a.ts', 'b.ts', 'c.js']);
    const steps: string[] = [];
    const read = () => readSources(root, [], { maxFiles: 2, progress: (step) => steps.push(step) });
    expect(read).toThrow(refused('too-many-files') as Error);
    expect(read).toThrow(/holds more than 2 source files; none was read/);
    expect(steps).toEqual([]);
  });

  test('files of other kinds count fifty to one', () => {
    mkdirSync(join(root, 'pictures'));
    for (let n = 0; n < 150 - 4; n++) writeFileSync(join(root, 'pictures', `${n}.png`), '');
    expect(readSources(root, [], { maxFiles: 3 }).files.size).toBe(3);
    writeFileSync(join(root, 'pictures', 'one-more.png'), '');
    expect(() => readSources(root, [], { maxFiles: 3 })).toThrow(/more than 150 files and directories/);
  });

  test('a home folder is none, unless somebody made it one', () => {
    vi.stubEnv('HOME', root);
    expect(() => readSources(root, [])).toThrow(refused('not-a-repository') as Error);
    writeFileSync(join(root, 'package.json'), '{}');
    expect(readSources(root, []).files.size).toBe(3);
  });
});

describe('what is refused anyway is refused before a file is read', () => {
  const git = (...args: string[]): string =>
    execFileSync('git', ['-c', 'user.name=t', '-c', 'user.email=t@example.invalid', ...args], {
      cwd: root,
      encoding: 'utf8',
    });
  const write = (path: string, text: string): void => writeFileSync(join(root, path), text);
  // One file more than allowed: whoever reads the repository first says so.
  const options = (kinds?: string): PlanOptions => ({
    ...{ root, paths: [], level: 'safe', inlineSql: false, todo: false, types: false, maxFiles: 2 },
    ...(kinds === undefined ? {} : { kinds: { path: kinds, use: false } }),
  });

  test('a scan: a configuration that is wrong, kinds that have no place', () => {
    expect(() => makePlan(options())).toThrow(refused('too-many-files') as Error);
    expect(() => makePlan(options('nowhere/kinds.ts'))).toThrow(refused('kinds-path-invalid') as Error);
    write('unbroker.codemod.json', '{"kindz":{}}');
    expect(() => makePlan(options())).toThrow(refused('codemod-config-invalid') as Error);
  });

  test('what would write: kinds that somebody edited, a tree that is not clean', () => {
    git('init', '-q');
    expect(() => checkApply(options(), { allowDirty: false })).toThrow(/has uncommitted changes \(a\.ts/);
    expect(() => checkApply(options(), undefined)).not.toThrow();
    expect(() => checkApply(options(), { allowDirty: true })).not.toThrow();
    git('add', '.');
    git('commit', '-q', '-m', 'start');
    expect(() => checkApply(options('kinds.ts'), { allowDirty: false })).not.toThrow();
    // It may become so meanwhile.
    const plan = makePlan({ ...options(), maxFiles: 3 });
    write('kinds.ts', '// mine\n');
    expect(() => applyPlan(plan, { allowDirty: false })).toThrow(refused('tree-dirty') as Error);
    expect(() => checkApply(options('kinds.ts'), undefined)).toThrow(refused('kinds-edited') as Error);
  });
});

describe('what a long run is at', () => {
  let now: number;
  let written: string[];
  const line = (isTerminal: boolean) =>
    stepLine(
      (text) => written.push(text),
      isTerminal,
      () => now,
    );

  beforeEach(() => {
    now = 0;
    written = [];
  });

  test('a short one says nothing', () => {
    const { step, end } = line(true);
    now = 1_999;
    step('reading');
    end();
    expect(written).toEqual([]);
  });

  test('a line every five seconds where nobody can rewrite it', () => {
    const { step, end } = line(false);
    for (now = 0; now <= 12_000; now += 500) step(`at ${now}`);
    end();
    expect(written).toEqual(['at 2000\n', 'at 7000\n', 'at 12000\n']);
  });

  test('a terminal gets one line, which goes in the end', () => {
    const { step, end } = line(true);
    now = 2_000;
    step('src/\u001b[31mred.ts');
    end();
    expect(written[0]?.startsWith('\r\u001b[Ksrc/')).toBe(true);
    expect(written[0]?.slice(4)).not.toContain('\u001b');
    expect(written.slice(1)).toEqual(['\r\u001b[K']);
  });
});
