/**
 * A repository that means harm or is merely broken: links out of it, files too large, too deep, half written, not
 * text, not files. Nothing outside is read into the plan or written, each file left out is named, and the one good
 * site is found all the same.
 */
import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { applyPlan, makePlan, type Plan, type PlanOptions } from '../../codemods/index.js';
import { UnbrokerError } from '../../src/errors.js';
import { filesOf, REPOSITORY } from './fixture.js';

// A compiler starts in each: on a loaded machine that takes its time.
vi.setConfig({ testTimeout: 120_000 });

const GOOD = join(REPOSITORY, 'test', 'codemods', 'fixtures', 'class-wrapper', 'input');
let base: string;
let root: string;

beforeEach(() => {
  base = realpathSync(mkdtempSync(join(tmpdir(), 'codemod-hostile-')));
  root = join(base, 'repository');
  cpSync(GOOD, root, { recursive: true });
});

afterEach(() => rmSync(base, { recursive: true, force: true }));

const write = (path: string, content: string | Buffer): void => {
  mkdirSync(join(base, path, '..'), { recursive: true });
  writeFileSync(join(base, path), content);
};

const plan = (options: Partial<PlanOptions> = {}): Plan =>
  makePlan({ root, paths: [], level: 'wrap', inlineSql: false, todo: true, types: true, ...options });

const PUBLISHING = readFileSync(join(GOOD, 'src', 'orders.ts'), 'utf8');

describe('a hostile repository', () => {
  test('each file left out is named, nothing outside is touched, the good site is found', () => {
    write('outside/orders.ts', PUBLISHING);
    write('outside/folder/orders.ts', PUBLISHING);
    symlinkSync(join(base, 'outside', 'orders.ts'), join(root, 'src', 'linked.ts'));
    symlinkSync(join(base, 'outside', 'folder'), join(root, 'src', 'linked-folder'));
    symlinkSync(root, join(root, 'src', 'loop'));
    symlinkSync('/dev/zero', join(root, 'src', 'zero.ts'));
    symlinkSync(join(base, 'nowhere'), join(root, 'src', 'dangling.ts'));
    write('repository/src/large.ts', `// publish\n${'x;'.repeat(2_600_000)}`);
    write(
      'repository/src/deep.ts',
      `import 'amqplib';\nexport const publish = ${'('.repeat(10_000)}1${')'.repeat(10_000)};\n`,
    );
    write('repository/src/chain.ts', `import 'amqplib';\nexport const publish = ${'!'.repeat(60_000)}1;\n`);
    write('repository/src/broken.ts', "import 'amqplib';\nexport function publish( {\n");
    write('repository/src/utf16.ts', Buffer.from(`\uFEFF${PUBLISHING}`, 'utf16le'));
    write('repository/src/latin1.ts', Buffer.from(`// caf\u00e9 publish\n${PUBLISHING}`, 'latin1'));
    write(
      'repository/src/sum.ts',
      `import 'amqplib';\nexport const publish = ${"'a' + ".repeat(50_000)}'b';\n`,
    );
    execFileSync('mkfifo', [join(root, 'src', 'fifo.ts')]);
    const before = filesOf(join(base, 'outside'));

    const made = plan();
    expect(Object.fromEntries(made.skipped.map((s) => [s.path, s.reason]))).toEqual({
      'src/broken.ts': 'syntax-error',
      'src/chain.ts': 'nested-too-deep',
      'src/dangling.ts': 'link',
      'src/deep.ts': 'nested-too-deep',
      'src/fifo.ts': 'unreadable',
      'src/large.ts': 'too-large',
      'src/latin1.ts': 'not-utf8',
      'src/linked-folder': 'link',
      'src/linked.ts': 'link',
      'src/loop': 'link',
      'src/utf16.ts': 'not-utf8',
      'src/zero.ts': 'link',
    });
    expect(made.sites.map((s) => `${s.file} ${s.level}`)).toEqual(['src/orders.ts safe']);
    expect(applyPlan(made, { allowDirty: true }).written).toEqual(['src/orders.ts']);
    expect(filesOf(join(base, 'outside'))).toEqual(before);
  });

  test('an import that leaves the repository is not followed', () => {
    write('outside/bus.ts', readFileSync(join(GOOD, 'src', 'bus.ts'), 'utf8'));
    write('repository/src/far.ts', PUBLISHING.replace('./bus.js', '../../outside/bus.js'));
    const far = plan().sites.find((s) => s.file === 'src/far.ts');
    expect(far).toMatchObject({ level: 'refused', reason: 'publisher-unresolved' });
  });

  test('a repository of nothing, and one without a broker', () => {
    rmSync(join(root, 'src'), { recursive: true });
    expect(plan().sites).toEqual([]);
    write('repository/a.ts', 'export const publish = 1;\n');
    expect(plan()).toMatchObject({ sites: [], skipped: [], counts: { files: 1, parsed: 0 } });
  });

  test('a file that changes between scan and apply stops everything', () => {
    const made = plan();
    writeFileSync(join(root, 'src', 'orders.ts'), `${PUBLISHING}// mine\n`);
    expect(() => applyPlan(made, { allowDirty: true })).toThrow(
      expect.objectContaining({ code: 'file-changed' }),
    );
    expect(readFileSync(join(root, 'src', 'orders.ts'), 'utf8')).toBe(`${PUBLISHING}// mine\n`);
  });

  test('a file that becomes a link out of the repository is not followed', () => {
    const made = plan();
    write('outside/orders.ts', PUBLISHING);
    rmSync(join(root, 'src', 'orders.ts'));
    symlinkSync(join(base, 'outside', 'orders.ts'), join(root, 'src', 'orders.ts'));
    expect(() => applyPlan(made, { allowDirty: true })).toThrow(
      expect.objectContaining({ code: 'file-changed' }),
    );
    expect(readFileSync(join(base, 'outside', 'orders.ts'), 'utf8')).toBe(PUBLISHING);
  });

  test('mode bits stay, no temporary file is left', () => {
    chmodSync(join(root, 'src', 'orders.ts'), 0o750);
    applyPlan(plan(), { allowDirty: true });
    const listing = execFileSync('ls', ['-l', join(root, 'src')], { encoding: 'utf8' });
    expect(listing).toMatch(/-rwxr-x---.* orders\.ts/);
    expect(listing).not.toContain('.tmp');
  });

  test('a bad configuration is refused, a good one is data', () => {
    for (const text of [
      '{',
      '[]',
      '{"kind":{}}',
      '{"kinds":{"a":1}}',
      '{"wrappers":{"x":{"kind":0,"payload":1}}}',
      '{"pool":"x"}',
    ]) {
      write('repository/unbroker.codemod.json', text);
      expect(() => plan()).toThrow(
        expect.objectContaining({ code: 'codemod-config-invalid', exitStatus: 2 }),
      );
    }
    write('repository/unbroker.codemod.json', '{"kinds":{"__proto__":"x","order.placed":"place"}}');
    expect(plan().sites[0]?.kind).toBe('place');
    rmSync(join(root, 'unbroker.codemod.json'));
    write('outside/c.json', '{}');
    symlinkSync(join(base, 'outside', 'c.json'), join(root, 'unbroker.codemod.json'));
    expect(() => plan()).toThrow(UnbrokerError);
  });

  test('paths outside, and paths that are not there', () => {
    expect(() => plan({ paths: ['..'] })).toThrow(expect.objectContaining({ code: 'path-outside' }));
    expect(() => plan({ paths: ['src/none.ts'] })).toThrow(
      expect.objectContaining({ code: 'path-not-found' }),
    );
    expect(() => plan({ root: join(base, 'none') })).toThrow(
      expect.objectContaining({ code: 'path-not-found' }),
    );
    expect(plan({ paths: ['src/bus.ts'] }).sites).toEqual([]);
    expect(plan({ paths: ['src'] }).sites).toHaveLength(1);
  });

  test('tests hold no call sites, unless they are asked for', () => {
    cpSync(join(root, 'src'), join(root, 'test', 'app', 'src'), { recursive: true });
    expect(plan().sites.map((s) => s.file)).toEqual(['src/orders.ts']);
    expect(plan({ paths: ['test/app'] }).sites.map((s) => `${s.file} ${s.level}`)).toEqual([
      'test/app/src/orders.ts safe',
    ]);
  });

  test('an unreadable file is named', () => {
    write('repository/src/secret.ts', PUBLISHING);
    chmodSync(join(root, 'src', 'secret.ts'), 0o000);
    const made = asNobody(() => plan({ types: false }));
    expect(made.skipped).toEqual([{ path: 'src/secret.ts', reason: 'unreadable', detail: 'EACCES' }]);
  });

  test('a read-only folder: nothing is written', () => {
    const made = plan();
    chmodSync(join(root, 'src'), 0o555);
    try {
      asNobody(() =>
        expect(() => applyPlan(made, { allowDirty: true })).toThrow(
          expect.objectContaining({ code: 'write-failed' }),
        ),
      );
      expect(filesOf(join(root, 'src')).get('orders.ts')).toBe(PUBLISHING);
      expect([...filesOf(root).keys()].filter((f) => f.includes('.tmp'))).toEqual([]);
    } finally {
      chmodSync(join(root, 'src'), 0o700);
    }
  });
});

/** Permissions mean nothing to root. */
function asNobody<Result>(act: () => Result): Result {
  if (process.geteuid?.() !== 0) return act();
  chmodSync(base, 0o755);
  process.seteuid?.(65_534);
  try {
    return act();
  } finally {
    process.seteuid?.(0);
  }
}
