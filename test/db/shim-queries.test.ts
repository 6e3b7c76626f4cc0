/** The HTTP doors' own queries: by the index that was made for them, bounded, and nothing but what was meant. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { createOperatorStatements } from '../../src/jobs/operator-statements.js';
import { createStore } from '../../src/jobs/store.js';
import { createRequests } from '../../src/shims/requests.js';
import { type FreshDatabase, freshMigratedDatabase } from '../support/services.js';

let database: FreshDatabase;
const store = createStore();

beforeAll(async () => {
  database = await freshMigratedDatabase();
  await database.pool.query(`
    insert into unbroker.jobs (kind, payload, source)
    select 'notify.email', jsonb_build_object('to', 'a@b.example', 'reference', 'ref-' || n), 'trio:notification'
    from generate_series(1, 20000) as n`);
  await database.pool.query('vacuum analyze unbroker.jobs');
});
afterAll(() => database?.close());

async function planOf(text: string, values: unknown[]): Promise<string> {
  const { rows } = await database.pool.query(`explain (costs off) ${text}`, values);
  return rows.map((row: Record<string, unknown>) => String(row['QUERY PLAN'])).join('\n');
}

it('a reference is found by its index', async () => {
  const { searchReference } = createOperatorStatements('unbroker');
  expect(await planOf(searchReference, ['ref-17', null, null, null, 50, null])).toContain('jobs_reference');
  expect(
    (await store.search(database.pool, { reference: 'ref-17', limit: 5 })).map((job) => job.payloadText),
  ).toEqual(['{"to": "a@b.example", "reference": "ref-17"}']);
});

it('a tag is found by its index', async () => {
  const { searchTag } = createOperatorStatements('unbroker');
  await database.pool.query(
    `insert into unbroker.jobs (kind, payload) values ('notify.email', '{"to":"a@b.example","tags":["x"]}')`,
  );
  await database.pool.query('analyze unbroker.jobs');
  expect(await planOf(searchTag, ['x', null, null, null, 50, null])).toContain('jobs_tags');
});

it('a row with attempts from elsewhere runs out where it would have', async () => {
  const job = { kind: 'relay.http', payloadText: '{}', maxAttempts: 3, delayMs: 60_000 };
  const error = { name: 'Error', message: 'a\u0000b' };
  const id = await store.enqueueCarried(database.pool, job, { attempts: 2, error, dead: false });
  const dead = await store.enqueueCarried(database.pool, job, { attempts: 3, error: null, dead: true });
  expect(await store.show(database.pool, id)).toMatchObject({
    state: 'ready',
    attempts: 2,
    maxAttempts: 3,
    errors: [{ attempt: 2, name: 'Error', message: 'a\u2400b' }],
  });
  expect(await store.show(database.pool, dead)).toMatchObject({ state: 'dead', attempts: 3, errors: [] });
  expect(await store.countDead(database.pool, 10)).toBe(1);
  expect(await store.dismiss(database.pool, [id, dead])).toEqual([dead]);
  expect(await store.countDead(database.pool, 10)).toBe(0);
  expect(await store.runNow(database.pool, [id, dead])).toEqual([id]);
  expect((await store.show(database.pool, id))?.runAt.getTime()).toBeLessThanOrEqual(Date.now() + 1_000);
});

it('answers are pruned when they have expired, some at a time', async () => {
  const requests = createRequests('unbroker');
  for (let n = 0; n < 7; n += 1)
    await requests.claim(database.pool, { principal: 'p', key: `k${n}`, bodyHash: Buffer.from('x') });
  await database.pool.query(
    "update unbroker.requests set expires_at = now() - interval '1 s' where key < 'k5'",
  );
  expect(await requests.prune(database.pool, 3)).toBe(3);
  expect(await requests.prune(database.pool, 3)).toBe(2);
  expect(await requests.prune(database.pool, 3)).toBe(0);
  const { rows } = await database.pool.query('select key from unbroker.requests order by key');
  expect(rows).toEqual([{ key: 'k5' }, { key: 'k6' }]);
});
