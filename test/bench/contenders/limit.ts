/**
 * The yardstick: a hand-written loop on unbroker's own table and indexes, as fast as we can make it. It claims 500, runs
 * a no-op, marks 500 done and keeps them. It has no fence, no retries, no leases to extend, no signals and no metrics,
 * so a product cannot reach 1.0 of it; a slow yardstick would flatter, so claim.ts compares it with graphile-worker.
 */
import pg from 'pg';
import { batches, type Contender, KIND, type Payload } from '../contender.js';
import { unbroker } from './unbroker.js';

const CLAIM = 500;
const CONNECTIONS = 2;
const IDLE_POLL_MS = 2;

/** Pins the plan for the whole connection, which a hand-written loop may and a library behind PgBouncer may not. */
const PINNED = [
  'jit=off',
  'plan_cache_mode=force_generic_plan',
  'enable_seqscan=off',
  'enable_bitmapscan=off',
  'enable_hashjoin=off',
  'enable_mergejoin=off',
  'enable_sort=off',
  'max_parallel_workers_per_gather=0',
];

const claim = {
  name: 'claim',
  text: `
with candidates as materialized (
  select id
  from unbroker.jobs
  where kind = $1 and state = 'ready' and cron is null and not solo and priority = 0 and run_at <= now()
  order by run_at, id
  for update skip locked
  limit ${CLAIM}
)
update unbroker.jobs j
set state = 'running', attempts = j.attempts + 1, lease_token = 1, locked_until = now() + interval '30 s', locked_by = 'limit'
from candidates c
where j.id = c.id
returning j.id, j.payload`,
};

const complete = {
  name: 'complete',
  text: `
update unbroker.jobs
set state = 'done', finished_at = now(), lease_token = null, locked_until = null, locked_by = null
where id = any ($1::bigint[])`,
};

const insert = {
  name: 'insert',
  text: 'insert into unbroker.jobs (kind, payload) values ($1, $2)',
};

const insertMany = {
  name: 'insert-many',
  text: 'insert into unbroker.jobs (kind, payload) select $1, payload::jsonb from unnest($2::text[]) as payload',
};

export const limit: Contender = {
  unfinished: unbroker.unfinished,
  install: unbroker.install,

  async enqueueMany(url, jobs) {
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    for (const payloads of batches(jobs)) {
      await client.query({ ...insertMany, values: [KIND, payloads.map((p) => JSON.stringify(p))] });
    }
    await client.end();
  },

  async enqueuer() {
    return {
      enqueue: (client, payload) => client.query({ ...insert, values: [KIND, payload] }),
      close: async () => {},
    };
  },

  async work(url, profile, onJob) {
    let stopping = false;
    const connections = profile === 'drain' ? CONNECTIONS : 1;
    const loops = Array.from({ length: connections }, async () => {
      const client = new pg.Client({
        connectionString: url,
        options: PINNED.map((setting) => `-c ${setting}`).join(' '),
      });
      await client.connect();
      while (!stopping) if (!(await turn(client, onJob))) await sleep(IDLE_POLL_MS);
      await client.end();
    });
    return {
      async stop() {
        stopping = true;
        await Promise.all(loops);
      },
    };
  },
};

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** False when there was nothing to do. */
async function turn(client: pg.Client, onJob: (payload: Payload) => void): Promise<boolean> {
  const { rows } = await client.query({ ...claim, values: [KIND] });
  if (rows.length === 0) return false;
  let ids = '{';
  for (const row of rows) {
    onJob(row.payload);
    ids += ids === '{' ? row.id : `,${row.id}`;
  }
  await client.query({ ...complete, values: [`${ids}}`] });
  return true;
}
