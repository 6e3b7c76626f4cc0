/**
 * The drain's own tables: every statement on them by name, and the functions that run them. `db` comes first, as in the
 * store. Each write carries the holder of the run's lease; no row back means that another drainer has taken over.
 */
import type { Queryable } from '../../src/jobs/job.js';
import { plainArray, textArray } from '../../src/jobs/pg-array.js';
import { quoteSchema } from '../../src/jobs/schema-name.js';
import type { Books, Totals } from './books.js';
import { FINGERPRINT_BYTES } from './fingerprint.js';
import type { Outcome } from './mapping.js';

/** drain: until empty, exact by counting. bridge: until stopped, exact by keys. undo: back to the queues, exact by counting. */
export type RunMode = 'drain' | 'bridge' | 'undo';

export interface RunRow {
  readonly id: string;
  readonly mode: RunMode;
  readonly queues: readonly string[];
  readonly before: Readonly<Record<string, number>> | null;
  readonly initial: number | null;
  readonly interrupted: boolean;
  readonly holder: string;
  readonly holderHost: string;
  readonly holderPid: number;
  readonly leaseExpiresAt: Date;
  readonly startedAt: Date;
}

export interface RunKey {
  readonly broker: string;
  readonly vhost: string;
  readonly group: string;
}

export interface Holder {
  /** Unguessable, new for every process. */
  readonly name: string;
  readonly host: string;
  readonly pid: number;
}

/** One message for the ledger. */
export interface LedgerEntry {
  /** From 1, its place in the batch. */
  readonly position: number;
  readonly job: string | null;
  readonly redelivered: boolean;
  readonly outcome: Outcome;
  readonly exchange: string;
  readonly routingKey: string;
  readonly messageId: string | null;
  readonly note: string | null;
  /** As fingerprint.ts gives it: latin1, one character a byte. */
  readonly fingerprint: string;
  readonly properties: Buffer;
  readonly body: Buffer;
}

/** A ledger row whose message is expected from the broker again. */
export interface ExpectedRow {
  readonly batch: string;
  readonly position: number;
  readonly queue: string;
  readonly exchange: string;
  readonly routingKey: string;
  readonly fingerprint: Buffer;
}

/** An expected row that was delivered again, and its place in the new batch. */
export interface AbsorbedRow {
  readonly row: ExpectedRow;
  readonly position: number;
}

export interface NewBatch {
  readonly queue: string;
  readonly entries: readonly LedgerEntry[];
  readonly absorbed: readonly AbsorbedRow[];
  /** Rows whose run_at is inexact. */
  readonly inexact: number;
}

export interface CommittedBatch {
  readonly id: string;
  readonly size: number;
}

export type Ledger = ReturnType<typeof createLedger>;

const runColumns = `
  id::text, mode, queues, before, initial::float8 as initial, interrupted, holder, holder_host as "holderHost",
  holder_pid as "holderPid", lease_expires_at as "leaseExpiresAt", started_at as "startedAt"`;

export function createLedgerStatements(schema: string) {
  const s = quoteSchema(schema);
  const runs = `${s}.drain_runs`;
  const batches = `${s}.drain_batches`;
  const ledger = `${s}.drain_ledger`;
  const lease = (ms: string) => `clock_timestamp() + ${ms} * interval '1 millisecond'`;
  return {
    /** A new run, unless one of the group is open. */
    openRun: `
insert into ${runs} (broker, vhost, group_name, queues, holder, holder_host, holder_pid, lease_expires_at, mode)
values ($1, $2, $3, $4::text[], $5, $6, $7, ${lease('$8')}, $9)
on conflict (broker, vhost, group_name) where finished_at is null do nothing
returning ${runColumns}`,

    /** The open run of a group. */
    findRun: `
select ${runColumns}
from ${runs} where broker = $1 and vhost = $2 and group_name = $3 and finished_at is null`,

    /** Takes the lease over, when it has run out or is still that of $6, a process known to be gone. */
    takeRun: `
update ${runs}
set holder = $2, holder_host = $3, holder_pid = $4, lease_expires_at = ${lease('$5')},
    interrupted = interrupted or initial is not null
where id = $1 and finished_at is null and (lease_expires_at < clock_timestamp() or holder = $6)
returning ${runColumns}`,

    /** Keeps the lease. */
    renew: `
update ${runs} set lease_expires_at = ${lease('$3')}
where id = $1 and holder = $2 and finished_at is null
returning id::text`,

    /** Ends the lease at once, so that the next run need not wait for it. */
    release: `
update ${runs} set lease_expires_at = clock_timestamp()
where id = $1 and holder = $2 and finished_at is null
returning id::text`,

    /** What was counted before the first message was taken. */
    setInitial: `
update ${runs} set before = $3::jsonb, initial = $4
where id = $1 and holder = $2 and initial is null
returning id::text`,

    /** A resume: what was delivered twice can from here on not be told from what arrived late. */
    setInterrupted: `
update ${runs} set interrupted = true, ambiguous = ambiguous or $3
where id = $1 and holder = $2
returning id::text`,

    /** Batches whose ack has an unknown fate. */
    committedBatches: `
select id::text, size from ${batches} where run = $1 and state = 'committed' order by id`,

    /** Every batch of the run. */
    allBatches: `
select id::text, size from ${batches} where run = $1 order by id`,

    /** Rows whose messages the broker has again. */
    expectedRows: `
select l.batch::text, l.position, l.queue, l.exchange, l.routing_key as "routingKey", l.fingerprint
from ${batches} b
join ${ledger} l on l.batch = b.id
where b.run = $1 and b.state = 'back'
order by l.batch, l.position`,

    /** Decides batches: $3 have come back, $4 are gone from the broker. */
    settleBatches: `
update ${batches} b
set state = case when b.id = any ($3::bigint[]) then 'back' else 'acked' end
from ${runs} r
where r.id = $1 and r.holder = $2 and b.run = r.id and b.id = any ($3::bigint[] || $4::bigint[])
returning b.id::text`,

    /** Forgets every expectation: for an operator who would rather have doubles than gaps. */
    forgetExpected: `
update ${batches} b
set state = 'acked'
from ${runs} r
where r.id = $1 and r.holder = $2 and b.run = r.id and b.state = 'back'
returning b.id::text`,

    /**
     * One batch: renews the lease, marks $4 as acked, writes the batch, its messages and the moves of rows that were
     * there already. Bytes travel as one value each, cut apart here: an array of bytea would be sent as hex text.
     */
    record: `
with mine as (
  update ${runs} set lease_expires_at = ${lease('$3')}
  where id = $1 and holder = $2 and finished_at is null
  returning id
),
settled as (
  update ${batches} b set state = 'acked' from mine where b.id = any ($4::bigint[])
),
batch as (
  insert into ${batches} (run, queue, size, rows, unmapped, excluded, expired, absorbed, inexact)
  select id, $5, $6, $7, $8, $9, $10, $11, $12 from mine
  returning id
),
entries as (
  insert into ${ledger} (batch, position, job, redelivered, outcome, queue, exchange, routing_key, message_id, note,
                         fingerprint, properties, body)
  select batch.id, e.position, e.job, e.redelivered, e.outcome, $5, e.exchange, e.routing_key, e.message_id, e.note,
         substring($21::bytea from (e.number::integer - 1) * ${FINGERPRINT_BYTES} + 1 for ${FINGERPRINT_BYTES}),
         substring($22::bytea from e.properties_at for e.properties_length),
         substring($23::bytea from e.body_at for e.body_length)
  from batch
  cross join unnest($13::integer[], $14::bigint[], $15::boolean[], $16::text[], $17::text[], $18::text[], $19::text[],
                    $20::text[], $24::integer[], $25::integer[], $26::integer[], $27::integer[])
       with ordinality as e (position, job, redelivered, outcome, exchange, routing_key, message_id, note,
                             properties_at, properties_length, body_at, body_length, number)
),
moved as (
  update ${ledger} l set batch = batch.id, position = m.position
  from batch
  cross join unnest($28::bigint[], $29::integer[], $30::integer[]) as m (old_batch, old_position, position)
  where l.batch = m.old_batch and l.position = m.old_position
)
select id::text from batch`,

    /** Batches whose ack was proved. */
    markAcked: `
update ${batches} b
set state = 'acked'
from ${runs} r
where r.id = $1 and r.holder = $2 and b.id = any ($3::bigint[])
returning b.id::text`,

    /** What the run has taken so far. */
    totals: `
select coalesce(sum(rows), 0)::float8 as rows, coalesce(sum(unmapped), 0)::float8 as unmapped,
       coalesce(sum(excluded), 0)::float8 as excluded, coalesce(sum(expired), 0)::float8 as expired,
       coalesce(sum(absorbed), 0)::float8 as absorbed, coalesce(sum(inexact), 0)::float8 as inexact
from ${batches} where run = $1`,

    /** Ids that came with different bodies: kept as they are, but somebody should know. */
    doubtfulIds: `
select count(*)::float8 as count
from (
  select l.message_id
  from ${batches} b join ${ledger} l on l.batch = b.id
  where b.run = $1 and l.message_id is not null
  group by l.queue, l.message_id
  having count(distinct l.fingerprint) > 1
) ids`,

    /** Closes the run with its books. */
    finish: `
update ${runs} set books = $3::jsonb, finished_at = clock_timestamp()
where id = $1 and holder = $2 and finished_at is null
returning id::text`,
  } as const;
}

export function createLedger(schema: string) {
  const sql = createLedgerStatements(schema);
  const rows = async <T>(db: Queryable, text: string, values: unknown[]): Promise<T[]> =>
    (await db.query(text, values)).rows as T[];
  const touched = async (db: Queryable, text: string, values: unknown[]): Promise<boolean> =>
    (await db.query(text, values)).rows.length > 0;

  return {
    /** The new run, or null when one is open. */
    async openRun(
      db: Queryable,
      key: RunKey,
      queues: readonly string[],
      holder: Holder,
      leaseMs: number,
      mode: RunMode = 'drain',
    ) {
      const values = [
        key.broker,
        key.vhost,
        key.group,
        queues,
        holder.name,
        holder.host,
        holder.pid,
        leaseMs,
        mode,
      ];
      return (await rows<RunRow>(db, sql.openRun, values))[0] ?? null;
    },

    async findRun(db: Queryable, key: RunKey) {
      return (await rows<RunRow>(db, sql.findRun, [key.broker, key.vhost, key.group]))[0] ?? null;
    },

    /** The run under its new holder, or null while `gone` is null and the lease still holds. */
    async takeRun(db: Queryable, id: string, holder: Holder, leaseMs: number, gone: string | null) {
      const values = [id, holder.name, holder.host, holder.pid, leaseMs, gone];
      return (await rows<RunRow>(db, sql.takeRun, values))[0] ?? null;
    },

    renew: (db: Queryable, id: string, holder: string, leaseMs: number) =>
      touched(db, sql.renew, [id, holder, leaseMs]),

    release: (db: Queryable, id: string, holder: string) => touched(db, sql.release, [id, holder]),

    setInitial: (
      db: Queryable,
      id: string,
      holder: string,
      before: Readonly<Record<string, number>>,
      initial: number,
    ) => touched(db, sql.setInitial, [id, holder, JSON.stringify(before), initial]),

    setInterrupted: (db: Queryable, id: string, holder: string, ambiguous: boolean) =>
      touched(db, sql.setInterrupted, [id, holder, ambiguous]),

    committedBatches: (db: Queryable, id: string) => rows<CommittedBatch>(db, sql.committedBatches, [id]),

    allBatches: (db: Queryable, id: string) => rows<CommittedBatch>(db, sql.allBatches, [id]),

    expectedRows: (db: Queryable, id: string) => rows<ExpectedRow>(db, sql.expectedRows, [id]),

    async settleBatches(
      db: Queryable,
      id: string,
      holder: string,
      back: readonly string[],
      acked: readonly string[],
    ) {
      if (back.length + acked.length === 0) return true;
      return (
        (await rows(db, sql.settleBatches, [id, holder, back, acked])).length === back.length + acked.length
      );
    },

    forgetExpected: (db: Queryable, id: string, holder: string) => rows(db, sql.forgetExpected, [id, holder]),

    /** The new batch's id; null when the lease is lost (roll back). Inside the transaction that made the jobs. */
    async record(
      db: Queryable,
      run: { readonly id: string; readonly holder: string; readonly leaseMs: number },
      batch: NewBatch,
      acked: readonly string[],
    ): Promise<string | null> {
      const values = [
        run.id,
        run.holder,
        run.leaseMs,
        acked,
        ...batchValues(batch),
        ...entryValues(batch.entries),
      ];
      const moves = [
        batch.absorbed.map(({ row }) => row.batch),
        batch.absorbed.map(({ row }) => row.position),
        batch.absorbed.map(({ position }) => position),
      ];
      return (await rows<{ id: string }>(db, sql.record, [...values, ...moves]))[0]?.id ?? null;
    },

    async markAcked(db: Queryable, id: string, holder: string, acked: readonly string[]) {
      return acked.length === 0 || touched(db, sql.markAcked, [id, holder, acked]);
    },

    async totals(db: Queryable, id: string): Promise<Totals> {
      return (await rows<Totals>(db, sql.totals, [id]))[0] as Totals;
    },

    async doubtfulIds(db: Queryable, id: string): Promise<number> {
      return (await rows<{ count: number }>(db, sql.doubtfulIds, [id]))[0]?.count ?? 0;
    },

    finish: (db: Queryable, id: string, holder: string, books: Books) =>
      touched(db, sql.finish, [id, holder, JSON.stringify(books)]),
  };
}

/** $5 to $12. */
function batchValues({ queue, entries, absorbed, inexact }: NewBatch): unknown[] {
  const count = (outcome: Outcome): number => entries.filter((entry) => entry.outcome === outcome).length;
  return [
    queue,
    entries.length + absorbed.length,
    count('row'),
    count('unmapped'),
    count('excluded'),
    count('expired'),
    absorbed.length,
    inexact,
  ];
}

/** $13 to $27. */
function entryValues(entries: readonly LedgerEntry[]): unknown[] {
  const properties = entries.map((entry) => entry.properties);
  const bodies = entries.map((entry) => entry.body);
  return [
    plainArray(entries.map((entry) => entry.position)),
    plainArray(entries.map((entry) => entry.job)),
    plainArray(entries.map((entry) => entry.redelivered)),
    plainArray(entries.map((entry) => entry.outcome)),
    textArray(entries.map((entry) => entry.exchange)),
    textArray(entries.map((entry) => entry.routingKey)),
    textArray(entries.map((entry) => entry.messageId)),
    textArray(entries.map((entry) => entry.note)),
    Buffer.from(entries.map((entry) => entry.fingerprint).join(''), 'latin1'),
    Buffer.concat(properties),
    Buffer.concat(bodies),
    startsOf(properties),
    plainArray(properties.map((bytes) => bytes.length)),
    startsOf(bodies),
    plainArray(bodies.map((bytes) => bytes.length)),
  ];
}

/** Where each part begins in the whole, counted from 1 as SQL does. */
function startsOf(parts: readonly Buffer[]): string {
  let next = 1;
  const starts = parts.map(({ length }) => {
    const start = next;
    next += length;
    return start;
  });
  return plainArray(starts);
}
