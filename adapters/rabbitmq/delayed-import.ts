/**
 * Imports what the delayed-message exchanges of a virtual host hold: hold entries, write their rows, remove them, page by
 * page, each step repeatable. An entry is named by its key, so nothing is counted or guessed after a crash: one that is
 * held and has rows is removed without others, one that is held and has none is imported. It knows no queue: what is in
 * one is drained.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { EXIT, UnbrokerError } from '../../src/errors.js';
import type { Queryable } from '../../src/jobs/job.js';
import { patient } from '../../src/jobs/patience.js';
import type { Store } from '../../src/jobs/store.js';
import { errorFields, type Log } from '../../src/log.js';
import { type DrainStep, type PreparedMessage, writeBatch } from './batch-writer.js';
import { closeBooks, type Totals } from './books.js';
import { connectBroker } from './broker.js';
import { borrowClient, type DrainClient, type DrainPool, patientClient, returnClient } from './clients.js';
import { checkSameCluster, ctlTakeDelayed, type RunCtl } from './ctl.js';
import { createDelayedLedger, type DelayedLedger, type EntryScope } from './delayed-ledger.js';
import { type DelayedContext, delayedMessages, mapDelayed } from './delayed-rows.js';
import type { HeldEntry, TakenPage, TakeRequest } from './delayed-table.js';
import { type DrainProgress, isTransient } from './drain.js';
import type { Rules } from './drain-config.js';
import { createLedger, type Ledger, type RunKey, type RunRow } from './ledger.js';
import { sourceOf } from './mapping.js';
import { leaseLost, RunLease } from './run-lease.js';

/** Held: kept from delivery. Deleted: gone from the broker. */
export type DelayedStep = DrainStep | 'held' | 'deleted';

export interface DelayedOptions {
  readonly amqpUrl: string;
  readonly pool: DrainPool;
  readonly store: Store;
  readonly ctl: RunCtl;
  readonly rules: Rules;
  readonly factsOf: DelayedContext['factsOf'];
  readonly log: Log;
  /** Entries that are held at a time, of each node; 1 to 300. Default 300. */
  readonly page?: number;
  /** Default 60,000. */
  readonly leaseMs?: number;
  /** Aborted: stops at the end of a page and gives back what is held. */
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: (progress: DrainProgress) => void;
  /** For tests that end an import exactly there. */
  readonly onStep?: (step: DelayedStep) => void;
}

export interface DelayedResult {
  readonly runId: string;
  readonly interrupted: boolean;
  /** Entries imported, over all attempts of the run. */
  readonly entries: number;
  /** Of these: jobs for the queues that they would have reached, jobs of kind unmapped, cancelled ones, and none. */
  readonly totals: Totals;
  /** Not imported: still in the tables. */
  readonly remaining: number;
}

/** A run of its own, whatever groups the queues are in. */
export const DELAYED_GROUP = 'x-delayed-message';
const PAGE = 300;
const PAGE_BYTES = 4 * 1_048_576;
/** A page waits for rabbitmqctl, which takes a second on a quiet machine and its limit is a minute. */
const LEASE_MS = 90_000;
const DATABASE_WITHIN_MS = 60_000;
const MAX_FRUITLESS_ATTEMPTS = 6;
const FIRST_BACKOFF_MS = 500;
const MAX_BACKOFF_MS = 10_000;

/** Throws `delayed-unknown-form`, `delayed-unfinished`, `drain-busy`, `drain-lease-lost`, `rabbitmqctl-…`, `amqp-…`. */
export async function importDelayed(options: DelayedOptions): Promise<DelayedResult> {
  const { signal, log } = options;
  const work = new DelayedImport(options);
  let fruitless = 0;
  for (;;) {
    const before = work.steps;
    try {
      return await work.attempt();
    } catch (error) {
      fruitless = work.steps > before ? 0 : fruitless + 1;
      if (signal?.aborted || !mayPass(error) || fruitless >= MAX_FRUITLESS_ATTEMPTS) throw error;
      log.warn({ attempt: fruitless, ...errorFields(error) }, 'a connection was lost, trying again');
      await sleep(Math.min(FIRST_BACKOFF_MS * 2 ** fruitless, MAX_BACKOFF_MS), undefined, { signal }).catch(
        () => undefined,
      );
    }
  }
}

/** Gives what an import held and did not write back to the exchange's timer. Answers how many entries. */
export async function releaseDelayed(options: DelayedOptions): Promise<number> {
  return new DelayedImport(options).release();
}

/** A broker that restarts answers its shell with an error. */
const mayPass = (error: unknown): boolean =>
  isTransient(error) || (error instanceof UnbrokerError && error.code === 'rabbitmqctl-failed');

class DelayedImport {
  readonly #ledger: Ledger;
  readonly #delayed: DelayedLedger;
  readonly #lease: RunLease;
  readonly #pool: Queryable;
  #run: RunRow | undefined;
  /** Pages written so far: whether an attempt got anywhere. */
  steps = 0;

  constructor(private readonly options: DelayedOptions) {
    const { pool, store, signal, leaseMs = LEASE_MS } = options;
    this.#pool = patient(pool, DATABASE_WITHIN_MS);
    this.#ledger = createLedger(store.schema);
    this.#delayed = createDelayedLedger(store.schema);
    this.#lease = new RunLease(this.#pool, this.#ledger, leaseMs, signal);
  }

  async attempt(): Promise<DelayedResult> {
    const scope = await this.#scope();
    return this.#leased(scope, async (run, client) => {
      const end = await this.#pages(scope, run, client);
      return this.#close(run, end);
    });
  }

  async release(): Promise<number> {
    const scope = await this.#scope();
    return this.#leased(scope, async (run) => {
      const given = await this.#letGo(scope, []);
      await this.#delayed.settle(this.#pool, run.id, this.#lease.holder.name);
      await this.#finish(run, 0);
      return given;
    });
  }

  /** Which broker it is. The connection is for that alone. */
  async #scope(): Promise<EntryScope> {
    const broker = await connectBroker(this.options.amqpUrl);
    try {
      await checkSameCluster(this.options.ctl, broker.cluster);
      return { broker: broker.cluster, vhost: broker.vhost };
    } finally {
      await broker.close();
    }
  }

  async #leased<T>(scope: EntryScope, work: (run: RunRow, client: DrainClient) => Promise<T>): Promise<T> {
    const client = await borrowClient(this.options.pool);
    let clean = false;
    let stopRenewing = (): void => undefined;
    try {
      const key: RunKey = { ...scope, group: DELAYED_GROUP };
      const run = await this.#lease.take(key, [], 'delayed');
      if (this.#run !== undefined && this.#run.id !== run.id) throw leaseLost();
      this.#run = run;
      stopRenewing = this.#lease.keep(run.id);
      const result = await work(run, client);
      clean = true;
      return result;
    } finally {
      stopRenewing();
      returnClient(client, clean);
      if (this.#run !== undefined) await this.#lease.release(this.#run.id);
    }
  }

  async #pages(scope: EntryScope, run: RunRow, client: DrainClient) {
    const { page = PAGE, signal, onStep, onProgress } = this.options;
    const pool = this.#pool;
    const holder = this.#lease.holder.name;
    let initial = run.initial;
    let done: readonly string[] = [];
    for (;;) {
      const { entries, unreadable, left, held } = await this.#take(scope, { done, hold: page });
      if (unreadable.length > 0) throw unknownForm(unreadable.length);
      onStep?.(done.length > 0 ? 'deleted' : 'held');
      // Whatever was written before is not among what is held now, or it is known below and removed with the next page.
      const known = await this.#delayed.known(
        pool,
        scope,
        entries.map(({ id }) => id),
      );
      if (known.size === 0) await this.#delayed.settle(pool, run.id, holder);
      const imported = await this.#delayed.count(pool, run.id);
      if (initial === null) {
        initial = left + held - known.size;
        if (!(await this.#ledger.setInitial(pool, run.id, holder, {}, initial))) throw leaseLost();
      }
      onProgress?.({ taken: imported, initial: Math.max(initial, imported + left + held - known.size) });
      if (held === 0 && left === 0) return { remaining: 0, interrupted: false };
      if (signal?.aborted) {
        const given = await this.#letGo(scope, [...known]);
        return { remaining: left + given, interrupted: true };
      }
      const fresh = entries.filter(({ id }) => !known.has(id));
      if (fresh.length > 0) await this.#write(scope, run, client, fresh);
      done = entries.map(({ id }) => id);
    }
  }

  /** The rows of these entries, and that they have them, in one transaction. */
  async #write(scope: EntryScope, run: RunRow, client: DrainClient, entries: readonly HeldEntry[]) {
    const { rules, factsOf, store, onStep } = this.options;
    const source = sourceOf(scope.vhost, run.id);
    const context: DelayedContext = { source, rules, factsOf, nowMs: Date.now() };
    const messages: PreparedMessage[] = [];
    const dueMs: number[] = [];
    for (const entry of entries) {
      const rows = delayedMessages(entry, messages.length + 1, context);
      messages.push(...rows);
      dueMs.push(...rows.map(() => entry.dueMs));
    }
    onStep?.('prepared');
    await writeBatch(
      {
        ...{ client: patientClient(client, DATABASE_WITHIN_MS), store, ledger: this.#ledger },
        run: { id: run.id, holder: this.#lease.holder.name, leaseMs: this.#lease.leaseMs },
        onStep: (step) => onStep?.(step),
        also: (db, batch) => this.#delayed.record(db, scope, run.id, batch, entries),
        mapCarefully: ({ delivery, position, mapped }) =>
          mapped.job === null ? mapped : mapDelayed(delivery, dueMs[position - 1] as number, context, true),
      },
      { queue: DELAYED_GROUP, messages, absorbed: [], size: messages.length, lastTag: 0 },
      [],
    );
    this.steps += 1;
    onStep?.('committed');
  }

  /** Removes what is held and has rows, gives the rest back. Answers how many entries went back. */
  async #letGo(scope: EntryScope, written: readonly string[]): Promise<number> {
    let done = written;
    let back: readonly string[] = [];
    let given = 0;
    for (;;) {
      const { entries, unreadable, held } = await this.#take(scope, { done, back, hold: 0 });
      given += back.length;
      if (held === 0) return given;
      const ids = [...entries.map(({ id }) => id), ...unreadable];
      const known = await this.#delayed.known(this.#pool, scope, ids);
      done = [...known];
      back = ids.filter((id) => !known.has(id));
    }
  }

  /** Over all nodes; an id that a node does not know it passes over. */
  async #take(
    { vhost }: EntryScope,
    { done, back = [], hold }: { done: readonly string[]; back?: readonly string[]; hold: number },
  ): Promise<Omit<TakenPage, 'node' | 'unknown'>> {
    const request: TakeRequest = { vhost, done, back, hold, maxBytes: PAGE_BYTES };
    const pages = await ctlTakeDelayed(this.options.ctl, request);
    const unknown = pages.reduce((sum, page) => sum + page.unknown, 0);
    if (unknown > 0) throw unknownForm(unknown);
    return {
      left: pages.reduce((sum, { left }) => sum + left, 0),
      held: pages.reduce((sum, { held }) => sum + held, 0),
      entries: pages.flatMap(({ entries }) => entries),
      unreadable: pages.flatMap(({ unreadable }) => unreadable),
    };
  }

  async #close(
    run: RunRow,
    { remaining, interrupted }: { remaining: number; interrupted: boolean },
  ): Promise<DelayedResult> {
    const pool = this.#pool;
    const totals = await this.#ledger.totals(pool, run.id);
    const entries = await this.#delayed.count(pool, run.id);
    if (!interrupted) await this.#finish(run, remaining);
    return { runId: run.id, interrupted, entries, totals, remaining };
  }

  async #finish(run: RunRow, remaining: number): Promise<void> {
    const pool = this.#pool;
    const totals = await this.#ledger.totals(pool, run.id);
    const taken = totals.rows + totals.unmapped + totals.excluded + totals.expired;
    const books = closeBooks({
      // A message is counted once for each queue that it would have reached, so only what was taken can be its sum.
      ...{ initial: taken + remaining, totals, remaining, interrupted: run.interrupted },
      ...{ expectedLeft: 0, doubtfulIds: 0 },
    });
    if (!(await this.#ledger.finish(pool, run.id, this.#lease.holder.name, books))) throw leaseLost();
  }
}

function unknownForm(count: number): UnbrokerError {
  return new UnbrokerError(
    'delayed-unknown-form',
    `${count} entries of the delayed-message table are in a form that this version does not know`,
    {
      hint: 'Nothing of them was changed. Give back what is held (unbroker drain run --delayed release), wait until they are due, then drain.',
      exitStatus: EXIT.failed,
    },
  );
}
