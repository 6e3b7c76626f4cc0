/**
 * What `verify` asks the database, by name: the ledger read again row by row, the jobs that came of it, and the counts
 * that were written at the time. Nothing here writes.
 */
import type { Queryable } from '../../src/jobs/job.js';
import { plainArray, textArray } from '../../src/jobs/pg-array.js';
import { quoteSchema } from '../../src/jobs/schema-name.js';
import type { Books } from './books.js';
import type { RunMode } from './ledger.js';
import type { UndoBooks } from './undo-books.js';

export interface VerifiedRun {
  readonly id: string;
  readonly group: string;
  readonly mode: RunMode;
  readonly queues: readonly string[];
  readonly initial: number | null;
  readonly ambiguous: boolean;
  /** Null while it is open. */
  readonly books: Partial<Books & UndoBooks> | null;
  /** By the counters of its batches. */
  readonly counted: number;
  /** Rows of the ledger. */
  readonly ledger: number;
  readonly moved: number;
  readonly moving: number;
  /** Of a bridge, by its findings. */
  readonly late: number;
  readonly repeats: number;
  readonly possibleDoubles: number;
}

export interface LedgerRow {
  readonly batch: string;
  readonly position: number;
  readonly queue: string;
  readonly exchange: string;
  readonly routingKey: string;
  readonly redelivered: boolean;
  readonly job: string | null;
  readonly fingerprint: Buffer;
  readonly properties: Buffer;
  readonly body: Buffer;
  /** Hash of what was given back, by an undo of this id; null when it was not. */
  readonly sentHash: string | null;
  readonly undo: string | null;
}

/** What a row of the ledger says that its job holds. */
export interface ExpectedJob {
  readonly job: string;
  readonly payloadText: string | null;
  /** Hex, of the bytes that stand in for a payload which the database does not take. */
  readonly bodyMd5: string;
}

export interface ComparedJobs {
  readonly there: number;
  readonly gone: number;
  /** Sums of 64-bit hashes of the input, of those that are there. */
  readonly ledgerSum: string;
  readonly jobsSum: string;
  /** First ids of those whose input differs. */
  readonly differing: readonly string[];
}

export type Verifier = ReturnType<typeof createVerifier>;

export function createVerifyStatements(schema: string) {
  const s = quoteSchema(schema);
  return {
    runs: `
select r.id::text, r.group_name as "group", r.mode, r.queues, r.initial::float8 as initial, r.ambiguous,
       case when r.finished_at is not null then r.books end as books,
       (select coalesce(sum(b.size - b.absorbed), 0)::float8 from ${s}.drain_batches b where b.run = r.id) as counted,
       (select count(*)::float8 from ${s}.drain_batches b join ${s}.drain_ledger l on l.batch = b.id
        where b.run = r.id) as ledger,
       (select count(*)::float8 from ${s}.drain_moves m where m.undo = r.id and m.state = 'moved') as moved,
       (select count(*)::float8 from ${s}.drain_moves m where m.undo = r.id and m.state = 'moving') as moving,
       p.late, p.repeats, p."possibleDoubles"
from ${s}.drain_runs r, lateral (
  select coalesce(sum(messages), 0)::float8 as late, coalesce(sum(repeats), 0)::float8 as repeats,
         coalesce(sum(possible_doubles), 0)::float8 as "possibleDoubles"
  from ${s}.drain_publishers where run = r.id) p
where r.broker = $1 and r.vhost = $2
order by r.id`,

    /** Of a run, in order. */
    batches: `
select id::text from ${s}.drain_batches where run = $1 order by id`,

    /** Of a batch, in order, behind a position; at most $3 rows, at most $4 bytes and one. */
    ledger: `
with page as materialized (
  select l.batch, l.position, octet_length(l.body) + octet_length(l.properties) as size
  from ${s}.drain_ledger l
  where l.batch = $1::bigint and l.position > $2::integer
  order by l.position
  limit $3
),
fitting as (
  select page.*, sum(size) over (order by position) - size as before from page
)
select l.batch::text, l.position, l.queue, l.exchange, l.routing_key as "routingKey", l.redelivered, l.job::text,
       l.fingerprint, l.properties, l.body, m.hash::text as "sentHash", m.undo::text as undo
from fitting join ${s}.drain_ledger l on l.batch = fitting.batch and l.position = fitting.position
left join ${s}.drain_moves m on m.batch = l.batch and m.position = l.position and m.state = 'moved'
where fitting.before <= $4
order by l.position`,

    /**
     * Of a run's messages those that a bridge would take for new if they came again: not given back, and their key is gone.
     * A stream has no keys: its offset says what was read.
     */
    forgotten: `
select count(*)::float8 as count
from ${s}.drain_batches b join ${s}.drain_ledger l on l.batch = b.id
where b.run = $1 and b.queue <> all ($2::text[])
  and not exists (select from ${s}.drain_keys k where k.fingerprint = l.fingerprint)
  and not exists (
    select from ${s}.drain_moves m join ${s}.drain_ledger back on back.batch = m.batch and back.position = m.position
    where m.state = 'moved' and back.fingerprint = l.fingerprint)`,

    /** Queues that are read by offset. */
    streams: `
select queue from ${s}.drain_offsets where broker = $1 and vhost = $2`,

    /** The input of jobs as the ledger has it, beside the input that they have. */
    compare: `
with input as materialized (
  select input.job, coalesce(${s}.jsonb_or_null(input.payload)::text, input.body_md5) as text
  from unnest($1::bigint[], $2::text[], $3::text[]) as input (job, payload, body_md5)
),
beside as materialized (
  select input.job, input.text as wanted, coalesce(j.payload::text, md5(j.body)) as found
  from input left join ${s}.jobs j on j.id = input.job
)
select count(found)::float8 as there, (count(*) - count(found))::float8 as gone,
       coalesce(sum(hashtextextended(wanted, 0)) filter (where found is not null), 0)::text as "ledgerSum",
       coalesce(sum(hashtextextended(found, 0)), 0)::text as "jobsSum",
       coalesce((array_agg(job::text order by job) filter (where wanted <> found))[1:20], '{}') as differing
from beside`,

    /** Jobs of these sources by state. Reads the whole table. */
    states: `
select state, count(*)::float8 as count from ${s}.jobs where source = any ($1::text[]) group by state order by state`,
  } as const;
}

export function createVerifier(schema: string) {
  const sql = createVerifyStatements(schema);
  const rows = async <T>(db: Queryable, text: string, values: unknown[]): Promise<T[]> =>
    (await db.query(text, values)).rows as T[];
  return {
    runs: (db: Queryable, broker: string, vhost: string) => rows<VerifiedRun>(db, sql.runs, [broker, vhost]),

    forgotten: async (db: Queryable, run: string, streams: readonly string[]) =>
      (await rows<{ count: number }>(db, sql.forgotten, [run, streams]))[0]?.count ?? 0,

    streams: async (db: Queryable, broker: string, vhost: string) =>
      (await rows<{ queue: string }>(db, sql.streams, [broker, vhost])).map(({ queue }) => queue),

    batches: async (db: Queryable, run: string) =>
      (await rows<{ id: string }>(db, sql.batches, [run])).map(({ id }) => id),

    ledger: (
      db: Queryable,
      batch: string,
      after: number,
      limits: { readonly rows: number; readonly bytes: number },
    ) => rows<LedgerRow>(db, sql.ledger, [batch, after, limits.rows, limits.bytes]),

    async compare(db: Queryable, expected: readonly ExpectedJob[]): Promise<ComparedJobs> {
      const values = [
        plainArray(expected.map(({ job }) => job)),
        textArray(expected.map(({ payloadText }) => payloadText)),
        textArray(expected.map(({ bodyMd5 }) => bodyMd5)),
      ];
      return (await rows<ComparedJobs>(db, sql.compare, values))[0] as ComparedJobs;
    },

    states: (db: Queryable, sources: readonly string[]) =>
      rows<{ state: string; count: number }>(db, sql.states, [sources]),
  };
}
