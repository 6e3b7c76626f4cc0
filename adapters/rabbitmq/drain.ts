/**
 * Imports one group of queues until it is empty: takes the group's lease, counts, works out after a crash what the
 * broker still holds of what is already written, imports, closes the books. A lost connection is a crash like any
 * other: the next attempt starts by counting. It never guesses; what numbers cannot decide ends as `drain-ambiguous`.
 */
import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { EXIT, UnbrokerError } from '../../src/errors.js';
import type { Queryable } from '../../src/jobs/job.js';
import type { Store } from '../../src/jobs/store.js';
import { errorFields, type Log } from '../../src/log.js';
import { type DrainStep, leaseLost } from './batch-writer.js';
import { findBack } from './batches.js';
import { type Books, closeBooks, type Totals, taken } from './books.js';
import { type Broker, connectBroker } from './broker.js';
import type { Rules } from './drain-config.js';
import { ExpectedRows } from './expected.js';
import { type ImportEnd, Importer, type QueueToDrain } from './importer.js';
import { createLedger, type Holder, type Ledger, type RunKey, type RunRow } from './ledger.js';
import { sourceOf } from './mapping.js';
import { type GroupCount, stableCount } from './totals.js';

/** A pool whose clients can be held for a transaction. */
export interface DrainPool extends Queryable {
  connect(): Promise<DrainClient>;
}

export interface DrainClient extends Queryable {
  release(destroy?: boolean): void;
  on?(event: 'error', listener: (error: Error) => void): unknown;
}

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
  /** Aborted: stops at the end of a batch, resumable. */
  readonly signal?: AbortSignal | undefined;
  /** When counts cannot tell which rows came back. `stop` (default); `keep`: import all again, doubles rather than gaps;
   *  `absorb`: take what looks alike for the same, gaps rather than doubles. */
  readonly whenAmbiguous?: 'stop' | 'keep' | 'absorb';
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
const MAX_BATCH = 1_000;
/** Attempts in a row without one batch committed between them. */
const MAX_FRUITLESS_ATTEMPTS = 6;
const FIRST_BACKOFF_MS = 500;
const MAX_BACKOFF_MS = 10_000;
/** The management API's numbers may be this old. */
const UNACKED_WAIT_MS = 15_000;
const POLL_MS = 500;

/** Throws `drain-busy`, `drain-not-frozen`, `drain-ambiguous` (exit 3), `drain-stalled`, `drain-lease-lost`, `amqp-…`. */
export async function drainGroup(options: DrainOptions): Promise<DrainResult> {
  const holder: Holder = { name: randomUUID(), host: hostname(), pid: process.pid };
  const drain = new GroupDrain(options, holder);
  let fruitless = 0;
  for (;;) {
    const before = drain.committed;
    try {
      return await drain.attempt();
    } catch (error) {
      if (options.signal?.aborted && isAbort(error)) return drain.interrupted();
      fruitless = drain.committed > before ? 0 : fruitless + 1;
      if (!isTransient(error) || fruitless >= MAX_FRUITLESS_ATTEMPTS) throw translate(error);
      options.log.warn(
        { group: options.group.name, attempt: fruitless, ...errorFields(error) },
        'a connection was lost, trying again',
      );
      await sleep(Math.min(FIRST_BACKOFF_MS * 2 ** fruitless, MAX_BACKOFF_MS), undefined, {
        signal: options.signal,
      }).catch(() => undefined);
      if (options.signal?.aborted) return drain.interrupted();
    }
  }
}

class GroupDrain {
  readonly #ledger: Ledger;
  readonly #leaseMs: number;
  #run: RunRow | undefined;
  #totals: Totals | undefined;
  /** Steps `committed` so far: whether an attempt got anywhere. */
  committed = 0;

  constructor(
    private readonly options: DrainOptions,
    private readonly holder: Holder,
  ) {
    this.#ledger = createLedger(options.store.schema);
    this.#leaseMs = options.leaseMs ?? LEASE_MS;
  }

  async attempt(): Promise<DrainResult> {
    const { options } = this;
    const broker = await connectBroker(options.amqpUrl);
    let client: DrainClient | undefined;
    let clean = false;
    let stopRenewing = (): void => undefined;
    try {
      client = await options.pool.connect();
      // A client that dies in our hands reports it on the query that we wait for.
      client.on?.('error', () => undefined);
      const resumed = this.#run !== undefined;
      const run = await this.#openRun(broker, resumed);
      stopRenewing = this.#keepLease(run.id);
      const { initial, expected } = await this.#position(broker, run);
      const end = await this.#import(broker, client, run, initial, expected);
      const result = await this.#close(run, initial, end, expected.size);
      clean = true;
      return result;
    } finally {
      stopRenewing();
      // The client first: it may hold the lease row.
      client?.release(!clean);
      await broker.close();
      if (this.#run !== undefined)
        await this.#ledger.release(options.pool, this.#run.id, this.holder.name).catch(() => false);
    }
  }

  /** What can be said after Ctrl-C in the middle of an attempt. */
  interrupted(): DrainResult {
    const run = this.#run;
    const totals = this.#totals ?? { rows: 0, unmapped: 0, excluded: 0, expired: 0, absorbed: 0, inexact: 0 };
    const initial = run?.initial ?? 0;
    const books = closeBooks({
      ...{ initial, totals, interrupted: true, expectedLeft: 0, doubtfulIds: 0 },
      remaining: initial - taken(totals),
    });
    return {
      runId: run?.id ?? '',
      group: this.options.group.name,
      interrupted: true,
      before: run?.before ?? {},
      books,
    };
  }

  /** Takes the group's lease, on a new run or on one that was left open. */
  async #openRun(broker: Broker, resumed: boolean): Promise<RunRow> {
    const { pool, group } = this.options;
    const key: RunKey = { broker: broker.cluster, vhost: broker.vhost, group: group.name };
    const queues = group.queues.map((queue) => queue.name);
    const fresh = await this.#ledger.openRun(pool, key, queues, this.holder, this.#leaseMs);
    const run = fresh ?? (await this.#takeOver(key));
    if (fresh !== null && resumed) throw leaseLost();
    this.#run = run;
    const unknown = run.queues.filter((queue) => !queues.includes(queue));
    if (unknown.length > 0) {
      // They were counted at the start. A wait queue that has expired since is empty, but it must be asked.
      this.options.log.info(
        { queues: unknown },
        'queues of the interrupted run are not in the group any more',
      );
    }
    return run;
  }

  async #takeOver(key: RunKey): Promise<RunRow> {
    const { pool } = this.options;
    let seen: RunRow | null = null;
    const deadline = performance.now() + this.#leaseMs + 5_000;
    for (;;) {
      this.options.signal?.throwIfAborted();
      const found = await this.#ledger.findRun(pool, key);
      if (found === null) throw busy('it has just been finished');
      const gone = found.holder === this.holder.name || !isAlive(found) ? found.holder : null;
      const taken = await this.#ledger.takeRun(pool, found.id, this.holder, this.#leaseMs, gone);
      if (taken !== null) return taken;
      const renewed = seen !== null && found.leaseExpiresAt > seen.leaseExpiresAt;
      if (renewed || performance.now() > deadline) {
        throw busy(`process ${found.holderPid} on ${found.holderHost} works on it`);
      }
      seen = found;
      await sleep(POLL_MS, undefined, { signal: this.options.signal });
    }
  }

  /** Renews the lease while nothing is written, on another connection than the batches. */
  #keepLease(id: string): () => void {
    const timer = setInterval(() => {
      this.#ledger.renew(this.options.pool, id, this.holder.name, this.#leaseMs).catch(() => undefined);
    }, this.#leaseMs / 10);
    return () => clearInterval(timer);
  }

  /** Where the group stands: a first count, or what a crash left behind. */
  async #position(broker: Broker, run: RunRow): Promise<{ initial: number; expected: ExpectedRows }> {
    const queues = run.queues.length > 0 ? run.queues : this.options.group.queues.map((queue) => queue.name);
    const count = await this.#count(broker, queues);
    this.#totals = await this.#ledger.totals(this.options.pool, run.id);
    if (run.initial === null) return this.#start(broker, run, count);
    const expected = await this.#resume(broker, run, run.initial, queues, count);
    return { initial: run.initial, expected };
  }

  #count(broker: Broker, queues: readonly string[]): Promise<GroupCount> {
    const { signal, maxConsumerWaitMs } = this.options;
    return stableCount(broker, queues, {
      signal,
      ...(maxConsumerWaitMs === undefined ? {} : { maxConsumerWaitMs }),
    });
  }

  async #start(broker: Broker, run: RunRow, count: GroupCount) {
    const { pool, group } = this.options;
    const queues = group.queues.map((queue) => queue.name);
    const unacked = await this.#settledUnacked(queues);
    if (unacked !== null && unacked > 0) throw unackedError(unacked);
    // What was unacked a moment ago is ready now.
    const final = unacked === null ? count : await this.#count(broker, queues);
    if (!(await this.#ledger.setInitial(pool, run.id, this.holder.name, final.byQueue, final.total)))
      throw leaseLost();
    this.#run = { ...run, initial: final.total, before: final.byQueue };
    return { initial: final.total, expected: new ExpectedRows([]) };
  }

  /** Waits for the management API to say zero; its numbers lag. Null = unknown. */
  async #settledUnacked(queues: readonly string[]): Promise<number | null> {
    const { unacked, signal, maxConsumerWaitMs } = this.options;
    if (unacked === undefined) return null;
    const deadline = performance.now() + (maxConsumerWaitMs ?? UNACKED_WAIT_MS);
    for (;;) {
      const now = await unacked(queues);
      if (now === null || now === 0 || performance.now() > deadline) return now;
      await sleep(POLL_MS, undefined, { signal });
    }
  }

  /** Which committed batches the broker has again, from the number of messages alone. */
  async #resume(broker: Broker, run: RunRow, initial: number, queues: readonly string[], first: GroupCount) {
    const { pool, log } = this.options;
    let count = first;
    const open = await this.#ledger.committedBatches(pool, run.id);
    const waiting = await this.#ledger.expectedRows(pool, run.id);
    const missingOf = (total: number) => taken(this.#totals as Totals) - (initial - total) - waiting.length;
    let search = findBack(open, missingOf(count.total));
    if (search.type === 'ambiguous') {
      // Perhaps somebody holds messages unacked: wait until nobody does, and count again.
      await this.#settledUnacked(queues);
      count = await this.#count(broker, queues);
      search = findBack(open, missingOf(count.total));
    }
    const choice = this.options.whenAmbiguous ?? 'stop';
    if (search.type === 'ambiguous' && choice === 'stop') {
      throw ambiguous({
        initial,
        taken: taken(this.#totals as Totals),
        remaining: count.total,
        open: open.length + (waiting.length > 0 ? 1 : 0),
        ways: search.ways,
      });
    }
    const all = open.map(({ id }) => id);
    const back = search.type === 'found' ? search.back : choice === 'absorb' ? all : [];
    const acked = all.filter((id) => !back.includes(id));
    if (!(await this.#ledger.settleBatches(pool, run.id, this.holder.name, back, acked))) throw leaseLost();
    if (search.type === 'ambiguous' && choice === 'keep')
      await this.#ledger.forgetExpected(pool, run.id, this.holder.name);
    await this.#ledger.setInterrupted(pool, run.id, this.holder.name, search.type === 'ambiguous');
    this.#run = { ...run, interrupted: true };
    const expected = new ExpectedRows(await this.#ledger.expectedRows(pool, run.id));
    log.info(
      { group: this.options.group.name, run: run.id, remaining: count.total, expected: expected.size },
      'resuming',
    );
    return expected;
  }

  async #import(
    broker: Broker,
    client: DrainClient,
    run: RunRow,
    initial: number,
    expected: ExpectedRows,
  ): Promise<ImportEnd> {
    const { options } = this;
    const { rate, rules } = options;
    const maxBatch = Math.min(
      options.maxBatch ?? MAX_BATCH,
      rate === undefined ? MAX_BATCH : Math.max(1, Math.ceil(rate / 4)),
    );
    const importer = new Importer({
      broker,
      writer: {
        client,
        store: options.store,
        ledger: this.#ledger,
        run: { id: run.id, holder: this.holder.name, leaseMs: this.#leaseMs },
        onStep: (step) => {
          if (step === 'committed') this.committed += 1;
          options.onStep?.(step);
        },
      },
      queues: options.group.queues,
      initial,
      totals: this.#totals as Totals,
      expected,
      mapping: {
        source: sourceOf(broker.vhost, run.id),
        rules,
        trustDeliveryCount: this.#run?.interrupted !== true,
      },
      maxBatch,
      rate: rate ?? null,
      signal: options.signal,
      onProgress: (takenSoFar) => options.onProgress?.({ taken: takenSoFar, initial }),
    });
    options.onProgress?.({ taken: taken(this.#totals as Totals), initial });
    return importer.run();
  }

  async #close(run: RunRow, initial: number, end: ImportEnd, expectedLeft: number): Promise<DrainResult> {
    this.#totals = end.totals;
    if (end.interrupted) return this.interrupted();
    const { pool, group } = this.options;
    const books = closeBooks({
      ...{ initial, totals: end.totals, remaining: end.remaining, expectedLeft },
      interrupted: this.#run?.interrupted === true,
      doubtfulIds: await this.#ledger.doubtfulIds(pool, run.id),
    });
    if (!(await this.#ledger.finish(pool, run.id, this.holder.name, books))) throw leaseLost();
    return { runId: run.id, group: group.name, interrupted: false, before: this.#run?.before ?? {}, books };
  }
}

const isSameMachine = (run: RunRow): boolean => run.holderHost === hostname();

/** False only when the holder certainly is not: a process of this machine that does not exist. */
function isAlive(run: RunRow): boolean {
  if (!isSameMachine(run) || run.holderPid === process.pid) return true;
  try {
    process.kill(run.holderPid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

function busy(who: string): UnbrokerError {
  return new UnbrokerError('drain-busy', `Another drainer has this group: ${who}`, {
    hint: 'Let it finish, or stop it and run again: one drainer per group.',
  });
}

function unackedError(unacked: number): UnbrokerError {
  return new UnbrokerError(
    'drain-not-frozen',
    `${unacked} messages are delivered to somebody and not acknowledged`,
    {
      hint: 'Stop the consumers and close their connections; the messages then return to their queues.',
    },
  );
}

interface AmbiguousCounts {
  readonly initial: number;
  readonly taken: number;
  readonly remaining: number;
  readonly open: number;
  readonly ways: number;
}

function ambiguous({ initial, taken: written, remaining, open, ways }: AmbiguousCounts): UnbrokerError {
  const back = written - (initial - remaining);
  return new UnbrokerError(
    'drain-ambiguous',
    `AMBIGUOUS: ${initial} were there, ${written} are written, ${remaining} remain, so ${back} written ones should be among them, but ${ways} combinations of the ${open} unproved batches fit`,
    {
      hint: 'Nothing was changed. Go on with --when-ambiguous keep (imports all of them: doubles at worst) or --when-ambiguous absorb (takes alike for the same: gaps at worst).',
      exitStatus: EXIT.unbalanced,
    },
  );
}

const isAbort = (error: unknown): boolean => (error as { name?: unknown }).name === 'AbortError';

/** Lost connections, in the words of both clients; everything else would only repeat itself. */
function isTransient(error: unknown): boolean {
  if (error instanceof UnbrokerError) return error.code === 'amqp-unreachable';
  const { code } = error as { code?: unknown };
  if (typeof code === 'string' && /^(08|57P|25P03|40|53300)/.test(code)) return true;
  if (typeof code === 'string' && /^E[A-Z]+$/.test(code)) return true;
  const message = error instanceof Error ? error.message : '';
  return /connection|channel|closed|heartbeat|consumer|terminat|timeout|socket/i.test(message);
}

function translate(error: unknown): unknown {
  if (error instanceof UnbrokerError || !isTransient(error)) return error;
  return new UnbrokerError('drain-interrupted', 'The drain lost a connection and could not go on', {
    hint: 'What is committed is safe. Check the broker and the database, then run the same command again: it resumes.',
    cause: error,
  });
}
