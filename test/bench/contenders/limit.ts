/**
 * The yardstick: a hand-written loop on unbroker's own table and indexes, as such loops are written, and tuned. One connection
 * claims 1,000 at a time, the other marks 1,000 done and keeps them (500 at a time were 6 % slower); a batch is marked while the next is claimed (the same
 * two connections each claiming and marking in turn needed 2 us more a job: they step over each other's locks). It has
 * no fence, no retries, no leases to extend, no signals and no metrics, so a product cannot reach 1.0 of it. It joins by id, as
 * such loops do; by places, as our claim does, its claim would take 4.0 us instead of 5.3. A slow yardstick would flatter, so
 * claim.ts compares it with graphile-worker.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { type Contender, KIND, type Payload } from '../contender.js';
import { unbroker } from './unbroker.js';

const CLAIM = 1_000;
/** One connection polls this often while there is nothing to do: fast, and more than a product may ask of a server. */
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
  where kind = $1 and finished_at is null and state = 'ready' and cron is null and not solo and ordering_key is null and priority = 0 and run_at <= now()
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

  async enqueuer(url) {
    const own = await connect(url);
    return {
      enqueue: (client, payload) => client.query({ ...insert, values: [KIND, JSON.stringify(payload)] }),
      enqueueMany: (payloads) =>
        own.query({ ...insertMany, values: [KIND, payloads.map((payload) => JSON.stringify(payload))] }),
      close: () => own.end(),
    };
  },

  async work(url, _profile, onJob) {
    const [claimer, finisher] = await Promise.all([connect(url), connect(url)]);
    let stopping = false;
    const loop = async (): Promise<void> => {
      let finishing: Promise<unknown> = Promise.resolve();
      let claiming = claimer.query({ ...claim, values: [KIND] });
      while (!stopping) {
        const { rows } = await claiming;
        if (rows.length === 0) await sleep(IDLE_POLL_MS);
        claiming = claimer.query({ ...claim, values: [KIND] });
        if (rows.length === 0) continue;
        const ids = handle(rows, onJob);
        await finishing;
        finishing = finisher.query({ ...complete, values: [ids] });
      }
      await Promise.all([claiming, finishing]);
    };
    const looping = loop();
    return {
      async stop() {
        stopping = true;
        await looping;
        await Promise.all([claimer.end(), finisher.end()]);
      },
    };
  },
};

async function connect(url: string): Promise<pg.Client> {
  const client = new pg.Client({
    connectionString: url,
    options: PINNED.map((setting) => `-c ${setting}`).join(' '),
  });
  await client.connect();
  return client;
}

/** Runs the jobs; answers their ids as a bigint[] literal. */
function handle(
  rows: readonly { readonly id: string; readonly payload: Payload }[],
  onJob: (payload: Payload) => void,
): string {
  let ids = '';
  for (const row of rows) {
    onJob(row.payload);
    ids += ids === '' ? row.id : `,${row.id}`;
  }
  return `{${ids}}`;
}
