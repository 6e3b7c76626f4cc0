/**
 * The only file that runs the statements which put jobs in; a part of the store (store.ts), and all that an enqueuer loads
 * of it. What may be said of a job is checked before (enqueue.ts).
 */
import { UnbrokerError } from '../errors.js';
import { joinedIds, json, returnedIds, rows } from './answers.js';
import { createEnqueueStatements } from './enqueue-statements.js';
import { type Enqueued, type Json, LIMITS, type PreparedJob, type Queryable } from './job.js';
import type { Prepared } from './prepared.js';
import type { Texts } from './row-query.js';
import { codeOf } from './sqlstate.js';
import { storableText } from './text.js';

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

/** A connection that puts jobs in one after the other looks this often for a worker that sleeps. */
export const LOOK_EVERY_MS = 20;

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

/** Insufficient privilege, undefined column. */
const isUnknownOrForbidden = (error: unknown): boolean => ['42501', '42703'].includes(codeOf(error));

/** Of a statement that answers with one id, with null or with no row. */
async function returnedId(db: Queryable, text: string, values: unknown[]): Promise<string | null> {
  return (await rows<{ id: string | null }>(db, text, values))[0]?.id ?? null;
}

/** Of a statement that always inserts, unless somebody's trigger or rule on the table says otherwise: not a job then. */
function insertedAs(id: string | null | undefined): Enqueued {
  if (id !== null && id !== undefined) return { id, inserted: true };
  throw new UnbrokerError('not-inserted', 'The jobs table did not take the row and gave no reason', {
    hint: 'Look for triggers and rules on it that are not of a migration, as one before insert that returns null.',
  });
}

async function insertedId(db: Queryable, text: string, values: unknown[]): Promise<Enqueued> {
  return insertedAs(await returnedId(db, text, values));
}

function storable(error: { readonly name: string; readonly message: string }) {
  return {
    name: storableText(error.name, 100),
    message: storableText(error.message, LIMITS.errorMessageLength),
  };
}

export function enqueueStore(schema: string) {
  const sql = createEnqueueStatements(schema);

  const single = (job: PreparedJob): (string | number | null)[] => [
    job.kind,
    job.payloadText,
    job.priority ?? null,
    // As text: pg writes a Date in this process's zone, to the minute, and zones were off by seconds until 1900.
    job.runAt?.toISOString() ?? null,
    job.delayMs ?? null,
    job.maxAttempts ?? null,
    json(job.headers),
    job.source ?? null,
    json(job.retryPolicy),
    job.orderingKey ?? null,
  ];

  /**
   * What a connection was told: when last that no worker sleeps, and whether it may say that its rows are checked. `refused`: it
   * had been told so by mistake, as one that goes from role to role; it is not asked again, since that cost a transaction.
   */
  const told = new WeakMap<Queryable, { nobodySleptAt: number; mayCheck: boolean | 'refused' }>();

  /** The statement that puts it in, and its parameters. */
  const insertOf = (job: PreparedJob, first: boolean, looks: boolean): [string, (string | null)[]] => {
    const { kind, payloadText, priority = 0, headers, dedupeKey } = job;
    if (dedupeKey !== undefined || !isPlain(job)) {
      const forms = dedupeKey === undefined ? sql.insertOne : sql.insertOnce;
      const values = single(job).map((value) => (value === null ? null : String(value)));
      if (dedupeKey !== undefined) values.push(dedupeKey);
      return [first ? forms.first : looks ? forms.looking : forms.unseen, values];
    }
    if (!first && priority === 0 && headers === undefined)
      return [looks ? sql.insertBare : sql.insertBareUnseen, [kind, payloadText]];
    const later = looks ? sql.insertPlain : sql.insertPlainUnseen;
    return [first ? sql.insertFirst : later, [kind, payloadText, String(priority), json(headers)]];
  };

  /**
   * Its id; null where no row went in. Who falls asleep looks once more, later than this connection may go by what it was told
   * (wake.ts). Nobody is woken for what is not due, and nothing learnt.
   */
  const insertKept = async (db: Queryable, keeping: Prepared, job: PreparedJob): Promise<string | null> => {
    let known = told.get(db);
    const now = performance.now();
    const due = job.runAt === undefined && job.delayMs === undefined;
    const looks = due && !(known !== undefined && now - known.nobodySleptAt < LOOK_EVERY_MS);
    const first = known?.mayCheck !== true;
    let row: Texts | null;
    try {
      row = await keeping.row(...insertOf(job, first, looks));
    } catch (error) {
      if (known?.mayCheck === true && isUnknownOrForbidden(error)) known.mayCheck = 'refused';
      // As pg does with its own: the stack that leads to the socket says nothing of who enqueued.
      if (error instanceof Error) Error.captureStackTrace(error);
      throw error;
    }
    if (row === null) return null;
    const [id = null, woke, mayCheck] = row;
    if (known === undefined) {
      known = { nobodySleptAt: Number.NEGATIVE_INFINITY, mayCheck: false };
      told.set(db, known);
    }
    if (first && known.mayCheck !== 'refused') known.mayCheck = mayCheck === 'true';
    if (woke === null && due) known.nobodySleptAt = now;
    return id;
  };

  return {
    /**
     * Inserts one job; with a dedupe key that is taken, answers the first job's id. `keeping`: `db`, but it keeps the plans of
     * statements, so no function has to. Only for those that do not read the table: what is planned while it is empty is a
     * scan of all of it, and stays.
     */
    enqueue(db: Queryable, job: PreparedJob, keeping?: Prepared): Promise<Enqueued> {
      if (job.dedupeKey !== undefined) return this.enqueueOnce(db, job, keeping);
      if (keeping !== undefined) return insertKept(db, keeping, job).then(insertedAs);
      if (!isPlain(job)) return insertedId(db, sql.enqueue, single(job));
      const values = [job.kind, job.payloadText, job.priority ?? null, json(job.headers)];
      return insertedId(db, sql.enqueuePlain, values);
    },

    async enqueueOnce(db: Queryable, job: PreparedJob, keeping?: Prepared, maxTries = 3): Promise<Enqueued> {
      const id =
        keeping === undefined
          ? await returnedId(db, sql.enqueueOnce, [...single(job), job.dedupeKey])
          : await insertKept(db, keeping, job);
      if (id !== null) return { id, inserted: true };
      const first = await returnedId(db, sql.findByDedupeKey, [job.kind, job.dedupeKey]);
      if (first !== null) return { id: first, inserted: false };
      // Gone between the two statements (pruned): one more try inserts it.
      if (maxTries > 1) return this.enqueueOnce(db, job, keeping, maxTries - 1);
      throw new UnbrokerError('dedupe-unsettled', 'The dedupe key was taken and gone three times in a row', {
        hint: 'Enqueue again; if it stays, look for a job that prunes finished rows at once.',
      });
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
        column(jobs, (j) => j.runAt?.toISOString()),
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
  };
}
