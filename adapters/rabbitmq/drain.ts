/**
 * Imports one group of queues until it is empty: takes the group's lease, counts, works out after a crash what the
 * broker still holds of what is already written, imports, closes the books. A lost connection is a crash like any
 * other: the next attempt starts by counting. It never guesses; what numbers cannot decide ends as `drain-ambiguous`.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { UnbrokerError } from '../../src/errors.js';
import type { Queryable } from '../../src/jobs/job.js';
import { patient } from '../../src/jobs/patience.js';
import type { Store } from '../../src/jobs/store.js';
import { errorFields, type Log } from '../../src/log.js';
import type { DrainStep } from './batch-writer.js';
import { type Books, closeBooks, type Totals, taken } from './books.js';
import { type Broker, connectBroker } from './broker.js';
import { borrowClient, type DrainClient, type DrainPool, patientClient, returnClient } from './clients.js';
import type { Rules } from './drain-config.js';
import { type ImportEnd, Importer, type QueueToDrain } from './importer.js';
import { createLedger, type Ledger, type RunKey, type RunRow } from './ledger.js';
import { isLostConnection } from './lost-connection.js';
import { sourceOf } from './mapping.js';
import { findPosition, type Position, type WhenAmbiguous } from './resume.js';
import { leaseLost, RunLease } from './run-lease.js';

export interface DrainProgress {
  /** Messages with a ledger row, over all attempts. */
  readonly taken: number;
  readonly initial: number;
}

export interface DrainOptions {
  readonly amqpUrl: string;
  readonly pool: DrainPool;
  readonly store: Store;
  readonly group: { readonly name: string; readonly queues: readonly QueueToDrain[] };
  readonly rules: Rules;
  readonly log: Log;
  /** Messages per second; default as fast as it goes. */
  readonly rate?: number | undefined;
  /** Most messages of one transaction. Default 1,000; 1 to 1,000. */
  readonly maxBatch?: number;
  /** Default 30,000. */
  readonly leaseMs?: number;
  /** A broker that says nothing for twice this long is gone. Default 20. */
  readonly heartbeatS?: number;
  /**
   * How long the servers may take to answer. Default 15,000 for the broker, 60,000 for a step of a batch, a COMMIT among
   * them, and 300,000 for any other question to the database.
   */
  readonly answerWithinMs?: number;
  /** Aborted: stops at the end of a batch, resumable. */
  readonly signal?: AbortSignal | undefined;
  /** When counts cannot tell which rows came back. `stop` (default); `keep`: import all again, doubles rather than gaps;
   *  `absorb`: take what looks alike for the same, gaps rather than doubles. */
  readonly whenAmbiguous?: WhenAmbiguous;
  /** How long consumers, and what they hold unacked, may take to go before the drain refuses. Default 10,000 and 15,000. */
  readonly maxConsumerWaitMs?: number;
  /** Unacknowledged messages of these queues as the management API sees them; null = unknown. */
  readonly unacked?: ((queues: readonly string[]) => Promise<number | null>) | undefined;
  readonly onProgress?: (progress: DrainProgress) => void;
  /** Called synchronously at each step of each batch: for tests that end a drain exactly there. */
  readonly onStep?: (step: DrainStep) => void;
}

export interface DrainResult {
  readonly runId: string;
  readonly group: string;
  readonly interrupted: boolean;
  /** Before and after, by queue. */
  readonly before: Readonly<Record<string, number>>;
  readonly books: Books;
}

const LEASE_MS = 30_000;
/** Database clients of one drain; the pool needs one more, for the lease. */
const LANES = 2;
const MAX_BATCH = 1_000;
const BATCH_WITHIN_MS = 60_000;
/** Some read the whole ledger of a million messages. */
const DATABASE_WITHIN_MS = 300_000;
/** Attempts in a row without one batch committed between them. */
const MAX_FRUITLESS_ATTEMPTS = 6;
const FIRST_BACKOFF_MS = 500;
const MAX_BACKOFF_MS = 10_000;
const NOTHING: Totals = { rows: 0, unmapped: 0, excluded: 0, expired: 0, absorbed: 0, inexact: 0 };

/** Throws `drain-busy`, `drain-not-frozen`, `drain-ambiguous` (exit 3), `drain-stalled`, `drain-lease-lost`, `amqp-…`. */
export async function drainGroup(options: DrainOptions): Promise<DrainResult> {
  const drain = new GroupDrain(options);
  const { signal, log, group } = options;
  let fruitless = 0;
  for (;;) {
    const before = drain.committed;
    try {
      return await drain.attempt();
    } catch (error) {
      if (signal?.aborted && isAbort(error)) return drain.interrupted();
      fruitless = drain.committed > before ? 0 : fruitless + 1;
      if (!isTransient(error) || fruitless >= MAX_FRUITLESS_ATTEMPTS) throw translate(error);
      log.warn(
        { group: group.name, attempt: fruitless, ...errorFields(error) },
        'a connection was lost, trying again',
      );
      const pauseMs = Math.min(FIRST_BACKOFF_MS * 2 ** fruitless, MAX_BACKOFF_MS);
      await sleep(pauseMs, undefined, { signal }).catch(() => undefined);
      if (signal?.aborted) return drain.interrupted();
    }
  }
}

class GroupDrain {
  readonly #ledger: Ledger;
  readonly #lease: RunLease;
  readonly #pool: Queryable;
  #run: RunRow | undefined;
  #totals: Totals = NOTHING;
  /** Batches committed so far: whether an attempt got anywhere. */
  committed = 0;

  constructor(private readonly options: DrainOptions) {
    const { pool, store, signal, leaseMs = LEASE_MS, answerWithinMs = DATABASE_WITHIN_MS } = options;
    this.#pool = patient(pool, answerWithinMs);
    this.#ledger = createLedger(store.schema);
    this.#lease = new RunLease(this.#pool, this.#ledger, leaseMs, signal);
  }

  async attempt(): Promise<DrainResult> {
    const { pool, amqpUrl, heartbeatS, answerWithinMs } = this.options;
    const broker = await connectBroker(amqpUrl, {
      ...(heartbeatS === undefined ? {} : { heartbeatS }),
      ...(answerWithinMs === undefined ? {} : { answerWithinMs }),
    });
    const clients: DrainClient[] = [];
    let clean = false;
    let stopRenewing = (): void => undefined;
    try {
      for (let lane = 0; lane < LANES; lane += 1) {
        clients.push(await borrowClient(pool));
      }
      const run = await this.#openRun(broker);
      stopRenewing = this.#lease.keep(run.id);
      const position = await this.#position(broker, run);
      const end = await this.#import(broker, clients, position);
      const result = await this.#close(end, position);
      clean = true;
      return result;
    } finally {
      stopRenewing();
      // The clients first: one may hold the lease row.
      for (const client of clients) returnClient(client, clean);
      await broker.close();
      if (this.#run !== undefined) await this.#lease.release(this.#run.id);
    }
  }

  async #openRun(broker: Broker): Promise<RunRow> {
    const { group } = this.options;
    const key: RunKey = { broker: broker.cluster, vhost: broker.vhost, group: group.name };
    const run = await this.#lease.take(
      key,
      group.queues.map((queue) => queue.name),
    );
    // Ours was finished by another drainer meanwhile.
    if (this.#run !== undefined && this.#run.id !== run.id) throw leaseLost();
    this.#run = run;
    return run;
  }

  async #position(broker: Broker, run: RunRow): Promise<Position> {
    const { signal, maxConsumerWaitMs, unacked, whenAmbiguous = 'stop', log, group } = this.options;
    const position = await findPosition(run, {
      ...{ pool: this.#pool, ledger: this.#ledger, broker, holder: this.#lease.holder.name },
      ...{ whenAmbiguous, signal, maxConsumerWaitMs, unacked },
    });
    this.#run = position.run;
    this.#totals = position.totals;
    const { initial, expected } = position;
    if (run.initial !== null)
      log.info({ group: group.name, run: run.id, initial, expected: expected.size }, 'resuming');
    return position;
  }

  async #import(
    broker: Broker,
    clients: readonly DrainClient[],
    { run, initial, totals, expected }: Position,
  ): Promise<ImportEnd> {
    const { rate, rules, store, group, signal, onStep, onProgress } = this.options;
    const { maxBatch = MAX_BATCH, answerWithinMs = BATCH_WITHIN_MS } = this.options;
    const importer = new Importer({
      ...{ broker, clients: clients.map((client) => patientClient(client, answerWithinMs)) },
      writer: {
        ...{ store, ledger: this.#ledger },
        run: { id: run.id, holder: this.#lease.holder.name, leaseMs: this.#lease.leaseMs },
        onStep: (step) => {
          if (step === 'committed') this.committed += 1;
          onStep?.(step);
        },
      },
      ...{ queues: group.queues, initial, totals, expected, signal, rate: rate ?? null },
      mapping: { source: sourceOf(broker.vhost, run.id), rules, trustDeliveryCount: !run.interrupted },
      // A slow drain in small steps: it stops sooner and holds less.
      maxBatch: rate === undefined ? maxBatch : Math.min(maxBatch, Math.max(1, Math.ceil(rate / 4))),
      onProgress: (takenSoFar) => onProgress?.({ taken: takenSoFar, initial }),
    });
    onProgress?.({ taken: taken(totals), initial });
    return importer.run();
  }

  async #close(end: ImportEnd, { run, initial, expected }: Position): Promise<DrainResult> {
    this.#totals = end.totals;
    if (end.interrupted) return this.interrupted();
    const { log, group } = this.options;
    const doubtfulIds = await this.#ledger.doubtfulIds(this.#pool, run.id);
    if (doubtfulIds > 0) {
      log.warn(
        { group: group.name, run: run.id, ids: doubtfulIds },
        'message ids came with different contents, all of them are kept',
      );
    }
    const books = closeBooks({
      ...{ initial, totals: end.totals, remaining: end.remaining },
      ...{ interrupted: run.interrupted, expectedLeft: expected.size },
      doubtfulIds,
    });
    if (!(await this.#ledger.finish(this.#pool, run.id, this.#lease.holder.name, books))) throw leaseLost();
    return this.#result(false, books);
  }

  /** What can be said after Ctrl-C: the rest is taken to be still there. */
  interrupted(): DrainResult {
    const initial = this.#run?.initial ?? 0;
    const remaining = initial - taken(this.#totals);
    const known = {
      initial,
      totals: this.#totals,
      remaining,
      interrupted: true,
      expectedLeft: 0,
      doubtfulIds: 0,
    };
    return this.#result(true, closeBooks(known));
  }

  #result(interrupted: boolean, books: Books): DrainResult {
    const { id = '', before } = this.#run ?? {};
    return { runId: id, group: this.options.group.name, interrupted, before: before ?? {}, books };
  }
}

const isAbort = (error: unknown): boolean => (error as { name?: unknown }).name === 'AbortError';

const PASSING: readonly string[] = ['amqp-unreachable', 'amqp-silent', 'database-slow'];

/** What another attempt may heal. */
export function isTransient(error: unknown): boolean {
  if (error instanceof UnbrokerError) return PASSING.includes(error.code);
  return isLostConnection(error);
}

function translate(error: unknown): unknown {
  if (error instanceof UnbrokerError || !isTransient(error)) return error;
  return new UnbrokerError('drain-interrupted', 'The drain lost a connection and could not go on', {
    hint: 'What is committed is safe. Check the broker and the database, then run the same command again: it resumes.',
    cause: error,
  });
}
