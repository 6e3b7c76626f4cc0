/**
 * The drain's own tables: every statement on them by name, and the functions that run them. `db` comes first, as in the
 * store. Each write carries the holder of the run's lease; no row back means that another drainer has taken over.
 */
import { copyIn } from '../../src/jobs/copy-in.js';
import { copyData } from '../../src/jobs/copy-rows.js';
import { createImport } from '../../src/jobs/import.js';
import type { Queryable } from '../../src/jobs/job.js';
import { quoteSchema } from '../../src/jobs/schema-name.js';
import { epochMs, withDates } from '../../src/jobs/times.js';
import type { Books, Totals } from './books.js';
import type { Outcome } from './mapping.js';
import { LEDGER_COLUMNS, type PlacedRows, placeRows } from './message-rows.js';

/** drain: until empty, exact by counting. bridge: until stopped, exact by keys. undo: back to the queues, exact by counting. delayed: out
 *  of delayed-message tables, exact by the keys of their entries. */
export type RunMode = 'drain' | 'bridge' | 'undo' | 'delayed';

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
  /** Messages with a row of their own. */
  readonly counts: Readonly<Record<Outcome, number>>;
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
  holder_pid as "holderPid", ${epochMs('lease_expires_at')} as "leaseExpiresAt", ${epochMs('started_at')} as "startedAt"`;

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

    /** One batch: renews the lease, marks $4 as acked, writes the batch and moves the rows that were there already. */
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
moved as (
  update ${ledger} l set batch = batch.id, position = m.position
  from batch
  cross join unnest($13::bigint[], $14::integer[], $15::integer[]) as m (old_batch, old_position, position)
  where l.batch = m.old_batch and l.position = m.old_position
)
select id::text from batch`,

    /** The messages of a batch. */
    copyRows: `copy ${ledger} (${LEDGER_COLUMNS.join(', ')}) from stdin with (format binary)`,

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

    /**
     * Ids that came with different bodies to the same queue: kept as they are, but somebody should know. Fingerprints
     * sort out nearly all; a retry with another counter in its headers has the same body. Ids that are there once go first:
     * sorting every fingerprint of a run took twice as long.
     */
    doubtfulIds: `
with repeated as (
  select l.queue, l.message_id
  from ${batches} b join ${ledger} l on l.batch = b.id
  where b.run = $1 and l.message_id is not null
  group by l.queue, l.message_id
  having count(*) > 1
),
differing as (
  select l.queue, l.message_id
  from repeated
  join ${ledger} l on l.queue = repeated.queue and l.message_id = repeated.message_id
  join ${batches} b on b.id = l.batch and b.run = $1
  group by l.queue, l.message_id
  having count(distinct l.fingerprint) > 1
)
select count(*)::float8 as count
from (
  select from differing
  join ${ledger} l on l.queue = differing.queue and l.message_id = differing.message_id
  join ${batches} b on b.id = l.batch and b.run = $1
  group by differing.queue, differing.message_id
  having count(distinct l.body) > 1
) as doubtful`,

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
  const runs = async (db: Queryable, text: string, values: unknown[]): Promise<RunRow[]> =>
    withDates<RunRow>(await rows(db, text, values), ['leaseExpiresAt', 'startedAt']);
  const touched = async (db: Queryable, text: string, values: unknown[]): Promise<boolean> =>
    (await db.query(text, values)).rows.length > 0;

  return {
    /** The jobs that the ledger's rows are about. */
    jobs: createImport(schema),

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
      return (await runs(db, sql.openRun, values))[0] ?? null;
    },

    async findRun(db: Queryable, key: RunKey) {
      return (await runs(db, sql.findRun, [key.broker, key.vhost, key.group]))[0] ?? null;
    },

    /** The run under its new holder, or null while `gone` is null and the lease still holds. */
    async takeRun(db: Queryable, id: string, holder: Holder, leaseMs: number, gone: string | null) {
      const values = [id, holder.name, holder.host, holder.pid, leaseMs, gone];
      return (await runs(db, sql.takeRun, values))[0] ?? null;
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
      const values = [run.id, run.holder, run.leaseMs, acked, ...batchValues(batch)];
      const moves = [
        batch.absorbed.map(({ row }) => row.batch),
        batch.absorbed.map(({ row }) => row.position),
        batch.absorbed.map(({ position }) => position),
      ];
      return (await rows<{ id: string }>(db, sql.record, [...values, ...moves]))[0]?.id ?? null;
    },

    /** The batch's messages, with the ids of their jobs as drawn. `client`: the connection of its transaction. */
    async writeRows(client: Queryable, batch: string, placed: readonly PlacedRows[], ids: Buffer) {
      if (placed.length === 0) return;
      await copyIn(client, sql.copyRows, copyData(placeRows(placed, batch, ids)));
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
function batchValues({ queue, counts, absorbed, inexact }: NewBatch): unknown[] {
  const { row, unmapped, excluded, expired } = counts;
  const size = row + unmapped + excluded + expired + absorbed.length;
  return [queue, size, row, unmapped, excluded, expired, absorbed.length, inexact];
}
