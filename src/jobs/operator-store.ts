/**
 * The only file that runs the statements of an operator and of the doors' clients; a part of the store (store.ts), with the
 * same rules. Who may do what, and the note about it, is operations.ts's.
 */
import { jobsOf, json, returnedIds, rows } from './answers.js';
import type { Job, JobState, Json, Queryable, RetryPolicy } from './job.js';
import { createOperatorStatements } from './operator-statements.js';
import { withDates } from './times.js';

export interface JobFilter {
  readonly state?: JobState;
  readonly kind?: string;
  /** Rows whose source starts with it. */
  readonly source?: string;
  /** Rows with a smaller id: the next page. */
  readonly beforeId?: string;
  /** Default 50, at most 1000. */
  readonly limit?: number;
}

/** What an HTTP client may list by. `reference` looks at notifications only and ignores the prefixes. */
export interface JobSearch {
  readonly kindPrefix?: string;
  readonly sourcePrefix?: string;
  /** Exactly this source. */
  readonly source?: string;
  readonly reference?: string;
  /** One of the payload's `tags`; as `reference`. */
  readonly tag?: string;
  readonly states?: readonly JobState[];
  /** True: attempts were made; false: none yet. */
  readonly retried?: boolean;
  readonly createdBefore?: Date;
  /** Rows with a smaller id: the next page. */
  readonly beforeId?: string;
  /** At most 1000. */
  readonly limit: number;
}

/** Dead rows with all of these in common. */
export interface DeadFilter {
  readonly kind?: string;
  /** Name of the last error. */
  readonly error?: string;
  readonly sourcePrefix?: string;
  /** Died at or after, and before. */
  readonly from?: Date;
  readonly to?: Date;
  /** Rows with a smaller id: the next page. */
  readonly beforeId?: string;
}

export interface DeadGroup {
  readonly kind: string;
  readonly error: string | null;
  readonly count: number;
  readonly firstAt: Date;
  readonly lastAt: Date;
  /** The newest of them. */
  readonly sampleId: string;
}

/** What is absent stays as it is. */
export interface JobChange {
  readonly kind?: string;
  readonly payloadText?: string;
  readonly headers?: Json;
  readonly runAt?: Date;
  readonly delayMs?: number;
  readonly maxAttempts?: number;
  readonly retryPolicy?: RetryPolicy;
}

export interface KindStats {
  readonly kind: string;
  readonly state: JobState;
  readonly count: number;
  readonly oldestRunAt: Date | null;
}

const deadValues = (filter: DeadFilter): unknown[] => [
  filter.kind ?? null,
  filter.error ?? null,
  filter.sourcePrefix ?? null,
  filter.from ?? null,
  filter.to ?? null,
  filter.beforeId ?? null,
];

export function operatorStore(schema: string) {
  const sql = createOperatorStatements(schema);
  return {
    async show(db: Queryable, id: string): Promise<Job | null> {
      return (await jobsOf(db, sql.show, [id]))[0] ?? null;
    },

    /** The newest of these kinds with that dedupe key. */
    async showByDedupeKey(db: Queryable, kinds: readonly string[], key: string): Promise<Job | null> {
      return (await jobsOf(db, sql.showByDedupeKey, [kinds, key]))[0] ?? null;
    },

    list(db: Queryable, filter: JobFilter = {}) {
      const limit = Math.min(filter.limit ?? 50, 1_000);
      return jobsOf(db, sql.list, [
        filter.state ?? null,
        filter.kind ?? null,
        filter.source ?? null,
        filter.beforeId ?? null,
        limit,
      ]);
    },

    async stats(db: Queryable): Promise<KindStats[]> {
      return withDates<KindStats>(await rows(db, sql.stats, []), ['oldestRunAt']);
    },

    search(db: Queryable, filter: JobSearch): Promise<Job[]> {
      const { reference, tag, kindPrefix = null, sourcePrefix = null, source = null } = filter;
      const { states = null, retried = null, createdBefore = null, beforeId = null } = filter;
      const narrowed = [states, retried, createdBefore, Math.min(filter.limit, 1_000), beforeId];
      if (reference !== undefined) return jobsOf(db, sql.searchReference, [reference, ...narrowed]);
      if (tag !== undefined) return jobsOf(db, sql.searchTag, [tag, ...narrowed]);
      return jobsOf(db, sql.search, [kindPrefix, sourcePrefix, source, ...narrowed]);
    },

    searchDead(db: Queryable, filter: DeadFilter, limit: number): Promise<Job[]> {
      return jobsOf(db, sql.searchDead, [...deadValues(filter), Math.min(limit, 1_000)]);
    },

    /** Counted up to `cap`. */
    async countDeadWhere(db: Queryable, filter: DeadFilter, cap: number): Promise<number> {
      const values = [...deadValues(filter), cap];
      return (await rows<{ count: number }>(db, sql.countDeadWhere, values))[0]?.count ?? 0;
    },

    /** Of the newest `cap` dead rows. */
    async deadGroups(db: Queryable, filter: DeadFilter, cap: number): Promise<DeadGroup[]> {
      const groups = await rows(db, sql.deadGroups, [...deadValues(filter), cap]);
      return withDates<DeadGroup>(groups, ['firstAt', 'lastAt']);
    },

    /** Dead rows, counted up to `cap`. */
    async countDead(db: Queryable, cap: number): Promise<number> {
      return (await rows<{ count: number }>(db, sql.countDead, [cap]))[0]?.count ?? 0;
    },

    /** Ready rows of a kind, counted up to `cap`. */
    async countReady(db: Queryable, kind: string, cap: number): Promise<number> {
      return (await rows<{ count: number }>(db, sql.countReady, [kind, cap]))[0]?.count ?? 0;
    },

    /** Reads a job and holds it: `db` is inside a transaction. */
    async holdJob(db: Queryable, id: string): Promise<Job | null> {
      return (await jobsOf(db, sql.holdJob, [id]))[0] ?? null;
    },

    /** False when it runs or is done. */
    async editJob(db: Queryable, id: string, change: JobChange): Promise<boolean> {
      const changed = await returnedIds(db, sql.editJob, [
        id,
        change.kind ?? null,
        change.payloadText ?? null,
        json(change.headers),
        change.runAt?.toISOString() ?? null,
        change.delayMs ?? null,
        change.maxAttempts ?? null,
        json(change.retryPolicy),
      ]);
      return changed.length === 1;
    },

    /** Operator acts; each answers the ids that it changed. At most 1000 ids a call. */
    operatorRetry(db: Queryable, jobIds: readonly string[], moreAttempts: number) {
      return returnedIds(db, sql.operatorRetry, [jobIds, moreAttempts]);
    },

    operatorDiscard(db: Queryable, jobIds: readonly string[]) {
      return returnedIds(db, sql.operatorDiscard, [jobIds]);
    },

    cancel(db: Queryable, jobIds: readonly string[]) {
      return returnedIds(db, sql.cancel, [jobIds]);
    },

    dismiss(db: Queryable, jobIds: readonly string[]) {
      return returnedIds(db, sql.dismiss, [jobIds]);
    },

    runNow(db: Queryable, jobIds: readonly string[]) {
      return returnedIds(db, sql.runNow, [jobIds]);
    },
  };
}
