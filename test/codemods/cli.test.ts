/** `unbroker codemod` as a person runs it: output, exit statuses, the git guard, the patch that takes it back. */
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { startCli } from '../support/cli.js';
import { filesOf, linkPackages, REPOSITORY } from './fixture.js';
import { added, diagnosticsOf } from './type-errors.js';

// A compiler starts in each: on a loaded machine that takes its time.
vi.setConfig({ testTimeout: 120_000 });

let root: string;

function git(...args: string[]): string {
  return execFileSync('git', ['-c', 'user.name=t', '-c', 'user.email=t@example.org', ...args], {
    cwd: root,
    encoding: 'utf8',
  });
}

async function cli(...args: string[]) {
  const run = startCli(['codemod', ...args], { cwd: root });
  run.endInput();
  const { code } = await run.waitForExit(60_000);
  return { status: code, stdout: run.stdout, stderr: run.stderr };
}

beforeAll(() => {
  root = realpathSync(mkdtempSync(join(tmpdir(), 'codemod-cli-')));
  cpSync(join(REPOSITORY, 'test', 'legacy', 'orders'), root, { recursive: true });
  linkPackages(root);
  writeFileSync(join(root, '.gitignore'), 'node_modules\nignored\n');
  mkdirSync(join(root, 'ignored'));
  cpSync(join(root, 'src', 'orders.ts'), join(root, 'ignored', 'orders.ts'));
  writeFileSync(join(root, 'unbroker.codemod.json'), '{"kinds":{"notification.*.email":"notify.email"}}');
  // Were the caller's repository ever run, this would show.
  writeFileSync(join(root, 'unbroker.config.ts'), "throw new Error('the repository was run')\n");
  git('init', '-q');
  git('add', '.');
  git('commit', '-qm', 'orders');
});

afterAll(() => rmSync(root, { recursive: true, force: true }));

describe('the orders application', () => {
  test('scan is readable and changes nothing', async () => {
    const { status, stdout } = await cli('scan');
    expect(status).toBe(0);
    expect(stdout).toMatch(/src\/orders\.ts:\d+ {2}safe {2}notify\.email\n {2}in +Orders\.create/);
    expect(stdout).toMatch(/src\/support-desk\.ts:\d+ {2}refused \(publish-before-write\)/);
    expect(stdout).toMatch(/9 call sites: 3 safe, 2 wrap, 0 thread, 4 refused\./);
    expect(git('status', '--porcelain')).toBe('');
  });

  test('scan --json is one object in the last line', async () => {
    const { stdout } = await cli('scan', '--json');
    const plan = JSON.parse(stdout.trimEnd().split('\n').at(-1) ?? '');
    expect(plan).toMatchObject({ version: 1, degraded: null, counts: { safe: 3, wrap: 2, refused: 4 } });
    expect(
      plan.sites
        .map((s: { reason: string }) => s.reason)
        .filter(Boolean)
        .sort(),
    ).toEqual(['catch-swallows', 'catch-swallows', 'dynamic-kind', 'publish-before-write']);
    expect(plan.wrappers[0]).toMatchObject({
      id: 'src/events.ts#EventPublisher.publish',
      calls: 8,
      usable: true,
    });
  });

  test('scan --markdown groups by reason', async () => {
    const { stdout } = await cli('scan', '--markdown', 'src/refunds.ts');
    expect(stdout).toContain('### catch-swallows');
    expect(stdout).toContain('1 call sites: 0 safe');
  });

  test('apply alone prints a diff that git takes', async () => {
    const { status, stdout, stderr } = await cli('apply', '--level', 'wrap');
    expect(status).toBe(0);
    expect(stderr).toContain('Nothing was written: add --write.');
    execFileSync('git', ['apply', '--check', '-'], { cwd: root, input: stdout });
    expect(git('status', '--porcelain')).toBe('');
  });

  test('apply --write wants a clean tree', async () => {
    writeFileSync(join(root, 'mine.txt'), 'mine');
    // Before a file is read: whoever does that says first that there are too many.
    const { status, stderr } = await cli('apply', '--write', '--max-files', '1');
    expect(status).toBe(2);
    expect(stderr).toMatch(/uncommitted changes \(mine\.txt\).*\[tree-dirty\]/);
    rmSync(join(root, 'mine.txt'));
    expect(git('status', '--porcelain')).toBe('');
  });

  test('apply --write edits, type-checks, changes nothing twice, and can be taken back', async () => {
    const before = filesOf(root);
    const typesBefore = diagnosticsOf(root);
    const { status, stderr } = await cli('apply', '--write', '--level', 'wrap');
    expect(status).toBe(0);
    expect(stderr).toContain('5 publishes in 2 files rewritten; 4 left alone');
    expect(
      git('status', '--porcelain')
        .trim()
        .split('\n')
        .map((l) => l.slice(-16))
        .sort(),
    ).toEqual(['rc/fulfilment.ts', ' M src/orders.ts'].map((l) => l.slice(-16)).sort());
    expect(readFileSync(join(root, 'src', 'orders.ts'), 'utf8')).toContain(
      "await enqueue(\n        client,\n        'notify.email',",
    );
    // The orders class publishes nothing any more; its constructor is the caller's to change.
    expect(added(typesBefore, diagnosticsOf(root))).toEqual([
      "src/orders.ts: TS6138 Property 'publisher' is declared but its value is never read.",
    ]);
    expect(stderr).toContain('Left over: src/orders.ts: publisher (line');

    git('commit', '-qam', 'rewritten');
    const again = await cli('apply', '--write', '--level', 'wrap');
    expect(again).toMatchObject({ status: 0, stdout: '' });
    expect(again.stderr).toContain('0 publishes in 0 files rewritten');

    const patch = /git apply (\S+)/.exec(stderr)?.[1] ?? '';
    git('apply', patch);
    expect(filesOf(root)).toEqual(before);
    git('commit', '-qam', 'taken back');
  });

  test('check --ratchet fails when a new publish stands beside a commit', async () => {
    const missing = await cli('check', '--ratchet', 'ratchet.json');
    expect(missing).toMatchObject({ status: 2, stdout: '' });
    expect(missing.stderr).toContain('[ratchet-missing]');
    const updated = await cli('check', '--ratchet', 'ratchet.json', '--update');
    expect(updated).toMatchObject({ status: 0, stdout: 'ratchet.json holds 9 known publishes.\n' });
    const orders = readFileSync(join(root, 'src', 'orders.ts'), 'utf8');
    writeFileSync(join(root, 'src', 'orders-again.ts'), orders);
    const failed = await cli('check', '--ratchet', 'ratchet.json');
    expect(failed.status).toBe(1);
    expect(failed.stdout).toMatch(/^src\/orders-again\.ts:\d+ {2}new publish in Orders\.create: /);
    rmSync(join(root, 'src', 'orders-again.ts'));
    rmSync(join(root, 'ratchet.json'));
  });

  test('--interactive wants a terminal', async () => {
    const { status, stdout, stderr } = await cli('apply', '--interactive', '--write');
    expect({ status, stdout }).toEqual({ status: 2, stdout: '' });
    expect(stderr).toContain('[no-terminal]');
    expect(git('status', '--porcelain')).toBe('');
  });

  test('--todo leaves one comment at each refused site, once', async () => {
    const marked = await cli('apply', '--write', '--todo');
    expect(marked.status).toBe(0);
    const count = (): number => [...filesOf(root).values()].join('').split('TODO(unbroker)').length - 1;
    expect(count()).toBe(4);
    expect(readFileSync(join(root, 'src', 'support-desk.ts'), 'utf8')).toMatch(
      /^ {4}\/\/ TODO\(unbroker\) publish-before-write: .*\n {4}await this\.publisher\.publish\($/m,
    );
    git('commit', '-qam', 'marked');
    const again = await cli('apply', '--write', '--todo');
    expect(again.stderr).toContain('in 0 files');
    expect(count()).toBe(4);
  });
});

test('bad input ends with 2 and one line', async () => {
  for (const args of [
    ['scan', '--level', 'all'],
    ['scan', 'nowhere'],
    ['apply', '--root', 'nowhere'],
    ['scan', '..', 'src'],
    ['scn'],
  ]) {
    const { status, stderr } = await cli(...args);
    expect(status).toBe(2);
    expect(stderr).toMatch(/^(?:unbroker: .*\[[\w-]+\]|\(add --help.*\)|\n)+$/);
  }
});
