/**
 * The command line: what it does with jobs, and what it says to bad input: one line with the next step, the documented
 * status, no stack, nothing secret. Each case is a process of its own, without a terminal and with nothing to read.
 */
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { cliFile, startCli } from '../support/cli.js';
import { startFaultProxy } from '../support/fault-proxy.js';
import { type JobsDatabase, jobsDatabase } from '../support/jobs.js';
import { type StartedProcess, startProcess } from '../support/processes.js';

const folder = mkdtempSync(join(tmpdir(), 'unbroker-cli-'));
let db: JobsDatabase;
beforeAll(async () => {
  db = await jobsDatabase();
});
afterAll(async () => {
  await db.close();
  rmSync(folder, { recursive: true });
});

interface Run {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

const CANARY = 'hunter2-canary';

async function unbroker(
  args: readonly string[],
  env: Record<string, string | undefined> = {},
  cwd = folder,
): Promise<Run> {
  const process = startCli(args, {
    cwd,
    env: { DATABASE_URL: db.url, AMQP_URL: undefined, UNBROKER_LOG_LEVEL: undefined, ...env },
  });
  process.endInput();
  const { code } = await process.waitForExit(90_000);
  return { code, stdout: process.stdout, stderr: process.stderr };
}

/** One line on stderr that ends with a code; nothing on stdout. */
function expectRefusal(run: Run, status: number, code: string, line: RegExp | string): void {
  expect(run.stderr).toMatch(/^unbroker: [^\n]*\. [^\n]+ \[[a-z-]+\]\n$/);
  expect(run.stderr).toContain(`[${code}]`);
  if (typeof line === 'string') expect(run.stderr).toContain(line);
  else expect(run.stderr).toMatch(line);
  expect(run.stderr).not.toMatch(/\n\s+at |node:internal/);
  expect(run.stderr + run.stdout).not.toContain(CANARY);
  expect(run.stdout).toBe('');
  expect(run.code).toBe(status);
}

function configured(name: string, text: string): string {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
}

describe.concurrent('usage', () => {
  test.for<[string[], RegExp | string]>([
    [['nosuch'], "unknown command 'nosuch'"],
    [['migrate', '--nosuch'], "unknown option '--nosuch'. Run: unbroker migrate --help"],
    [['jobs', 'list', '--stat', 'dead'], '(Did you mean --state?)'],
    [['jobs', 'show'], /missing required argument.*Run: unbroker jobs show --help/],
    [['migrate', 'extra'], 'too many arguments'],
    [['codemod', 'scan', '--sarif', '--diff'], 'cannot be used with'],
    [['jobs', 'list', '--limit'], 'argument missing'],
    [['\u001b[31mred\nnext'], '\\u001b[31mred'],
  ])('%j', async ([args, line]) => {
    expectRefusal(await unbroker(args), 2, 'usage', line);
  });

  test('nothing at all shows the help and is bad input; --help and --version are answers', async () => {
    const [nothing, help, version] = await Promise.all([
      unbroker([]),
      unbroker(['jobs', '--help']),
      unbroker(['--version']),
    ]);
    expect([nothing.code, help.code, version.code]).toEqual([2, 0, 0]);
    expect(nothing.stderr).toContain('Usage: unbroker');
    expect(help.stdout).toContain('Usage: unbroker jobs');
    const manifest = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as {
      version: string;
    };
    expect(version.stdout.trim()).toBe(manifest.version);
  });

  test.for<[string[], number, string, string]>([
    [['jobs', 'nosuch', '--json'], 2, 'usage', "unknown command 'nosuch'"],
    [['codemod', 'scan', '--sarif', '--json'], 2, 'usage', 'cannot be used with'],
    [['codemod', 'scan', '--json', '--root', '/nonexistent'], 2, 'path-not-found', 'nonexistent'],
    [['jobs', 'stats', '--json', '--schema', 'nosuch'], 2, 'schema-missing', 'nosuch'],
    [['migrate', '--json', `postgres://u:${CANARY}@h/d`], 2, 'secret-in-arguments', 'An argument'],
  ])(
    'a failure is JSON on stdout, too, when that is asked for: %j',
    async ([args, status, code, message]) => {
      const run = await unbroker(args);
      expectRefusal({ ...run, stdout: '' }, status, code, /\[/);
      const { error } = JSON.parse(run.stdout) as { error: { code: string; message: string; hint: string } };
      expect(error).toEqual({
        code,
        message: expect.stringContaining(message),
        hint: expect.stringMatching(/./),
      });
      expect(run.stdout).not.toContain(CANARY);
    },
  );

  test.for([
    [['migrate', `postgres://u:${CANARY}@h/d`]],
    [['jobs', 'list', `--kind=postgres://u:${CANARY}@h/d`]],
    [['migrate', '--database-url', `postgresql://u:${CANARY}/x@h/d`]],
    [[`amqp://u:${CANARY}@h/v`]],
  ])('a password among the arguments is refused and not repeated: %j', async ([args]) => {
    expectRefusal(
      await unbroker(args as string[]),
      2,
      'secret-in-arguments',
      'set DATABASE_URL or AMQP_URL instead',
    );
  });
});

describe.concurrent('values', () => {
  test.for<[string[], RegExp | string]>([
    [['jobs', 'list', '--limit', '0'], 'from 1 to 1000'],
    [['jobs', 'list', '--limit', '1001'], 'from 1 to 1000'],
    [['jobs', 'list', '--limit', '1e2'], 'from 1 to 1000'],
    [['jobs', 'list', '--state', 'deda'], 'did you mean dead?'],
    [['jobs', 'list', '--before', '-1'], 'positive whole number'],
    [['jobs', 'show', 'abc'], 'positive whole number'],
    [['jobs', 'show', '0'], 'positive whole number'],
    [['jobs', 'show', '1; drop table jobs'], 'positive whole number'],
    [['jobs', 'show', '99999999999999999999'], 'positive whole number'],
    [['jobs', 'retry', '1', 'x'], 'positive whole number'],
    [['jobs', 'retry', '1', '--attempts', '0'], 'from 1 to 1000'],
    [['work', '--concurrency', '0'], 'from 1 to 10000'],
    [['work', '--concurrency', '-1'], 'from 1 to 10000'],
    [['work', '--concurrency', 'NaN'], 'from 1 to 10000'],
    [['work', '--concurrency', '1000000'], 'from 1 to 10000'],
    [['work', '--lease', '30'], 'for example 30s'],
    [['work', '--lease', '30 M'], 'for example 30s'],
    [['work', '--lease', '0s'], 'for example 30s'],
    [['work', '--lease', '2d'], 'for example 30s'],
    [['jobs', 'cancel', '--kind', ''], '1 to 1000 characters'],
    [['work', '--grace', 'x'], 'for example 30s'],
  ])('%j', async ([args, line]) => {
    // Before anything is connected: the server would not answer.
    expectRefusal(
      await unbroker(args, { DATABASE_URL: 'postgres://127.0.0.1:1/none' }),
      2,
      'config-invalid',
      line,
    );
  });

  test.for([
    'Jobs',
    'public',
    'pg_temp',
    'a.b',
    'x"; drop schema public cascade; --',
    'a'.repeat(64),
    '%I',
    'a\\b',
  ])('--schema %j', async (schema) => {
    expectRefusal(await unbroker(['migrate', '--schema', schema]), 2, 'schema-invalid', '1 to 63 of a-z');
  });
});

describe.concurrent('the database', () => {
  test.for<[string, string, number, string, RegExp | string]>([
    ['no URL', '', 2, 'database-url-missing', /Set DATABASE_URL.*No config was read: .* in \//],
    ['no URL at all', CANARY, 2, 'database-url-invalid', 'postgres://user:password@host'],
    ['another protocol', `mysql://u:${CANARY}@h/d`, 2, 'database-url-invalid', 'postgres://'],
    [
      'a stray percent sign',
      `postgres://u:${CANARY}%zz@127.0.0.1/d`,
      2,
      'database-url-invalid',
      'percent-encoded',
    ],
    [
      'a bare # in the password',
      `postgres://u:${CANARY}#x@127.0.0.1:1/d`,
      2,
      'database-url-invalid',
      'percent-encoded',
    ],
    [
      'a port that is none',
      `postgres://u:${CANARY}@127.0.0.1:99999/d`,
      2,
      'database-url-invalid',
      'postgres://',
    ],
    ['an IPv6 zone', `postgres://u:${CANARY}@[fe80::1%25eth0]/d`, 2, 'database-url-invalid', 'postgres://'],
    [
      'nobody listens',
      `postgres://u:${CANARY}@127.0.0.1:1/d`,
      1,
      'server-unreachable',
      'The server 127.0.0.1:1 does not answer (ECONNREFUSED). Check host and port',
    ],
    [
      'no such host',
      `postgres://u:${CANARY}@nosuch.invalid/d`,
      1,
      'server-unreachable',
      /The server nosuch\.invalid does not answer \(E[A-Z_]+\)\. Check host and port/,
    ],
    [
      'no such socket',
      'postgres:///d?host=/nonexistent',
      1,
      'server-unreachable',
      'The server /nonexistent/.s.PGSQL.5432 does not answer (ENOENT)',
    ],
    [
      'a CA file that is not there',
      `postgres://u:${CANARY}@127.0.0.1:1/d?sslmode=verify-full&sslrootcert=/nonexistent.crt`,
      2,
      'tls-unreadable',
      'The file that sslrootcert in DATABASE_URL names',
    ],
  ])('%s', async ([_name, url, status, code, line]) => {
    expectRefusal(await unbroker(['jobs', 'stats'], { DATABASE_URL: url }), status, code, line);
  });

  test('the address to listen on, before a worker begins', async () => {
    // With a kind to serve, and no broker that it would have to reach.
    const env = { AMQP_URL: 'amqp://127.0.0.1:1', DATABASE_DIRECT_URL: `${CANARY}:5432` };
    expectRefusal(await unbroker(['work'], env), 2, 'database-url-invalid', 'DATABASE_DIRECT_URL is not');
  });

  test('sslmode=disable to another machine is warned of, to this one it is not', async () => {
    const run = (host: string) =>
      unbroker(['jobs', 'stats'], {
        DATABASE_URL: `postgres://u:${CANARY}@${host}/d?sslmode=disable`,
        UNBROKER_LOG_LEVEL: 'warn',
      });
    const [remote, local] = await Promise.all([run('nosuch.invalid'), run('127.0.0.1:1')]);
    expect(remote.stderr).toContain('sslmode=disable');
    expect(local.stderr).not.toContain('sslmode=disable');
    expect([remote.code, local.code]).toEqual([1, 1]);
    expect(remote.stderr).not.toContain(CANARY);
  });

  test('one that accepts and says nothing', async () => {
    const silent = createServer(() => {});
    await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve));
    const { port } = silent.address() as { port: number };
    expectRefusal(
      await unbroker(['migrate'], { DATABASE_URL: `postgres://u:${CANARY}@127.0.0.1:${port}/d` }),
      1,
      'server-unreachable',
      'timeout',
    );
    silent.close();
  });

  test('one that does not exist, a role that does not either, a server without TLS', async () => {
    const at = (change: (url: URL) => void): Record<string, string> => {
      const url = new URL(db.url);
      change(url);
      return { DATABASE_URL: url.href };
    };
    const [missing, role, tls] = await Promise.all([
      unbroker(
        ['migrate'],
        at((url) => {
          url.pathname = '/nosuch';
        }),
      ),
      unbroker(
        ['migrate'],
        at((url) => {
          url.username = 'nosuch';
          url.password = CANARY;
        }),
      ),
      unbroker(
        ['migrate'],
        at((url) => {
          url.searchParams.set('sslmode', 'verify-full');
        }),
      ),
    ]);
    expectRefusal(missing, 2, 'database-missing', 'createdb');
    expect(missing.stderr).toContain(`The database ${new URL(db.url).host}/nosuch does not exist`);
    expectRefusal(role, 2, 'database-login-refused', 'Check user and password');
    expectRefusal(tls, 2, 'tls-refused', 'sslmode');
  });

  test('a schema that is missing, a newer one, and a role without rights', async () => {
    const admin = await db.session();
    await admin.query(`create schema newer; create table newer.migrations (version int primary key, name text, applied_at timestamptz default now());
      insert into newer.migrations values (999, '999_future')`);
    const role = `unbroker_poor_${process.pid}`;
    await admin.query(`create role ${role} login`);
    try {
      const url = new URL(db.url);
      url.username = role;
      const [missing, newer, newerWork, poor] = await Promise.all([
        unbroker(['jobs', 'stats', '--schema', 'nosuch']),
        unbroker(['migrate', '--schema', 'newer']),
        unbroker(['jobs', 'list', '--schema', 'newer']),
        unbroker(['migrate', '--schema', 'mine'], { DATABASE_URL: url.href }),
      ]);
      expectRefusal(missing, 2, 'schema-missing', 'Run: unbroker migrate');
      expectRefusal(newer, 2, 'schema-newer', 'Run: npm install unbroker@latest');
      expectRefusal(newerWork, 2, 'schema-newer', 'Run: npm install unbroker@latest');
      expectRefusal(poor, 1, 'permission-denied', 'unbroker roles');
    } finally {
      await admin.query(`drop role ${role}`);
    }
  });

  test('seam before the table is there says what to do about it', async () => {
    const rule = {
      name: 'r',
      source: 'pg_stat_activity',
      key: 'pid',
      since: 'backend_start',
      expects: { kind: 'a', key: 'payload.id' },
    };
    const config = configured('seam.json', JSON.stringify({ seam: { rules: [rule] } }));
    expectRefusal(
      await unbroker(['seam', '--schema', 'not_yet', '--config', config]),
      2,
      'seam-rule-failed',
      'Run: unbroker migrate, or leave the places with a kind out',
    );
  });

  test.for([
    [['doctor'], /pg_stat_activity/],
    [['jobs', 'stats'], /group by kind/],
    [['migrate', '--schema', 'broken_off'], /create table "broken_off"\.jobs/],
  ] as const)('%j: a connection that breaks in the middle is one line', async ([args, pattern]) => {
    const proxy = await startFaultProxy(db.url);
    const dropped = proxy.dropReply(pattern);
    const run = await unbroker(args, { DATABASE_URL: proxy.url, UNBROKER_LOG_LEVEL: 'silent' });
    await dropped;
    await proxy.close();
    expectRefusal(run, 1, 'server-unreachable', 'Check host and port');
  });

  test('a standby, or a read-only default: said as such', async () => {
    const url = new URL(db.url);
    url.searchParams.set('options', '-c default_transaction_read_only=on');
    expectRefusal(
      await unbroker(['migrate', '--schema', 'read_only'], { DATABASE_URL: url.href }),
      1,
      'database-read-only',
      'primary',
    );
  });
});

describe.concurrent('the config file', () => {
  test.for<[string, string, string, RegExp | string]>([
    ['not.there.ts', '', 'config-unreadable', 'Check the path'],
    ['syntax.ts', 'export default {', 'config-unreadable', 'runs by itself'],
    [
      'throws.ts',
      `throw new Error('postgres://u:${CANARY}@h/d is down')`,
      'config-unreadable',
      'runs by itself',
    ],
    ['nothing.ts', 'export const other = 1;', 'config-invalid', 'not a known key'],
    ['list.json', '[1]', 'config-invalid', 'an object'],
    ['typo.ts', `export default { wroker: { concurrency: 3 } };`, 'config-invalid', 'did you mean worker?'],
    [
      'nested.ts',
      `export default { worker: { concurency: 3 } };`,
      'config-invalid',
      'did you mean concurrency?',
    ],
    ['range.ts', `export default { worker: { leaseMs: 5 } };`, 'config-invalid', 'from 100 to 86400000'],
    [
      'secret.ts',
      `export default { databaseUrlEnv: 'postgres://u:${CANARY}@h/d' };`,
      'config-invalid',
      'secrets stay out of files',
    ],
    ['schema.ts', `export default { schema: 'Public' };`, 'schema-invalid', '1 to 63'],
    ['proto.json', '{"__proto__": {"schema": "x"}}', 'config-invalid', 'not a known key'],
  ])('%s', async ([name, text, code, line]) => {
    const path = text === '' ? join(folder, name) : configured(name, text);
    expectRefusal(await unbroker(['jobs', 'stats', '--config', path]), 2, code, line);
  });

  test('a folder, a file that everybody may write, a link', async () => {
    mkdirSync(join(folder, 'folder.ts'));
    const writable = configured('writable.ts', 'export default {};');
    chmodSync(writable, 0o666);
    const target = configured('target.ts', 'export default {};');
    symlinkSync(target, join(folder, 'link.ts'));
    const [directory, open, link, fine] = await Promise.all([
      unbroker(['jobs', 'stats', '--config', 'folder.ts']),
      unbroker(['jobs', 'stats', '--config', 'writable.ts']),
      unbroker(['jobs', 'stats', '--config', 'link.ts']),
      unbroker(['jobs', 'stats', '--config', 'target.ts']),
    ]);
    expectRefusal(directory, 2, 'config-unreadable', 'Check the path');
    expectRefusal(open, 2, 'config-unsafe', 'chmod o-w');
    expectRefusal(link, 2, 'config-unsafe', 'a plain file');
    expect(fine.code).toBe(0);
  });

  test('found by itself in the working directory, schema and names of variables taken from it', async () => {
    const cwd = mkdtempSync(join(folder, 'cwd-'));
    writeFileSync(
      join(cwd, 'unbroker.config.ts'),
      `export default { schema: 'from_config' as string, databaseUrlEnv: 'MY_URL' };`,
    );
    const run = await unbroker(['migrate', '--json'], { DATABASE_URL: undefined, MY_URL: db.url }, cwd);
    expect(run.code).toBe(0);
    expect(JSON.parse(run.stdout)).toMatchObject({ schema: 'from_config', from: 0 });
  });

  test.for<[string, string, string]>([
    ['missing', '', 'handlers-missing'],
    ['unreadable', 'export default {', 'handlers-unreadable'],
    ['empty', 'export default {};', 'handlers-invalid'],
    ['text', `export default { a: 'b' };`, 'handlers-invalid'],
    ['list', 'export default [];', 'handlers-invalid'],
  ])('handlers: %s', async ([name, text, code]) => {
    const cwd = mkdtempSync(join(folder, 'handlers-'));
    if (text !== '') writeFileSync(join(cwd, 'handlers.mjs'), text);
    writeFileSync(
      join(cwd, 'unbroker.config.mjs'),
      text === '' ? 'export default {};' : `export default { handlers: './handlers.mjs' };`,
    );
    expectRefusal(await unbroker(['work'], {}, cwd), 2, code, /\[/);
    expect(name).toBeTruthy();
  });
});

describe('output', () => {
  test('a reader who leaves early ends it quietly', async () => {
    await db.put('pipe', Array(1_000).fill({ text: 'x'.repeat(500) }));
    const args = ['jobs', 'list', '--limit', '1000', '--json'];
    const options = { cwd: folder, env: { DATABASE_URL: db.url } };
    const process = startCli(args, options);
    const pipe = fileURLToPath(new URL('../support/pipe.mjs', import.meta.url));
    const closing = startProcess(globalThis.process.execPath, [pipe, cliFile, ...args], options);
    const [whole, early] = await Promise.all([process.waitForExit(90_000), closing.waitForExit(90_000)]);
    expect(whole.code).toBe(0);
    expect(early.code).toBe(0);
    expect(closing.stderr).toBe('');
    await db.clear();
  });

  test('a full disk under the answer is one line, and one under the errors changes no status', async () => {
    const [program, ...flags] = cliFile.endsWith('.ts') ? ['--import', 'tsx', cliFile] : [cliFile];
    const start = (command: string, into: string): StartedProcess =>
      startProcess(
        '/bin/sh',
        [
          ...['-c', `exec "$0" "$@" ${into}`, process.execPath, program ?? '', ...flags],
          ...command.split(' '),
        ],
        { env: { DATABASE_URL: db.url } },
      );
    const [answer, error] = [start('jobs stats', '> /dev/full'), start('nosuch', '2> /dev/full')];
    const [full, usage] = await Promise.all([answer.waitForExit(90_000), error.waitForExit(90_000)]);
    expect(answer.stderr).toMatch(
      /^unbroker: The answer cannot be written \(ENOSPC\)\. .* \[answer-unwritten\]\n$/,
    );
    expect([full.code, usage.code]).toEqual([1, 2]);
  });

  test('a hostile kind, source or error cannot steer the terminal; the payload neither', async () => {
    const evil = 'k\u001b]0;owned\u0007\r\n\u202e';
    const [id] = (await db.put(evil, [{ p: evil }], { source: evil, maxAttempts: 1 })) as [string];
    const [job] = await db.claim(evil);
    if (job === undefined) throw new Error('not claimed');
    await db.store.discard(db.pool, [{ ...job, name: 'E', message: evil }]);
    const [list, show, stats] = await Promise.all([
      unbroker(['jobs', 'list']),
      unbroker(['jobs', 'show', id]),
      unbroker(['jobs', 'stats']),
    ]);
    for (const { stdout, code } of [list, show, stats]) {
      expect(code).toBe(0);
      // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what must not be there
      expect(stdout).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f\u202e]/);
    }
    await db.clear();
  });

  test('a debug log adds the stack and still no secret', async () => {
    const run = await unbroker(['migrate'], {
      DATABASE_URL: `postgres://u:${CANARY}@127.0.0.1:1/d`,
      UNBROKER_LOG_LEVEL: 'debug',
    });
    expect(run.code).toBe(1);
    expect(run.stderr).toContain('ECONNREFUSED');
    expect(run.stderr).not.toContain(CANARY);
  });

  test('a level that is none is bad input', async () => {
    const run = await unbroker(['jobs', 'stats'], { UNBROKER_LOG_LEVEL: 'inof' });
    expectRefusal(
      run,
      2,
      'config-invalid',
      /^unbroker: UNBROKER_LOG_LEVEL is not valid.*did you mean info\? \[/,
    );
  });
});

describe('jobs', () => {
  async function dead(count: number): Promise<string[]> {
    const ids = await db.put('a', Array(count).fill({ n: 1 }), { maxAttempts: 1, source: 'http:v2' });
    const jobs = await db.claim('a');
    await db.store.discard(
      db.pool,
      jobs.map((job) => ({ ...job, name: 'E', message: 'm' })),
    );
    return ids;
  }

  test('retry, discard and cancel change what they may, name what they leave, and say so by their status', async () => {
    const [one, two] = (await dead(2)) as [string, string];
    const [ready] = (await db.put('b', [1])) as [string];
    const mixed = await unbroker(['jobs', 'retry', one, ready, '424242', '--attempts', '3', '--json']);
    expect(mixed.code).toBe(1);
    expect(JSON.parse(mixed.stdout)).toEqual({ retried: [one], unchanged: [ready, '424242'] });
    expect(await db.job(one)).toMatchObject({
      state: 'ready',
      attempts: 1,
      maxAttempts: 4,
      finishedAt: null,
    });
    const [cancelled, discarded] = await Promise.all([
      unbroker(['jobs', 'cancel', one, one]),
      unbroker(['jobs', 'discard', ready]),
    ]);
    expect([cancelled.code, discarded.code]).toEqual([0, 0]);
    expect(cancelled.stdout).toContain('1 cancelled.');
    expect([(await db.job(one)).state, (await db.job(ready)).state, (await db.job(two)).state]).toEqual([
      'cancelled',
      'dead',
      'dead',
    ]);
    await db.clear();
  });

  test('list filters and pages, show shows, a missing one is bad input', async () => {
    const ids = await dead(3);
    const [json, page, show, missing] = await Promise.all([
      unbroker([
        'jobs',
        'list',
        '--state',
        'dead',
        '--kind',
        'a',
        '--source',
        'http:',
        '--limit',
        '2',
        '--json',
      ]),
      unbroker(['jobs', 'list', '--before', ids[1] ?? '', '--json']),
      unbroker(['jobs', 'show', ids[0] ?? '', '--json']),
      unbroker(['jobs', 'show', '987654321']),
    ]);
    const idsOf = (run: Run) =>
      (JSON.parse(run.stdout) as { jobs: { id: string }[] }).jobs.map(({ id }) => id);
    expect(idsOf(json)).toEqual([ids[2], ids[1]]);
    expect(idsOf(page)).toEqual([ids[0]]);
    expect(JSON.parse(show.stdout)).toMatchObject({
      id: ids[0],
      state: 'dead',
      payloadText: '{"n": 1}',
      errors: [{ name: 'E' }],
    });
    expectRefusal(missing, 2, 'job-missing', 'unbroker jobs list');
    await db.clear();
  });

  test('show cuts a long error or result in its tables, and prints it whole below', async () => {
    const [id] = (await db.put('a', [1], { maxAttempts: 1 })) as [string];
    const message = `it said ${'very much '.repeat(20)}end`;
    const jobs = await db.claim('a');
    await db.store.discard(
      db.pool,
      jobs.map((job) => ({ ...job, name: 'E', message })),
    );
    const { stdout } = await unbroker(['jobs', 'show', id]);
    expect(stdout).toContain(`\nattempt 1: ${message}\n`);
    expect(stdout).toMatch(/│ 1 +│ \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z │ E +│ it said .*… │/);
    await db.clear();
  });

  test('migrate --sql prints what psql would run, and asks no database', async () => {
    const run = await unbroker(['migrate', '--sql', '--schema', 'printed'], { DATABASE_URL: undefined });
    expect(run.code).toBe(0);
    expect(run.stdout).toContain('create table "printed".jobs');
    expect(run.stdout).not.toContain('{schema}');
  });
});
