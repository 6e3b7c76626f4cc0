/** `unbroker serve` as a process: starting, stopping, being killed, losing its database, a team's own contract. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { startCli } from '../support/cli.js';
import type { StartedProcess } from '../support/processes.js';
import { type FreshDatabase, freshMigratedDatabase } from '../support/services.js';
import { until } from '../support/until.js';
import { rawPost, sendRaw } from './shim-world.js';

const ROOT = join(import.meta.dirname, '..', '..');
/** To start, on a machine that does much else. */
const START_MS = 60_000;

// Most start a process or more; a busy machine takes its time for that.
vi.setConfig({ testTimeout: 180_000 });

let database: FreshDatabase;
let folder: string;
const started: StartedProcess[] = [];

beforeAll(async () => {
  database = await freshMigratedDatabase();
  folder = mkdtempSync(join(tmpdir(), 'unbroker-serve-'));
});
afterEach(async () => {
  for (const process of started.splice(0)) await process.kill();
});
afterAll(async () => {
  await database?.close();
  rmSync(folder, { recursive: true, force: true });
});

function serve(
  args: readonly string[] = [],
  config: object = {},
  env: Record<string, string> = {},
): StartedProcess {
  const file = join(folder, `config-${Math.random().toString(36).slice(2)}.json`);
  writeFileSync(file, JSON.stringify(config));
  const process = startCli(['serve', '--port', '0', '--config', file, ...args], {
    cwd: folder,
    env: { DATABASE_URL: database.url, UNBROKER_LOG_LEVEL: 'info', ...env },
  });
  started.push(process);
  return process;
}

async function urlOf(process: StartedProcess): Promise<string> {
  const [, url = ''] = await process.waitFor(/^unbroker listening on (http:\S+)$/m, START_MS);
  return url;
}

const post = (url: string, body: object, headers: Record<string, string> = {}) =>
  fetch(`${url}/notifications`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(20_000),
  });

const MAIL = { to: 'ann@example.org', body: 'hi' };

/** Keeps posting until told to stop; the ids that were answered with 202, and how often there was another answer. */
function keepPosting(url: string, clients: number) {
  const accepted: string[] = [];
  const others: string[] = [];
  let stopped = false;
  const client = async (): Promise<void> => {
    while (!stopped) {
      try {
        const response = await post(url, MAIL);
        const { id } = (await response.json()) as { id?: string };
        if (response.status === 202 && id !== undefined) accepted.push(id);
        else others.push(String(response.status));
      } catch (error) {
        others.push(error instanceof Error ? error.name : 'error');
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    }
  };
  const done = Promise.all(Array.from({ length: clients }, client));
  return {
    accepted,
    others,
    async stop() {
      stopped = true;
      await done;
    },
  };
}

async function rowCount(): Promise<number> {
  const { rows } = await database.pool.query<{ n: number }>('select count(*)::int as n from unbroker.jobs');
  return rows[0]?.n ?? -1;
}

async function missing(ids: readonly string[]): Promise<string[]> {
  const { rows } = await database.pool.query<{ id: string }>(
    'select id::text from unnest($1::bigint[]) as answered (id) where id not in (select id from unbroker.jobs)',
    [ids],
  );
  return rows.map(({ id }) => id);
}

describe('starting', () => {
  it('says where it listens, for people and for programs', async () => {
    expect((await post(await urlOf(serve()), MAIL)).status).toBe(202);
    const [, line = ''] = await serve(['--json']).waitFor(/^(\{"url":.*\})$/m, START_MS);
    expect((await post((JSON.parse(line) as { url: string }).url, MAIL)).status).toBe(202);
  });

  it.each<[string, readonly string[], object, string]>([
    ['beyond this machine without keys', ['--host', '0.0.0.0'], {}, 'keys-needed'],
    ['a key that is not set', [], { serve: { keys: [{ name: 'a', env: 'NO_SUCH_KEY' }] } }, 'key-missing'],
    ['no such port', ['--port', '65536'], {}, 'config-invalid'],
    [
      'an address that is not ours',
      ['--host', '127.0.0.1', '--port', '1'],
      { serve: { contracts: ['./none.ts'] } },
      'contract-unreadable',
    ],
    ['a typo in the section', [], { serve: { prot: 1 } }, 'config-invalid'],
    ['templates that are not there', [], { notify: { templates: './none' } }, 'templates-missing'],
  ])('%s: exit 2 and one line', async (_name, args, config, code) => {
    const process = serve(args, config);
    expect((await process.waitForExit(START_MS)).code).toBe(2);
    expect(process.stderr.trim().split('\n').at(-1)).toMatch(new RegExp(`^unbroker: .*\\[${code}\\]$`));
    expect(process.stdout).toBe('');
  });

  it('a port that is taken: exit 2', async () => {
    const first = await urlOf(serve());
    const second = serve(['--port', new URL(first).port]);
    expect((await second.waitForExit(START_MS)).code).toBe(2);
    expect(second.stderr).toContain('[listen-failed]');
  });
});

describe('stopping', () => {
  it('SIGTERM: not ready, takes no new connection, finishes what it has, ends with 0', async () => {
    const process = serve();
    const url = await urlOf(process);
    const blocker = await database.pool.connect();
    await blocker.query('begin; lock table unbroker.jobs in exclusive mode');
    const pending = post(url, MAIL);
    // Two on one connection: what is done is answered, before the connection ends.
    const text = JSON.stringify(MAIL);
    const port = Number(new URL(url).port);
    const two = sendRaw(port, [rawPost('/notifications', text), rawPost('/notifications', text)], {
      untilClosed: true,
      maxMs: 20_000,
    });
    const before = await rowCount();
    await until('the insert waits', async () => {
      const { rows } = await database.pool.query(
        "select from pg_locks where not granted and relation = 'unbroker.jobs'::regclass",
      );
      return rows.length > 0;
    });
    process.signal('SIGTERM');
    await until('no new connection is taken', async () =>
      fetch(`${url}/livez`).then(
        () => false,
        () => true,
      ),
    );
    expect(process.running).toBe(true);
    await blocker.query('commit');
    blocker.release();
    const response = await pending;
    expect(response.status).toBe(202);
    const { id } = (await response.json()) as { id: string };
    expect(await missing([id])).toEqual([]);
    const { status, body, closed } = await two;
    expect([status, body.includes('HTTP/1.1 202 '), closed]).toEqual([202, true, true]);
    expect((await process.waitForExit(START_MS)).code).toBe(0);
    expect(await rowCount()).toBe(before + 3);
  });

  it('killed under load: all that was acknowledged is stored', async () => {
    for (let round = 0; round < 3; round += 1) {
      const process = serve();
      const load = keepPosting(await urlOf(process), 8);
      const enough = load.accepted.length + 40 + round * 37;
      await until('some are in', () => load.accepted.length >= enough);
      await process.kill('SIGKILL');
      await load.stop();
      expect(await missing(load.accepted)).toEqual([]);
    }
  });
});

describe('a database in trouble', () => {
  it('connections cut under load: answers 503, recovers, loses nothing that it acknowledged', async () => {
    const process = serve();
    const load = keepPosting(await urlOf(process), 8);
    for (let cut = 1; cut <= 5; cut += 1) {
      await until('some are in', () => load.accepted.length >= cut * 30);
      await database.pool.query(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'unbroker' and datname = current_database()",
      );
    }
    const before = load.accepted.length;
    await until('it goes on', () => load.accepted.length >= before + 50);
    await load.stop();
    expect(process.running).toBe(true);
    expect(new Set(load.others)).toEqual(new Set(load.others.length > 0 ? ['503'] : []));
    expect(await missing(load.accepted)).toEqual([]);
  });

  it('no connection to be had: not ready but alive, then ready again', async () => {
    const process = serve();
    const url = await urlOf(process);
    expect((await fetch(`${url}/readyz`)).status).toBe(200);
    const elsewhere = new URL(database.url);
    elsewhere.pathname = '/postgres';
    const admin = new pg.Client({ connectionString: elsewhere.href });
    await admin.connect();
    await admin.query(`alter database ${database.name} with allow_connections false`);
    try {
      await admin.query(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'unbroker' and datname = $1",
        [database.name],
      );
      await until('it is not ready', async () => (await fetch(`${url}/readyz`)).status === 503);
      expect((await fetch(`${url}/livez`)).status).toBe(200);
      const refused = await post(url, MAIL);
      expect(refused.status).toBe(503);
    } finally {
      await admin.query(`alter database ${database.name} with allow_connections true`);
      await admin.end();
    }
    await until('it is ready', async () => (await fetch(`${url}/readyz`)).status === 200);
    expect((await post(url, MAIL)).status).toBe(202);
  });
});

it('a team mounts its own contract beside ours', async () => {
  writeFileSync(
    join(folder, 'billing.contract.ts'),
    `import { defineContract, jsonResponse, objectOf, Refusal, route } from '${join(ROOT, 'src', 'index.ts')}';
     export default defineContract({
       name: 'billing', service: 'notification', deliveries: [],
       errors: (refusal) => ({ status: 200, headers: { 'content-type': 'text/plain' }, body: 'Error: ' + refusal.detail }),
       routes: [route({
         method: 'POST', path: '/v1/bills',
         parse({ body }) {
           const fields = objectOf(body, ['number', 'amount']);
           const number = fields.line('number', 50);
           if (number === undefined) throw new Refusal(400, 'invalid', 'number is missing');
           return { type: 'enqueue', jobs: [{ kind: 'bill.send', payloadText: fields.node.raw, dedupeKey: number.value }] };
         },
         render: ({ enqueued }) => jsonResponse(200, JSON.stringify({ bill: enqueued[0]?.id })),
       })],
     });`,
  );
  const url = await urlOf(serve([], { serve: { contracts: ['trio', './billing.contract.ts'] } }));
  const bill = (body: string) =>
    fetch(`${url}/v1/bills`, { method: 'POST', headers: { 'content-type': 'application/json' }, body });
  const first = await bill('{"number":"B-1","amount":12345678901234567890.10}');
  expect(first.status).toBe(200);
  const { bill: id } = (await first.json()) as { bill: string };
  expect(await (await bill('{"number":"B-1","amount":1}')).json()).toEqual({ bill: id });
  const { rows } = await database.pool.query<{ text: string }>(
    'select payload::text as text from unbroker.jobs where id = $1',
    [id],
  );
  expect(rows[0]?.text).toBe('{"amount": 12345678901234567890.10, "number": "B-1"}');
  const wrong = await bill('{"amount":1}');
  expect([wrong.status, wrong.headers.get('content-type'), await wrong.text()]).toEqual([
    200,
    'text/plain',
    'Error: number is missing',
  ]);
  expect(await (await bill('{"number":"B-2","extra":1}')).text()).toContain(
    'Error: there is an unknown field',
  );
  expect((await post(url, MAIL)).status).toBe(202);
});
