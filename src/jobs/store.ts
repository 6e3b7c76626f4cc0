/**
 * The only file that runs the statements on the jobs table. Every function takes `db` first: a pool, a client inside
 * the caller's transaction, anything with `query`. It decides nothing: what to write is settle.ts's answer, when is the
 * worker's. What it runs on schedules is in schedule-store.ts.
 */
import { UnbrokerError } from '../errors.js';
import { json, returnedIds, rows } from './answers.js';
import {
  type ClaimedMany,
  type ClaimedRow,
  type ClaimedTextRow,
  claimedJob,
  claimedMany,
} from './claimed.js';
import type { Floor } from './floors.js';
import type {
  ClaimedJob,
  Enqueued,
  Job,
  JobState,
  Json,
  PreparedJob,
  Queryable,
  RetryPolicy,
} from './job.js';
import { LIMITS } from './job.js';
import { isOutOfReach } from './patience.js';
import type { FinishedRow, WalkPosition } from './retention.js';
import { scheduleStore } from './schedule-store.js';
import { DEFAULT_SCHEMA } from './schema-name.js';
import { createStatements, wakeChannel } from './statements.js';
import { storableText } from './text.js';

/** A fence: this job, under this lease. */
export interface Held {
  readonly id: string;
  readonly leaseToken: string;
}

/** A job that is done; its result as JSON, or null. */
export interface Completion extends Held {
  readonly resultText: string | null;
}

/** `stale`: no longer ours. `refused`: asked by itself it says why. */
export type EachAnswer = 'written' | 'stale' | 'refused';

const EACH_ANSWERS: Readonly<Record<string, EachAnswer>> = { w: 'written', s: 'stale', e: 'refused' };

/** What a worker asks of a claim. */
export interface ClaimOrder {
  readonly demands: readonly KindDemand[];
  readonly total: number;
  readonly worker: string;
  readonly leaseMs: number;
  readonly floors: readonly Floor[];
  readonly oldest: boolean;
}

/** Why an attempt failed; already storable (settle.ts). */
export interface Failure {
  readonly name: string;
  readonly message: string;
}

/** What a worker asks for: of each kind at most `limit`. */
export interface KindDemand {
  readonly kind: string;
  readonly limit: number;
  /** True: an expired lease parks the job (dead) instead of running it again. */
  readonly park: boolean;
  /** What it asks for beyond that. */
  readonly rule?: KindRule;
}

/** Across all workers that ask with the same rule. Read by the function claim. */
export interface KindRule {
  /** Jobs of the kind at once. */
  readonly maxRunning?: number;
  /** A bucket of `burst` tokens, filled with `max` a `perMs`; a start takes one. */
  readonly rate?: { readonly max: number; readonly perMs: number; readonly burst: number };
  /** True: a dead job keeps its ordering key. */
  readonly holds?: boolean;
}

/** An ordering key. `stuck`: its next job waits for nobody. */
export interface Turn {
  readonly kind: string;
  readonly key: string;
  readonly stuck: boolean;
}

export interface Reaped {
  readonly id: string;
  readonly kind: string;
  readonly state: 'ready' | 'dead';
}

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

/** A new job whose input is bytes. */
export interface BodyJob {
  readonly kind: string;
  readonly body: Buffer;
  readonly contentType: string | null;
  readonly priority: number;
  /** Epoch ms; null = the database's now(). */
  readonly runAtMs: number | null;
  readonly headers: Json;
  readonly source: string;
}

/** What a job brings along that was tried elsewhere. */
export interface Carried {
  readonly attempts: number;
  readonly error: { readonly name: string; readonly message: string } | null;
  /** True: its attempts are spent already. */
  readonly dead: boolean;
}

export interface KindStats {
  readonly kind: string;
  readonly state: JobState;
  readonly count: number;
  readonly oldestRunAt: Date | null;
}

export type { PreparedJob } from './job.js';
export type {
  DueRow,
  Fired,
  Move,
  PreparedSchedule,
  ScheduleFilter,
  StaleRow,
} from './schedule-store.js';

export type Store = ReturnType<typeof createStore>;

/** A connection that puts jobs in one after the other looks this often for a worker that sleeps. */
export const LOOK_EVERY_MS = 20;

/** A bigint[] literal, written here: pg would quote and escape each element (a tenth of this process's time a job). */
const ids = (held: readonly Held[]): string => `{${held.map((h) => h.id).join(',')}}`;
const tokens = (held: readonly Held[]): string => `{${held.map((h) => h.leaseToken).join(',')}}`;
const failures = (held: readonly Failure[]): string[][] => [
  held.map((h) => h.name),
  held.map((h) => h.message),
];

/**
 * By id, then by token: the statements look up what stands beside an id by its place (a job that is there twice counts
 * under its newer token), and two that lock the same rows in different orders deadlock, as an extension and a
 * settlement of one worker could. Settlements mostly come in order already.
 */
function inOrder<T extends Held>(held: readonly T[]): readonly T[] {
  for (let i = 1; i < held.length; i += 1)
    if (byLease(held[i - 1] as T, held[i] as T) > 0) return [...held].sort(byLease);
  return held;
}

const byLease = (a: Held, b: Held): number =>
  compareNumbers(a.id, b.id) || compareNumbers(a.leaseToken, b.leaseToken);

/** Decimal strings without leading zeros: the longer is the larger. */
function compareNumbers(a: string, b: string): number {
  return a.length - b.length || (a < b ? -1 : a > b ? 1 : 0);
}

/** Ids, tokens and results as the function finish takes them. */
function completions(ended: readonly Completion[]): unknown[] {
  const mine = inOrder(ended);
  const results = mine.some((h) => h.resultText !== null) ? mine.map((h) => h.resultText) : null;
  return [ids(mine), tokens(mine), results];
}

/**
 * By kind and falling priority, as the claim walks. A run_at comes as float8 ms, which is exact to less than half a us until
 * the year 2100.
 */
function floorValues(floors: readonly Floor[], kinds: readonly string[]): unknown[] {
  const sorted = floors
    .map((floor) => ({ ...floor, at: kinds.indexOf(floor.kind) + 1 }))
    .filter(({ at }) => at > 0)
    .sort((a, b) => a.at - b.at || b.priority - a.priority);
  return [
    sorted.map(({ at }) => at),
    sorted.map(({ priority }) => priority),
    sorted.map(({ runAtMs }) => Math.round(runAtMs * 1_000)),
    sorted.map(({ id }) => id),
  ];
}

/** What every form of the claim takes first; and the kinds in that order. */
function asked({ demands, total, worker, leaseMs }: ClaimOrder): { kinds: string[]; values: unknown[] } {
  const kinds = demands.map((d) => d.kind);
  const limits = demands.map((d) => d.limit);
  const parks = demands.map((d) => d.park);
  return { kinds, values: [kinds, limits, parks, total, worker, leaseMs] };
}

/** By kind as asked, falling priority, run_at and id. Mostly they are in order already. */
function inTableOrder(jobs: ClaimedJob[], kinds: readonly string[]): ClaimedJob[] {
  const order = (a: ClaimedJob, b: ClaimedJob): number =>
    (a.kind === b.kind ? 0 : kinds.indexOf(a.kind) - kinds.indexOf(b.kind)) ||
    b.priority - a.priority ||
    a.runAtMs - b.runAtMs ||
    compareNumbers(a.id, b.id);
  for (let i = 1; i < jobs.length; i += 1)
    if (order(jobs[i - 1] as ClaimedJob, jobs[i] as ClaimedJob) > 0) return jobs.sort(order);
  return jobs;
}

/** Rules by kind, as JSON. */
function rulesOf(demands: readonly KindDemand[]): string {
  if (demands.every(({ rule }) => rule === undefined)) return '{}';
  return JSON.stringify(Object.fromEntries(demands.map(({ kind, rule }) => [kind, rule])));
}

/** A column of a batch; null when no job has it, which costs neither side anything. */
function column<T>(
  jobs: readonly PreparedJob[],
  of: (job: PreparedJob) => T | null | undefined,
): (T | null)[] | null {
  let some = false;
  const values = jobs.map((job) => {
    const value = of(job) ?? null;
    some ||= value !== null;
    return value;
  });
  return some ? values : null;
}

/** Nothing is said of it but what the function enqueue_plain takes. */
const isPlain = (job: PreparedJob): boolean =>
  job.runAt === undefined &&
  job.delayMs === undefined &&
  job.maxAttempts === undefined &&
  job.source === undefined &&
  job.retryPolicy === undefined &&
  job.orderingKey === undefined;

/** They differ in nothing but their payloads, and nothing is said of them but what the function enqueue_alike takes. */
function areAlike(jobs: readonly PreparedJob[], { kind, priority, headers }: PreparedJob): boolean {
  return jobs.every(
    (job) =>
      job.kind === kind &&
      job.priority === priority &&
      job.headers === headers &&
      job.dedupeKey === undefined &&
      isPlain(job),
  );
}

/** '5-7' is 5, 6, 7. */
function idsOf(text: string): string[] {
  const [first, last] = text.split('-');
  if (first === undefined || last === undefined) return text.split(',');
  const length = Number(BigInt(last) - BigInt(first)) + 1;
  // Numbers while they are exact: bigints would take four times as long.
  const from = Number.isSafeInteger(Number(last)) ? Number(first) : null;
  return Array.from({ length }, (_, at) => String(from === null ? BigInt(first) + BigInt(at) : from + at));
}

/** Of a statement that answers with one id, with null or with no row. */
async function returnedId(db: Queryable, text: string, values: unknown[]): Promise<string | null> {
  return (await rows<{ id: string | null }>(db, text, values))[0]?.id ?? null;
}

/** Of a statement that answers with all ids in one text. */
async function joinedIds(db: Queryable, text: string, values: unknown[]): Promise<string[]> {
  const [answer] = await rows<{ ids: string | null }>(db, text, values);
  return answer?.ids?.split(',') ?? [];
}

const deadValues = (filter: DeadFilter): unknown[] => [
  filter.kind ?? null,
  filter.error ?? null,
  filter.sourcePrefix ?? null,
  filter.from ?? null,
  filter.to ?? null,
  filter.beforeId ?? null,
];

/** `schema` must already be vetted or is refused with `schema-invalid`. Default `unbroker`. */
export function createStore(schema: string = DEFAULT_SCHEMA) {
  const sql = createStatements(schema);

  const single = (job: PreparedJob): unknown[] => [
    job.kind,
    job.payloadText,
    job.priority ?? null,
    job.runAt ?? null,
    job.delayMs ?? null,
    job.maxAttempts ?? null,
    json(job.headers),
    job.source ?? null,
    json(job.retryPolicy),
    job.orderingKey ?? null,
  ];

  /** When a connection was last told that no worker sleeps. */
  const nobodySleptAt = new WeakMap<Queryable, number>();

  /** Its id. Who falls asleep looks once more, later than this connection may go by what it was told (wake.ts). */
  const insertPlain = async (db: Queryable, keeping: Queryable, values: unknown[]): Promise<string> => {
    const now = performance.now();
    const told = now - (nobodySleptAt.get(db) ?? Number.NEGATIVE_INFINITY) < LOOK_EVERY_MS;
    const text = told ? sql.insertUnseen : sql.insertPlain;
    const [row] = await rows<{ id: string; woke?: boolean | null }>(keeping, text, values);
    if (row?.woke === null) nobodySleptAt.set(db, now);
    return row?.id as string;
  };

  return {
    schema,
    /** Where an enqueue notifies. */
    channel: wakeChannel(schema),

    async sleepUntil(db: Queryable, worker: string, forMs: number): Promise<void> {
      await db.query(sql.sleepUntil, [worker, forMs]);
    },
    async stopSleeping(db: Queryable, worker: string): Promise<void> {
      await db.query(sql.stopSleeping, [worker]);
    },
    async notify(db: Queryable, payload: string): Promise<void> {
      await db.query(sql.notify, [payload]);
    },

    /**
     * Inserts one job; with a dedupe key that is taken, answers the first job's id. `keeping`: `db`, but it keeps the plans of
     * statements, so no function has to. Only for those that do not read the table: what is planned while it is empty is a
     * scan of all of it, and stays.
     */
    async enqueue(db: Queryable, job: PreparedJob, keeping?: Queryable, maxTries = 3): Promise<Enqueued> {
      if (job.dedupeKey === undefined) {
        const plain = isPlain(job);
        const values = plain
          ? [job.kind, job.payloadText, job.priority ?? null, json(job.headers)]
          : single(job);
        const id =
          keeping === undefined
            ? await returnedId(db, plain ? sql.enqueuePlain : sql.enqueue, values)
            : plain
              ? await insertPlain(db, keeping, values)
              : await returnedId(keeping, sql.insertOne, values);
        return { id: id as string, inserted: true };
      }
      const values = [...single(job), job.dedupeKey];
      const id =
        keeping === undefined
          ? await returnedId(db, sql.enqueueOnce, values)
          : await returnedId(keeping, sql.insertOnce, values);
      if (id !== null) return { id, inserted: true };
      const first = await returnedId(db, sql.findByDedupeKey, [job.kind, job.dedupeKey]);
      if (first !== null) return { id: first, inserted: false };
      // Gone between the two statements (pruned): one more try inserts it.
      if (maxTries > 1) return this.enqueue(db, job, keeping, maxTries - 1);
      throw new UnbrokerError('dedupe-unsettled', 'The dedupe key was taken and gone three times in a row', {
        hint: 'Enqueue again; if it stays, look for a job that prunes finished rows at once.',
      });
    },

    /** Inserts one job with the attempts it had elsewhere; its id. `delayMs` counts from the database's now(). */
    async enqueueCarried(db: Queryable, job: PreparedJob, carried: Carried): Promise<string> {
      const error = carried.error === null ? null : storable(carried.error);
      const [id] = await returnedIds(db, sql.enqueueCarried, [
        job.kind,
        job.payloadText,
        job.delayMs ?? 0,
        job.maxAttempts ?? 20,
        json(job.headers),
        job.source ?? null,
        json(job.retryPolicy),
        carried.attempts,
        error?.name ?? null,
        error?.message ?? null,
        carried.dead,
      ]);
      return id as string;
    },

    /** Inserts up to LIMITS.enqueueBatch jobs in one statement; answers in the order given. `keeping`: as with enqueue. */
    async enqueueMany(db: Queryable, jobs: readonly PreparedJob[], keeping = db): Promise<Enqueued[]> {
      const [first] = jobs;
      if (first === undefined) return [];
      if (areAlike(jobs, first)) {
        const payloads = `[${jobs.map((j) => j.payloadText).join(',')}]`;
        const values = [first.kind, payloads, first.priority ?? null, json(first.headers)];
        const [answer] = await rows<{ ids: string }>(keeping, sql.enqueueAlike, values);
        return idsOf(answer?.ids ?? '').map((id) => ({ id, inserted: true }));
      }
      const dedupeKeys = column(jobs, (j) => j.dedupeKey);
      const values = [
        jobs.map((j) => j.kind),
        jobs.map((j) => j.payloadText),
        column(jobs, (j) => j.priority),
        column(jobs, (j) => j.runAt),
        column(jobs, (j) => j.delayMs),
        column(jobs, (j) => j.maxAttempts),
        column(jobs, (j) => json(j.headers)),
        column(jobs, (j) => j.source),
        column(jobs, (j) => json(j.retryPolicy)),
        column(jobs, (j) => j.orderingKey),
      ];
      if (dedupeKeys === null)
        return (await joinedIds(keeping, sql.enqueueMany, values)).map((id) => ({ id, inserted: true }));
      const inserted = await joinedIds(keeping, sql.enqueueManyOnce, [...values, dedupeKeys]);
      return this.withWinners(
        db,
        jobs,
        inserted.map((id) => (id === '' ? null : id)),
      );
    },

    /** `ids` are null where the dedupe key was taken: those get the id of the job that holds it. */
    async withWinners(
      db: Queryable,
      jobs: readonly PreparedJob[],
      ids: readonly (string | null)[],
    ): Promise<Enqueued[]> {
      const taken = jobs.filter((_, index) => ids[index] === null);
      const asked = [taken.map((job) => job.kind), taken.map((job) => job.dedupeKey)];
      const winners =
        taken.length === 0 ? [] : await rows<{ id: string | null }>(db, sql.findByDedupeKeys, asked);
      let next = 0;
      const answers: Enqueued[] = [];
      for (const [index, job] of jobs.entries()) {
        const id = ids[index] ?? null;
        const winner = id === null ? (winners[next++]?.id ?? null) : null;
        if (id !== null) answers.push({ id, inserted: true });
        else if (winner !== null) answers.push({ id: winner, inserted: false });
        // Gone between the two statements (pruned): by itself it is inserted.
        else answers.push(await this.enqueue(db, job));
      }
      return answers;
    },

    /** Which texts the server takes as jsonb, in order. */
    async probeJsonb(db: Queryable, texts: readonly string[]): Promise<boolean[]> {
      return (await rows<{ ok: boolean }>(db, sql.probeJsonb, [texts])).map((row) => row.ok);
    },

    /**
     * Leases due jobs: at most `total`, of each kind at most its limit; in the order of `demands`, then of the table.
     * `floors`: where each kind and priority starts (floors.ts). `oldest`: up to a tenth of each kind comes from the priority
     * whose first job has waited longest.
     */
    async claim(
      db: Queryable,
      demands: readonly KindDemand[],
      total: number,
      worker: string,
      leaseMs: number,
      floors: readonly Floor[] = [],
      oldest = false,
    ): Promise<ClaimedJob[]> {
      const order = { demands, total, worker, leaseMs, floors, oldest };
      return (await this.finishAndClaim(db, [], order)).jobs;
    },

    /** The same with `complete` before it, in one statement: the ids that it changed, and the jobs that are leased now. */
    async finishAndClaim(
      keeping: Queryable,
      ended: readonly Completion[],
      order: ClaimOrder,
    ): Promise<{ readonly finished: readonly string[]; readonly jobs: ClaimedJob[] }> {
      const { kinds, values: claim } = asked(order);
      const values = [
        ...completions(ended),
        ...claim,
        ...floorValues(order.floors, kinds),
        rulesOf(order.demands),
        order.oldest,
      ];
      const answer = await rows<ClaimedRow & { readonly finished: string | null }>(
        keeping,
        sql.finishAndClaim,
        values,
      );
      const first = ended.length > 0 ? answer.shift() : undefined;
      const jobs = answer.map((row) => claimedJob(row, kinds));
      return { finished: first?.finished?.split(',') ?? [], jobs: inTableOrder(jobs, kinds) };
    },

    /** Is there a due job before one of these floors? */
    async late(db: Queryable, floors: readonly Floor[]): Promise<boolean> {
      const kinds = [...new Set(floors.map(({ kind }) => kind))];
      const values = [kinds, ...floorValues(floors, kinds)];
      return (await rows<{ late: boolean }>(db, sql.late, values))[0]?.late ?? false;
    },

    /** The claim alone; for hundreds of jobs it is cheaper. */
    async claimMany(db: Queryable, order: ClaimOrder): Promise<ClaimedMany> {
      const { kinds, values: claim } = asked(order);
      const values = [...claim, order.floors.map(({ id }) => id), rulesOf(order.demands), order.oldest];
      return claimedMany(await rows<ClaimedTextRow>(db, sql.claimMany, values), kinds);
    },

    /** Leases one job that must run alone. */
    async claimSolo(
      db: Queryable,
      demands: readonly KindDemand[],
      worker: string,
      leaseMs: number,
    ): Promise<ClaimedJob | null> {
      const kinds = demands.map((d) => d.kind);
      const parks = demands.map((d) => d.park);
      const values = [kinds, parks, worker, leaseMs, rulesOf(demands)];
      const [row] = await rows<ClaimedRow>(db, sql.claimSolo, values);
      return row === undefined ? null : claimedJob(row, kinds);
    },

    /** Lets the next of each of these ordering keys go on; those before it have ended. */
    async promote(db: Queryable, turns: readonly Pick<Turn, 'kind' | 'key'>[]): Promise<void> {
      await db.query(sql.promote, [turns.map(({ kind }) => kind), turns.map(({ key }) => key)]);
    },

    /** Up to `limit` ordering keys after one, in order. */
    turns(db: Queryable, after: Pick<Turn, 'kind' | 'key'> | null, limit: number): Promise<Turn[]> {
      return rows<Turn>(db, sql.turns, [after?.kind ?? '', after?.key ?? '', limit]);
    },

    async soloWaiting(db: Queryable, kinds: readonly string[]): Promise<boolean> {
      return (await rows<{ waiting: boolean }>(db, sql.soloWaiting, [kinds]))[0]?.waiting ?? false;
    },

    /** Ids whose lease was prolonged; those missing are lost. */
    extend(db: Queryable, held: readonly Held[], leaseMs: number) {
      const mine = inOrder(held);
      return returnedIds(db, sql.extend, [ids(mine), tokens(mine), leaseMs]);
    },

    /** `keeping`: `db`, but it may keep the plans of statements. */
    async complete(db: Queryable, held: readonly Completion[], keeping = db): Promise<string[]> {
      const [first] = held;
      if (first === undefined || held.length > 1) return joinedIds(keeping, sql.finish, completions(held));
      const values = [first.id, first.leaseToken, first.resultText];
      try {
        const [answer] = await rows<{ written: boolean }>(keeping, sql.finishOne, values);
        return answer?.written === true ? [first.id] : [];
      } catch (error) {
        // A schema that is migrated later than its workers: what ran shall not run again for that.
        if (!isOutOfReach(error)) throw error;
        return joinedIds(keeping, sql.finish, completions(held));
      }
    },

    /** Each in a transaction of its own: what became of them, in the order given. `keeping` is in no transaction. */
    async completeEach(keeping: Queryable, held: readonly Completion[]): Promise<EachAnswer[]> {
      const values = [ids(held), tokens(held), held.map(({ resultText }) => resultText)];
      const [row] = await rows<{ answers: string }>(keeping, sql.finishEach, values);
      return [...(row?.answers ?? '')].map((letter) => EACH_ANSWERS[letter] ?? 'refused');
    },

    /** Their rows go with it. Only for jobs of which nothing has to be remembered (leavesNothing). */
    completeAndRemove(db: Queryable, held: readonly Held[]) {
      const mine = inOrder(held);
      return joinedIds(db, sql.completeAndRemove, [ids(mine), tokens(mine)]);
    },

    /** Each settle answers the ids that it changed; those missing were no longer ours. */
    retry(db: Queryable, held: readonly (Held & Failure & { readonly delayMs: number })[]) {
      const mine = inOrder(held);
      const delays = mine.map((h) => h.delayMs);
      return returnedIds(db, sql.retry, [ids(mine), tokens(mine), delays, ...failures(mine)]);
    },

    snooze(db: Queryable, held: readonly (Held & { readonly delayMs: number })[]) {
      const mine = inOrder(held);
      return returnedIds(db, sql.snooze, [ids(mine), tokens(mine), mine.map((h) => h.delayMs)]);
    },

    discard(db: Queryable, held: readonly (Held & Failure)[]) {
      const mine = inOrder(held);
      return returnedIds(db, sql.discard, [ids(mine), tokens(mine), ...failures(mine)]);
    },

    release(db: Queryable, held: readonly Held[]) {
      const mine = inOrder(held);
      return returnedIds(db, sql.release, [ids(mine), tokens(mine)]);
    },

    /** False when the lease is lost. `progressText` is JSON. */
    async checkpoint(db: Queryable, held: Held, progressText: string): Promise<boolean> {
      return (await returnedIds(db, sql.checkpoint, [held.id, held.leaseToken, progressText])).length === 1;
    },

    /** Takes back up to `limit` expired leases. */
    reap(db: Queryable, limit: number) {
      return rows<Reaped>(db, sql.reap, [limit]);
    },

    /** Removes up to `limit` rows that finished more than `ageMs` ago; how many went. */
    async prune(db: Queryable, ageMs: number, limit: number): Promise<number> {
      return (await returnedIds(db, sql.prune, [ageMs, limit])).length;
    },

    /** Finished rows below a position, newest first, none younger than `minAgeMs`. */
    finishedBelow(db: Queryable, position: WalkPosition | null, minAgeMs: number, limit: number) {
      const { finishedAtText = null, id = null } = position ?? {};
      return rows<FinishedRow>(db, sql.finishedBelow, [minAgeMs, finishedAtText, id, limit]);
    },

    /** Removes rows that have not finished anew after `until` (a finishedAtText); how many went. */
    async removeFinished(db: Queryable, jobIds: readonly string[], until: string): Promise<number> {
      return (await returnedIds(db, sql.removeFinished, [jobIds, until])).length;
    },

    async show(db: Queryable, id: string): Promise<Job | null> {
      return (await rows<Job>(db, sql.show, [id]))[0] ?? null;
    },

    /** The newest of these kinds with that dedupe key. */
    async showByDedupeKey(db: Queryable, kinds: readonly string[], key: string): Promise<Job | null> {
      return (await rows<Job>(db, sql.showByDedupeKey, [kinds, key]))[0] ?? null;
    },

    search(db: Queryable, filter: JobSearch): Promise<Job[]> {
      const states = filter.states ?? null;
      const retried = filter.retried ?? null;
      const before = filter.createdBefore ?? null;
      const beforeId = filter.beforeId ?? null;
      const limit = Math.min(filter.limit, 1_000);
      if (filter.reference !== undefined) {
        return rows<Job>(db, sql.searchReference, [
          filter.reference,
          states,
          retried,
          before,
          limit,
          beforeId,
        ]);
      }
      if (filter.tag !== undefined) {
        return rows<Job>(db, sql.searchTag, [filter.tag, states, retried, before, limit, beforeId]);
      }
      const { kindPrefix = null, sourcePrefix = null, source = null } = filter;
      const values = [kindPrefix, sourcePrefix, source, states, retried, before, limit, beforeId];
      return rows<Job>(db, sql.search, values);
    },

    /** Inserts jobs whose input is bytes (what a message is), in one statement. */
    async enqueueBodies(db: Queryable, jobs: readonly BodyJob[], maxAttempts: number): Promise<string[]> {
      return returnedIds(db, sql.enqueueBodies, [
        jobs.map((j) => j.kind),
        jobs.map((j) => j.body),
        jobs.map((j) => j.contentType),
        jobs.map((j) => j.priority),
        jobs.map((j) => j.runAtMs),
        jobs.map((j) => json(j.headers)),
        jobs.map((j) => j.source),
        jobs.map((_, index) => index),
        maxAttempts,
      ]);
    },

    /** Ready rows of a kind, counted up to `cap`. */
    async countReady(db: Queryable, kind: string, cap: number): Promise<number> {
      return (await rows<{ count: number }>(db, sql.countReady, [kind, cap]))[0]?.count ?? 0;
    },

    /** Dead rows, counted up to `cap`. */
    async countDead(db: Queryable, cap: number): Promise<number> {
      return (await rows<{ count: number }>(db, sql.countDead, [cap]))[0]?.count ?? 0;
    },

    searchDead(db: Queryable, filter: DeadFilter, limit: number): Promise<Job[]> {
      return rows<Job>(db, sql.searchDead, [...deadValues(filter), Math.min(limit, 1_000)]);
    },

    /** Counted up to `cap`. */
    async countDeadWhere(db: Queryable, filter: DeadFilter, cap: number): Promise<number> {
      const values = [...deadValues(filter), cap];
      return (await rows<{ count: number }>(db, sql.countDeadWhere, values))[0]?.count ?? 0;
    },

    /** Of the newest `cap` dead rows. */
    deadGroups(db: Queryable, filter: DeadFilter, cap: number): Promise<DeadGroup[]> {
      return rows<DeadGroup>(db, sql.deadGroups, [...deadValues(filter), cap]);
    },

    /** Reads a job and holds it: `db` is inside a transaction. */
    async holdJob(db: Queryable, id: string): Promise<Job | null> {
      return (await rows<Job>(db, sql.holdJob, [id]))[0] ?? null;
    },

    /** False when it runs or is done. */
    async editJob(db: Queryable, id: string, change: JobChange): Promise<boolean> {
      const changed = await returnedIds(db, sql.editJob, [
        id,
        change.kind ?? null,
        change.payloadText ?? null,
        json(change.headers),
        change.runAt ?? null,
        change.delayMs ?? null,
        change.maxAttempts ?? null,
        json(change.retryPolicy),
      ]);
      return changed.length === 1;
    },

    list(db: Queryable, filter: JobFilter = {}) {
      const limit = Math.min(filter.limit ?? 50, 1_000);
      return rows<Job>(db, sql.list, [
        filter.state ?? null,
        filter.kind ?? null,
        filter.source ?? null,
        filter.beforeId ?? null,
        limit,
      ]);
    },

    stats(db: Queryable) {
      return rows<KindStats>(db, sql.stats, []);
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

    ...scheduleStore(schema),
  };
}

function storable(error: { readonly name: string; readonly message: string }) {
  return {
    name: storableText(error.name, 100),
    message: storableText(error.message, LIMITS.errorMessageLength),
  };
}
