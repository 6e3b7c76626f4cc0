/**
 * The table of entries that were imported from delayed-message exchanges, and how a run of such an import is kept: every
 * statement by name. The messages themselves are in the ledger, as a drain's are.
 */
import type { Queryable } from '../../src/jobs/job.js';
import { quoteSchema } from '../../src/jobs/schema-name.js';
import type { HeldEntry } from './delayed-table.js';

/** Which broker an entry's key is of. */
export interface EntryScope {
  readonly broker: string;
  readonly vhost: string;
}

export type DelayedLedger = ReturnType<typeof createDelayedLedger>;

export function createDelayedLedger(schema: string) {
  const s = quoteSchema(schema);
  const sql = {
    /** Those of $3 that have rows. */
    known: `
select entry from ${s}.drain_delayed where broker = $1 and vhost = $2 and entry = any ($3::text[])`,

    /** A key that is there already fails the batch: an entry has rows once. */
    insert: `
insert into ${s}.drain_delayed (broker, vhost, entry, run, batch, due_at)
select $1, $2, entry, $3, $4, to_timestamp(due_ms / 1000)
from unnest($5::text[], $6::float8[]) as entries (entry, due_ms)`,

    /** Queues that messages of the run would have reached. */
    addQueues: `
update ${s}.drain_runs
set queues = array(select distinct name from unnest(queues || $2::text[]) as all_of (name) order by name)
where id = $1`,

    /** Imported by a run, over all its attempts. */
    count: `
select count(*)::float8 as count from ${s}.drain_delayed where run = $1`,

    /** Batches whose entries are proved to be gone. */
    settle: `
update ${s}.drain_batches b set state = 'acked'
from ${s}.drain_runs r
where r.id = $1 and r.holder = $2 and b.run = r.id and b.state = 'committed'`,
  } as const;

  return {
    async known(db: Queryable, { broker, vhost }: EntryScope, ids: readonly string[]): Promise<Set<string>> {
      if (ids.length === 0) return new Set();
      const { rows } = await db.query(sql.known, [broker, vhost, ids]);
      return new Set((rows as { entry: string }[]).map(({ entry }) => entry));
    },

    /** Inside the transaction that writes the jobs. */
    async record(
      db: Queryable,
      { broker, vhost }: EntryScope,
      run: string,
      batch: string,
      entries: readonly HeldEntry[],
    ): Promise<void> {
      const ids = entries.map(({ id }) => id);
      await db.query(sql.insert, [broker, vhost, run, batch, ids, entries.map(({ dueMs }) => dueMs)]);
      await db.query(sql.addQueues, [run, [...new Set(entries.flatMap(({ queues }) => queues))]]);
    },

    async count(db: Queryable, run: string): Promise<number> {
      return ((await db.query(sql.count, [run])).rows[0] as { count: number }).count;
    },

    settle: async (db: Queryable, run: string, holder: string) =>
      void (await db.query(sql.settle, [run, holder])),
  };
}
