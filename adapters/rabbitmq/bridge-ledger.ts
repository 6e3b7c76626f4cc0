/**
 * The bridge's own tables: keys that were taken, offsets of streams, and who published. Every statement on them by name,
 * in the form of ledger.ts. None checks the lease: each runs in a transaction whose batch did.
 */
import type { Queryable } from '../../src/jobs/job.js';
import { plainArray, textArray } from '../../src/jobs/pg-array.js';
import { quoteSchema } from '../../src/jobs/schema-name.js';
import { epochMs, withDates } from '../../src/jobs/times.js';
import type { RunKey } from './ledger.js';

/** One key: hex and, as fingerprint.ts gives it, latin1. */
export interface Key {
  readonly identity: string;
  readonly fingerprint: string;
}

export interface AskedKey extends Key {
  /** False: its identity is shared by thousands, so other contents mean nothing. */
  readonly named: boolean;
}

/** Who published, as far as the messages say. */
export interface LatePublisher {
  readonly queue: string;
  readonly exchange: string;
  readonly routingKey: string;
  readonly userId: string | null;
  readonly appId: string | null;
}

export interface LateCounts {
  readonly messages: number;
  readonly again: number;
  readonly repeats: number;
  readonly otherContents: number;
  readonly possibleDoubles: number;
}

export interface LateFinding extends LatePublisher, LateCounts {
  readonly number: number;
  readonly firstAt: Date;
  readonly lastAt: Date;
}

export type BridgeLedger = ReturnType<typeof createBridgeLedger>;

export function createBridgeStatements(schema: string) {
  const s = quoteSchema(schema);
  const keys = `${s}.drain_keys`;
  const offsets = `${s}.drain_offsets`;
  const publishers = `${s}.drain_publishers`;
  return {
    /** Which of these keys were taken, and which identities with other contents. */
    findKeys: `
select w.number::integer as number,
       exists (select from ${keys} k where k.identity = w.identity and k.fingerprint = w.fingerprint) as same,
       w.named and exists (select from ${keys} k where k.identity = w.identity and k.fingerprint <> w.fingerprint)
         as "otherContents"
from unnest($1::bytea[], $2::bytea[], $3::boolean[]) with ordinality as w (identity, fingerprint, named, number)`,

    /** Takes these keys. */
    takeKeys: `
insert into ${keys} (identity, fingerprint)
select * from unnest($1::bytea[], $2::bytea[])
on conflict do nothing`,

    /** The offset to go on with. */
    findOffset: `
select next_offset::float8 as "nextOffset" from ${offsets} where broker = $1 and vhost = $2 and queue = $3`,

    /** Moves on from $4, unless somebody else did. */
    moveOffset: `
insert into ${offsets} (broker, vhost, queue, next_offset) values ($1, $2, $3, $5)
on conflict (broker, vhost, queue) do update set next_offset = excluded.next_offset
  where ${offsets}.next_offset <= $4
returning queue`,

    /** Counts what came, by publisher. */
    addFindings: `
insert into ${publishers} (run, number, queue, exchange, routing_key, user_id, app_id, messages, again, repeats,
                           other_contents, possible_doubles)
select $1, f.* from unnest($2::integer[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bigint[],
                           $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[]) as f
on conflict (run, number) do update
set messages = ${publishers}.messages + excluded.messages, again = ${publishers}.again + excluded.again,
    repeats = ${publishers}.repeats + excluded.repeats,
    other_contents = ${publishers}.other_contents + excluded.other_contents,
    possible_doubles = ${publishers}.possible_doubles + excluded.possible_doubles, last_at = clock_timestamp()`,

    /** What a run has found. */
    findings: `
select number, queue, exchange, routing_key as "routingKey", user_id as "userId", app_id as "appId",
       messages::float8 as messages, again::float8 as again, repeats::float8 as repeats,
       other_contents::float8 as "otherContents", possible_doubles::float8 as "possibleDoubles",
       ${epochMs('first_at')} as "firstAt", ${epochMs('last_at')} as "lastAt"
from ${publishers} where run = $1 order by messages desc, number`,
  } as const;
}

export function createBridgeLedger(schema: string) {
  const sql = createBridgeStatements(schema);
  const rows = async <T>(db: Queryable, text: string, values: unknown[]): Promise<T[]> =>
    (await db.query(text, values)).rows as T[];

  return {
    /** In the order of the question. */
    async findKeys(db: Queryable, asked: readonly AskedKey[]) {
      if (asked.length === 0) return [];
      const values = [...keyValues(asked), plainArray(asked.map(({ named }) => named))];
      const found = await rows<{ number: number; same: boolean; otherContents: boolean }>(
        db,
        sql.findKeys,
        values,
      );
      return found.sort((a, b) => a.number - b.number);
    },

    async takeKeys(db: Queryable, taken: readonly Key[]): Promise<void> {
      if (taken.length > 0) await db.query(sql.takeKeys, keyValues(taken));
    },

    /** 0 at first. */
    async findOffset(db: Queryable, { broker, vhost }: RunKey, queue: string): Promise<number> {
      const found = await rows<{ nextOffset: number }>(db, sql.findOffset, [broker, vhost, queue]);
      return found[0]?.nextOffset ?? 0;
    },

    /** False: somebody else has read on. */
    async moveOffset(db: Queryable, { broker, vhost }: RunKey, queue: string, from: number, to: number) {
      return (await rows(db, sql.moveOffset, [broker, vhost, queue, from, to])).length > 0;
    },

    async addFindings(
      db: Queryable,
      run: string,
      found: readonly (LatePublisher & LateCounts & { readonly number: number })[],
    ): Promise<void> {
      if (found.length === 0) return;
      await db.query(sql.addFindings, [
        run,
        plainArray(found.map(({ number }) => number)),
        textArray(found.map(({ queue }) => queue)),
        textArray(found.map(({ exchange }) => exchange)),
        textArray(found.map(({ routingKey }) => routingKey)),
        textArray(found.map(({ userId }) => userId)),
        textArray(found.map(({ appId }) => appId)),
        plainArray(found.map(({ messages }) => messages)),
        plainArray(found.map(({ again }) => again)),
        plainArray(found.map(({ repeats }) => repeats)),
        plainArray(found.map(({ otherContents }) => otherContents)),
        plainArray(found.map(({ possibleDoubles }) => possibleDoubles)),
      ]);
    },

    async findings(db: Queryable, run: string): Promise<LateFinding[]> {
      return withDates<LateFinding>(await rows(db, sql.findings, [run]), ['firstAt', 'lastAt']);
    },
  };
}

/** As text: the driver would make each bytea of an array hex the slow way. */
function keyValues(keys: readonly Key[]): [string, string] {
  const hex = (latin1: string): string => Buffer.from(latin1, 'latin1').toString('hex');
  return [
    textArray(keys.map(({ identity }) => `\\x${identity}`)),
    textArray(keys.map(({ fingerprint }) => `\\x${hex(fingerprint)}`)),
  ];
}
