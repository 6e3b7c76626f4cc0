/**
 * The statements of the way back, by name, on the drain's own tables and on the jobs that it made. Each write carries the
 * holder of the run's lease; a job is touched only while nobody has touched it since the drain, or under the lease token
 * that was drawn for its way back.
 */
import type { Queryable } from '../../src/jobs/job.js';
import { plainArray, textArray } from '../../src/jobs/pg-array.js';
import { quoteSchema } from '../../src/jobs/schema-name.js';
import type { Outcome } from './mapping.js';

export interface DrainedGroup {
  readonly group: string;
  /** Of drains and bridges, oldest first. */
  readonly runs: readonly string[];
  /** Streams left out: they keep what was read. */
  readonly queues: readonly string[];
  /** Out of delayed-message tables: what is not due yet would come too early in a queue, so it stays. */
  readonly timed: boolean;
}

/** A message that may go back: its job is as the drain made it. */
export interface Candidate {
  readonly batch: string;
  readonly position: number;
  readonly queue: string;
  readonly exchange: string;
  readonly routingKey: string;
  readonly outcome: Outcome;
  readonly properties: Buffer;
  readonly body: Buffer;
  /** Until the job is due, by the database's clock; 0 when it is, null when it does not wait to be run. */
  readonly remainingMs: number | null;
}

export interface CandidateFilter {
  readonly runs: readonly string[];
  /** Null: all, those without a job among them. */
  readonly kinds: readonly string[] | null;
  /** False: jobs that are not due yet stay. */
  readonly delayed: boolean;
}

export interface Moving {
  readonly number: number;
  readonly queue: string;
}

/** A batch to look for candidates in. */
export interface CandidateBatch {
  readonly id: string;
  /** It came out of a delayed-message table, and not all of its entries are due. */
  readonly early: boolean;
}

/** Why jobs of a group are not given back, with how many and the first ids. */
export interface KeptRow {
  readonly reason: 'finished' | 'running' | 'edited' | 'pruned' | 'left';
  readonly count: number;
  readonly jobs: readonly string[];
}

/** An undo's run under the lease of its holder. */
export interface UndoRun {
  readonly id: string;
  readonly holder: string;
  readonly leaseMs: number;
}

interface Claim {
  readonly row: Candidate;
  readonly hash: bigint;
  readonly stripped: readonly string[];
}

export type UndoLedger = ReturnType<typeof createUndoLedger>;

const LISTED = 20;

export function createUndoStatements(schema: string) {
  const s = quoteSchema(schema);
  const runs = `${s}.drain_runs`;
  const batches = `${s}.drain_batches`;
  const ledger = `${s}.drain_ledger`;
  const moves = `${s}.drain_moves`;
  const jobs = `${s}.jobs`;
  const lease = (ms: string) => `clock_timestamp() + ${ms} * interval '1 millisecond'`;
  const noLease = 'lease_token = null, locked_until = null, locked_by = null, on_lease_expired = null';
  /** Nobody has written the job since the drain did. A repeated import of the ledger row moves the row, hence the column. */
  const resting = `j.state in ('ready', 'dead', 'cancelled')`;
  const untouched = `j.xmin = coalesce(l.written_by, l.xmin) and ${resting}`;
  /** Under the token that was drawn for its way back, or parked by the reaper after its lease ran out. */
  const ours = (move: string) => `(
    (j.state = 'running' and j.lease_token = ${move}.lease_token)
    or (j.state = 'dead' and j.errors -> -1 ->> 'name' = 'lease-expired-parked'))`;
  const mine = `
mine as (
  update ${runs} set lease_expires_at = ${lease('$3')}
  where id = $1 and holder = $2 and finished_at is null
  returning id
)`;
  /** For share: two writes of one undo need not wait for each other, and a new holder waits for both. */
  const held = `
mine as (
  select id from ${runs} where id = $1 and holder = $2 and finished_at is null for share
)`;
  /**
   * The entries of a batch have no due time by row: a job that waits has its own, and all else (dead, unmapped, without a
   * job) stays until the last entry of its batch is due, so that nothing comes into a queue too early. `early`: SQL.
   */
  const eligible = (early: string) => `
    b.run = any ($1::bigint[]) and not exists (
      select from ${moves} m where m.batch = l.batch and m.position = l.position)
    and case when l.job is null then $2::text[] is null
        else ${untouched} and ($2::text[] is null or j.kind = any ($2))
          and ($3::boolean or j.state <> 'ready' or j.run_at <= now()) end
    and (j.state is not distinct from 'ready' or not ${early})`;
  const earlyBatches = `
select d.batch from ${s}.drain_delayed d where d.run = any ($1::bigint[]) and d.due_at > now()`;
  return {
    /** What was drained from a broker's virtual host. */
    groups: `
select r.group_name as "group", array_agg(distinct r.id::text) as runs, bool_or(r.mode = 'delayed') as timed,
       array(select distinct member.name from ${runs} each, unnest(each.queues) as member (name)
             where each.broker = $1 and each.vhost = $2 and each.group_name = r.group_name and each.mode <> 'undo'
               and not exists (
                 select from ${s}.drain_offsets o where o.broker = $1 and o.vhost = $2 and o.queue = member.name)
             order by member.name) as queues
from ${runs} r
where r.broker = $1 and r.vhost = $2 and r.mode <> 'undo'
group by r.group_name order by r.group_name`,

    /** The open run of a group, and whether it left acks whose fate is unknown. */
    openRun: `
select r.id::text, r.mode, exists (
  select from ${batches} b where b.run = r.id and b.state in ('committed', 'back')) as unproved
from ${runs} r
where r.broker = $1 and r.vhost = $2 and r.group_name = $3 and r.finished_at is null`,

    /** How many may go back, by queue. */
    countCandidates: `
select l.queue, count(*)::float8 as count
from ${batches} b join ${ledger} l on l.batch = b.id left join ${jobs} j on j.id = l.job
where ${eligible(`b.id in (${earlyBatches})`)}
group by l.queue order by l.queue`,

    /** Batches that may hold messages of a queue, in order. A message that came back elsewhere after an interruption
     * belongs to the batch that took it last; what came out of a delayed-message table lay in no queue. */
    batches: `
with early as materialized (${earlyBatches})
select b.id::text, b.id in (select batch from early) as early
from ${batches} b join ${runs} r on r.id = b.run
where b.run = any ($1::bigint[]) and (b.queue = $2 or b.absorbed > 0 or r.mode = 'delayed')
order by b.id`,

    /** The next of a queue within one batch, in the order in which they lay there; at most $7, at most $8 bytes and one. */
    candidates: `
with page as materialized (
  select l.batch, l.position, octet_length(l.body) + octet_length(l.properties) as size,
         case when j.state = 'ready'
           then greatest(date_part('epoch', j.run_at - clock_timestamp()) * 1000, 0) end as remaining
  from ${batches} b join ${ledger} l on l.batch = b.id left join ${jobs} j on j.id = l.job
  where ${eligible('$9::boolean')}
    -- One batch at a time: over all of them each page would sort everything that is left.
    and b.id = $5::bigint and l.batch = $5::bigint and l.position > $6::integer and l.queue = $4
  order by l.position
  limit $7
),
fitting as (
  select page.*, sum(size) over (order by position) - size as before from page
)
select l.batch::text, l.position, l.queue, l.exchange, l.routing_key as "routingKey", l.outcome, l.properties, l.body,
       fitting.remaining as "remainingMs"
from fitting join ${ledger} l on l.batch = fitting.batch and l.position = fitting.position
where fitting.before <= $8
order by l.position`,

    /**
     * Leases the jobs of these messages, as a worker does, so that none runs them; a lease that runs out parks them. Those
     * that somebody took meanwhile are left out. Numbers them from $9; answers the numbers of those that go.
     */
    claim: `
with ${held},
input as materialized (
  select batch, position, hash, stripped, ($9::bigint + nth - 1)::integer as number
  from unnest($4::bigint[], $5::integer[], $6::bigint[], $7::text[])
    with ordinality as input (batch, position, hash, stripped, nth)
),
beside as materialized (
  select input.*, l.job, l.queue, l.written_by, l.xmin as ledger_xmin
  from input join ${ledger} l on l.batch = input.batch and l.position = input.position
),
held as materialized (
  select l.*, j.state, j.finished_at
  from beside l join ${jobs} j on j.id = l.job cross join mine
  where j.xmin = coalesce(l.written_by, l.ledger_xmin) and ${resting}
  order by j.id
  for update of j skip locked
),
leased as (
  update ${jobs} j
  set state = 'running', lease_token = (select nextval('${s}.lease_tokens')), locked_until = ${lease('$3')},
      locked_by = $8, on_lease_expired = 'park', finished_at = null, dead = null
  from held
  where j.id = held.job and j.state = held.state
  -- All that the next step needs: joining it again by number or job would compare every row with every other.
  returning held.*, j.lease_token
),
noted as (
  insert into ${s}.claims (token, ends_at, remaining, ids)
  select lease_token, ${lease('$3')}, count(*), array_agg(job) from leased group by lease_token
),
going as (
  insert into ${moves} (batch, position, undo, number, queue, job, lease_token, was, was_finished_at, hash, stripped)
  select l.batch, l.position, mine.id, l.number, l.queue, l.job, l.lease_token, l.state, l.finished_at, l.hash,
         nullif(l.stripped, '')
  from leased l cross join mine
  union all
  select l.batch, l.position, mine.id, l.number, l.queue, null, null, null, null, l.hash, nullif(l.stripped, '')
  from beside l cross join mine
  where l.job is null
  returning number
)
select (select count(*) from mine)::int as held, array(select number from going order by number) as numbers`,

    /**
     * After the confirms: marks $3 as moved and ends their jobs under their tokens; $4 were not taken, their jobs are again
     * what they were.
     */
    settle: `
with ${held},
moved as (
  update ${moves} m set state = 'moved', moved_at = clock_timestamp()
  from mine
  where m.undo = mine.id and m.state = 'moving' and m.number = any ($3::integer[])
  returning m.job, m.lease_token, m.queue
),
ended as (
  update ${jobs} j
  set state = 'cancelled', finished_at = clock_timestamp(), ${noLease}, dead = null,
      errors = coalesce(j.errors, '[]') || jsonb_build_object('at', clock_timestamp(), 'attempt', j.attempts,
        'name', 'given-back', 'message', 'given back to queue ' || left(moved.queue, 255) || ' by undo ' || $1)
  from moved
  where j.id = moved.job and ${ours('moved')}
  returning j.id
),
back as (
  delete from ${moves} m using mine
  where m.undo = mine.id and m.state = 'moving' and m.number = any ($4::integer[])
  returning m.*
),
released as (
  update ${jobs} j
  set state = back.was, finished_at = back.was_finished_at, ${noLease}, dead = nullif(back.was = 'dead', false),
      errors = case when j.state = 'running' then j.errors
                    when jsonb_array_length(j.errors) > 1 then j.errors - -1 end
  from back
  where j.id = back.job and ${ours('back')}
  returning j.id
),
stamped as (
  update ${ledger} l set written_by = pg_current_xact_id()::xid
  from back join released on released.id = back.job
  where l.batch = back.batch and l.position = back.position
)
select (select count(*) from mine)::int as held,
       (select count(job) from moved)::int - (select count(*) from ended)::int as "takenMeanwhile"`,

    /** Keeps the run's lease and those of the jobs that are on their way. */
    renew: `
with ${mine},
extended as (
  update ${jobs} j set locked_until = ${lease('$3')}
  from mine join ${moves} m on m.undo = mine.id and m.state = 'moving'
  where j.id = m.job and j.state = 'running' and j.lease_token = m.lease_token
)
select id::text from mine`,

    /** What was on its way, in the order of publishing. */
    moving: `
select number, queue from ${moves} where undo = $1 and state = 'moving' order by number`,

    /** How many an undo has given back. */
    countMoved: `
select count(*)::float8 as count from ${moves} where undo = $1 and state = 'moved'`,

    /** After a person's choice: the count from which the rest is reckoned. */
    rebase: `
update ${runs} set initial = $3, ambiguous = true
where id = $1 and holder = $2 and finished_at is null
returning id::text`,

    /** Jobs of a group that did not go back. */
    kept: `
with rest as (
  select l.job, case
    when j.id is null then 'pruned'
    when j.state = 'running' then 'running'
    when ${untouched} then 'left'
    when j.state in ('done', 'dead', 'cancelled') then 'finished'
    else 'edited' end as reason
  from ${batches} b join ${ledger} l on l.batch = b.id left join ${jobs} j on j.id = l.job
  where b.run = any ($1::bigint[]) and l.job is not null and not exists (
    select from ${moves} m where m.batch = l.batch and m.position = l.position)
)
select reason, count(*)::float8 as count, (array_agg(job::text order by job))[1:${LISTED}] as jobs
from rest group by reason order by reason`,

    /** What was changed of messages on their way, by word. */
    stripped: `
select word, count(*)::float8 as count
from ${moves} m, unnest(string_to_array(m.stripped, ' ')) as word
where m.undo = $1 and m.state = 'moved' group by word order by word`,

    /** Of what went back, how many a bridge had to write although they may have been there. */
    possibleDoubles: `
select count(*)::float8 as count
from ${moves} m join ${ledger} l on l.batch = m.batch and l.position = m.position
where m.undo = $1 and m.state = 'moved' and 'possible-double' = any (string_to_array(l.note, ' '))`,

    /**
     * A bridge must not take what was given back for what it has taken. By contents: the like of it in another queue is
     * forgotten, too, which at worst makes a second job of what is published there a second time; a key too many would make
     * none of what comes back.
     */
    forgetKeys: `
delete from ${s}.drain_keys k
using ${moves} m join ${ledger} l on l.batch = m.batch and l.position = m.position
where m.undo = $1 and m.state = 'moved' and k.fingerprint = l.fingerprint`,

    finish: `
update ${runs} set books = $3::jsonb, finished_at = clock_timestamp()
where id = $1 and holder = $2 and finished_at is null
returning id::text`,
  } as const;
}

export function createUndoLedger(schema: string) {
  const sql = createUndoStatements(schema);
  const rows = async <T>(db: Queryable, text: string, values: unknown[]): Promise<T[]> =>
    (await db.query(text, values)).rows as T[];
  const count = async (db: Queryable, text: string, values: unknown[]): Promise<number> =>
    (await rows<{ count: number }>(db, text, values))[0]?.count ?? 0;
  const filtered = ({ runs, kinds, delayed }: CandidateFilter): unknown[] => [runs, kinds, delayed];

  return {
    groups: (db: Queryable, broker: string, vhost: string) =>
      rows<DrainedGroup>(db, sql.groups, [broker, vhost]),

    async openRun(db: Queryable, broker: string, vhost: string, group: string) {
      type Open = { readonly id: string; readonly mode: string; readonly unproved: boolean };
      return (await rows<Open>(db, sql.openRun, [broker, vhost, group]))[0] ?? null;
    },

    countCandidates: (db: Queryable, filter: CandidateFilter) =>
      rows<{ queue: string; count: number }>(db, sql.countCandidates, filtered(filter)),

    batches: (db: Queryable, runs: readonly string[], queue: string) =>
      rows<CandidateBatch>(db, sql.batches, [runs, queue]),

    candidates: (
      db: Queryable,
      filter: CandidateFilter,
      queue: string,
      after: { readonly batch: CandidateBatch; readonly position: number },
      limits: { readonly rows: number; readonly bytes: number },
    ) =>
      rows<Candidate>(db, sql.candidates, [
        ...filtered(filter),
        ...[queue, after.batch.id, after.position, limits.rows, limits.bytes, after.batch.early],
      ]),

    /** Numbers, from `first`, of those that go; null when the run's lease is lost. */
    async claim(
      db: Queryable,
      run: UndoRun,
      claims: readonly Claim[],
      { first, worker }: { readonly first: number; readonly worker: string },
    ): Promise<number[] | null> {
      const values = [
        ...[run.id, run.holder, run.leaseMs],
        plainArray(claims.map(({ row }) => row.batch)),
        plainArray(claims.map(({ row }) => row.position)),
        plainArray(claims.map(({ hash }) => String(hash))),
        textArray(claims.map(({ stripped }) => stripped.join(' '))),
        ...[worker, first],
      ];
      const [answer] = await rows<{ held: number; numbers: number[] }>(db, sql.claim, values);
      return answer === undefined || answer.held === 0 ? null : answer.numbers;
    },

    /** Jobs whose lease somebody else has ended although their message went back; null when the run's lease is lost. */
    async settle(
      db: Queryable,
      run: UndoRun,
      moved: readonly number[],
      released: readonly number[],
    ): Promise<number | null> {
      const values = [run.id, run.holder, moved, released];
      const [answer] = await rows<{ held: number; takenMeanwhile: number }>(db, sql.settle, values);
      return answer === undefined || answer.held === 0 ? null : answer.takenMeanwhile;
    },

    renew: async (db: Queryable, id: string, holder: string, leaseMs: number) =>
      (await rows(db, sql.renew, [id, holder, leaseMs])).length > 0,

    moving: (db: Queryable, id: string) => rows<Moving>(db, sql.moving, [id]),

    countMoved: (db: Queryable, id: string) => count(db, sql.countMoved, [id]),

    rebase: async (db: Queryable, id: string, holder: string, initial: number) =>
      (await rows(db, sql.rebase, [id, holder, initial])).length > 0,

    kept: (db: Queryable, runs: readonly string[]) => rows<KeptRow>(db, sql.kept, [runs]),

    stripped: (db: Queryable, id: string) => rows<{ word: string; count: number }>(db, sql.stripped, [id]),

    possibleDoubles: (db: Queryable, id: string) => count(db, sql.possibleDoubles, [id]),

    forgetKeys: (db: Queryable, id: string) => rows(db, sql.forgetKeys, [id]),

    finish: async (db: Queryable, id: string, holder: string, books: object) =>
      (await rows(db, sql.finish, [id, holder, JSON.stringify(books)])).length > 0,
  };
}
