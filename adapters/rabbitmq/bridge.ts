/**
 * The drain kept running for late publishers. Publishers live, so counts are not conserved: messages with an id are exactly
 * one row by their key, the others at least one, and how many rows could be doubles is counted. It outlives the broker
 * and the database: only an order, or an error that time does not heal, ends it.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { UnbrokerError } from '../../src/errors.js';
import type { Store } from '../../src/jobs/store.js';
import { errorFields, type Log } from '../../src/log.js';
import type { DrainStep } from './batch-writer.js';
import { type Books, closeBooks, type Totals, taken } from './books.js';
import {
  type BridgeLedger,
  createBridgeLedger,
  type LateCounts,
  type LateFinding,
  type LatePublisher,
} from './bridge-ledger.js';
import { type Broker, connectBroker } from './broker.js';
import { borrowClient, type DrainClient, type DrainPool, returnClient } from './clients.js';
import type { Rules } from './drain-config.js';
import { Findings, sumFindings } from './findings.js';
import { Intake, type QueueStanding } from './intake.js';
import { type GroupRun, type LateBatch, LateWriter, type QueueToBridge } from './late-writer.js';
import { createLedger, type Ledger, type RunKey, type RunMode, type RunRow } from './ledger.js';
import { tellsOfLoss } from './lost-connection.js';
import { sourceOf } from './mapping.js';
import { leaseLost, RunLease } from './run-lease.js';

export interface GroupToBridge {
  readonly name: string;
  readonly queues: readonly QueueToBridge[];
}

/** Since this bridge was started. */
export interface BridgeProgress extends LateCounts {
  readonly connected: boolean;
  readonly connections: number;
}

export interface BridgeOptions {
  readonly amqpUrl: string;
  /** At least three clients. */
  readonly pool: DrainPool;
  readonly store: Store;
  readonly groups: readonly GroupToBridge[];
  readonly rules: Rules;
  readonly log: Log;
  /** Messages per second; default as they come. */
  readonly rate?: number | undefined;
  /** Default 500. */
  readonly maxBatch?: number;
  /** Default 30,000. */
  readonly leaseMs?: number;
  /** Ends it when nothing came for so long and every queue is empty. Default: never. */
  readonly idleExitMs?: number | undefined;
  /** Aborted: stops at the end of a batch. */
  readonly signal?: AbortSignal | undefined;
  /** One stream, read to the offset that was its last when it was asked: a drain with books, which is resumed. */
  readonly stream?: StreamEnd;
  readonly onProgress?: (progress: BridgeProgress) => void;
  /** A publisher is seen for the first time. */
  readonly onPublisher?: (publisher: LatePublisher) => void;
  readonly onStanding?: (standing: QueueStanding) => void;
  readonly onStep?: (step: DrainStep) => void;
}

export interface StreamEnd {
  /** First and last offset that it holds; last < first: nothing. */
  readonly first: number;
  readonly last: number;
}

export interface BridgedGroup {
  readonly group: string;
  readonly runId: string;
  readonly totals: Totals;
  readonly counts: LateCounts;
  readonly findings: readonly LateFinding[];
  readonly books: Books;
}

export interface BridgeResult {
  readonly end: 'stopped' | 'idle';
  /** False: it was stopped while a server was away, so what it held last is proved at the next start. */
  readonly finished: boolean;
  readonly groups: readonly BridgedGroup[];
  /** Where each queue stood last. */
  readonly standings: readonly QueueStanding[];
}

const LEASE_MS = 30_000;
const MAX_BATCH = 500;
const FIRST_BACKOFF_MS = 500;
const MAX_BACKOFF_MS = 15_000;
const NO_COUNTS: LateCounts = { messages: 0, again: 0, repeats: 0, otherContents: 0, possibleDoubles: 0 };

/** Throws `drain-busy`, `drain-unfinished`, `drain-lease-lost`, and what the first connection meets (`amqp-…`). */
export async function bridge(options: BridgeOptions): Promise<BridgeResult> {
  const running = new Bridge(options);
  const { signal, log } = options;
  let failures = 0;
  for (;;) {
    const before = running.batches;
    try {
      return await running.attempt();
    } catch (error) {
      if (signal?.aborted) return running.unfinished();
      if (!running.heals(error)) throw error;
      failures = running.batches > before ? 1 : failures + 1;
      running.disconnected();
      const pauseMs = Math.min(FIRST_BACKOFF_MS * 2 ** (failures - 1), MAX_BACKOFF_MS);
      log.warn({ failures, pauseMs, ...errorFields(error) }, 'a connection was lost, trying again');
      await sleep(pauseMs, undefined, { signal }).catch(() => undefined);
      if (signal?.aborted) return running.unfinished();
    }
  }
}

class Bridge {
  readonly #ledger: Ledger;
  readonly #bridgeLedger: BridgeLedger;
  readonly #lease: RunLease;
  readonly #proved = new Map<string, string[]>();
  #runs: (RunRow & { readonly group: GroupToBridge })[] = [];
  #standings: readonly QueueStanding[] = [];
  #progress: BridgeProgress = { ...NO_COUNTS, connected: false, connections: 0 };
  /** Committed so far: whether an attempt got anywhere. */
  batches = 0;

  constructor(private readonly options: BridgeOptions) {
    const { pool, store, signal, leaseMs = LEASE_MS } = options;
    this.#ledger = createLedger(store.schema);
    this.#bridgeLedger = createBridgeLedger(store.schema);
    this.#lease = new RunLease(pool, this.#ledger, leaseMs, signal);
  }

  async attempt(): Promise<BridgeResult> {
    const { amqpUrl, pool } = this.options;
    const broker = await connectBroker(amqpUrl);
    const stops: (() => void)[] = [];
    let client: DrainClient | undefined;
    let clean = false;
    try {
      client = await borrowClient(pool);
      this.#proved.clear();
      const runs = await this.#openRuns(broker, stops);
      this.#report({ connected: true, connections: this.#progress.connections + 1 });
      const intake = await this.#intake(broker, client, runs);
      const end = await intake.run().finally(() => {
        this.#standings = intake.standings;
      });
      const groups = await this.#close(runs, end, intake);
      clean = true;
      return { end, finished: true, groups, standings: this.#standings };
    } finally {
      for (const stop of stops) stop();
      if (client !== undefined) returnClient(client, clean);
      await broker.close();
      for (const { id } of this.#runs) await this.#lease.release(id);
    }
  }

  async #openRuns(broker: Broker, stops: (() => void)[]): Promise<Map<string, GroupRun>> {
    const { groups, pool } = this.options;
    const mode: RunMode = this.options.stream === undefined ? 'bridge' : 'drain';
    const runs = new Map<string, GroupRun>();
    const rows: (RunRow & { readonly group: GroupToBridge })[] = [];
    this.#runs = rows;
    for (const group of groups) {
      const key = { broker: broker.cluster, vhost: broker.vhost, group: group.name };
      const names = group.queues.map(({ name }) => name);
      const row = await this.#lease.take(key, names, mode);
      stops.push(this.#lease.keep(row.id));
      rows.push({ ...(await this.#counted(row, key, group)), group });
      const unproved = await this.#forgetUnproved(row);
      runs.set(group.name, {
        ...{ id: row.id, key, source: sourceOf(broker.vhost, row.id) },
        scope: { ...key, queues: new Set(names) },
        // A broker that was killed may have forgotten acks that it had processed.
        inDoubt: unproved || row.interrupted || this.#progress.connections > 0,
        findings: await Findings.load(this.#bridgeLedger, pool, row.id, (publisher) =>
          this.options.onPublisher?.(publisher),
        ),
      });
    }
    return runs;
  }

  /** Of a stream that is drained: how many offsets there are to read, counted before the first. */
  async #counted(row: RunRow, key: RunKey, { queues }: GroupToBridge): Promise<RunRow> {
    const { stream, pool } = this.options;
    if (stream === undefined || row.initial !== null) return row;
    const name = queues[0]?.name ?? '';
    const next = await this.#bridgeLedger.findOffset(pool, key, name);
    const initial = Math.max(0, stream.last - Math.max(next, stream.first) + 1);
    const before = { [name]: initial };
    if (!(await this.#ledger.setInitial(pool, row.id, this.#lease.holder.name, before, initial)))
      throw leaseLost();
    return { ...row, initial, before };
  }

  /** What comes back of these is told by its key, so that their acks need no proof. True when there were any. */
  async #forgetUnproved(run: RunRow): Promise<boolean> {
    const { pool } = this.options;
    const holder = this.#lease.holder.name;
    const open = (await this.#ledger.committedBatches(pool, run.id)).map(({ id }) => id);
    if (open.length === 0) return false;
    if (!(await this.#ledger.settleBatches(pool, run.id, holder, [], open))) throw leaseLost();
    await this.#ledger.setInterrupted(pool, run.id, holder, false);
    return true;
  }

  async #intake(
    broker: Broker,
    client: Awaited<ReturnType<DrainPool['connect']>>,
    runs: ReadonlyMap<string, GroupRun>,
  ): Promise<Intake> {
    const { groups, store, rules, rate, idleExitMs, signal, onStep, onStanding, pool, stream } = this.options;
    const { maxBatch = MAX_BATCH } = this.options;
    const queues: { queue: QueueToBridge; run: GroupRun; offset: number }[] = [];
    for (const group of groups) {
      const run = runs.get(group.name) as GroupRun;
      for (const queue of group.queues) {
        const offset = queue.stream ? await this.#bridgeLedger.findOffset(pool, run.key, queue.name) : 0;
        queues.push({ queue, run, offset });
      }
    }
    const step = (now: DrainStep): void => onStep?.(now);
    return new Intake({
      ...{ broker, queues, signal, rate: rate ?? null, idleExitMs: idleExitMs ?? null, onStep: step },
      maxBatch: rate === undefined ? maxBatch : Math.min(maxBatch, Math.max(1, Math.ceil(rate / 4))),
      writer: new LateWriter({
        ...{ client, store, rules, ledger: this.#ledger, bridgeLedger: this.#bridgeLedger, onStep: step },
        ...{ holder: this.#lease.holder.name, leaseMs: this.#lease.leaseMs },
      }),
      onBatch: (_queue, batch) => this.#count(batch, step),
      onProved: (run, batch) => this.#proved.set(run.id, [...(this.#proved.get(run.id) ?? []), batch]),
      proved: (run) => {
        const ids = this.#proved.get(run.id) ?? [];
        this.#proved.delete(run.id);
        return ids;
      },
      onStanding: (standing) => onStanding?.(standing),
      lastOffsets:
        stream === undefined ? null : new Map(queues.map(({ queue }) => [queue.name, stream.last] as const)),
    });
  }

  #count({ verdicts }: LateBatch, step: (now: DrainStep) => void): void {
    step('committed');
    this.batches += 1;
    const now = this.#progress;
    const { new: fresh, again, repeat } = verdicts;
    this.#report({
      messages: now.messages + fresh + repeat + verdicts['other-contents'] + verdicts['possible-double'],
      again: now.again + again,
      repeats: now.repeats + repeat,
      otherContents: now.otherContents + verdicts['other-contents'],
      possibleDoubles: now.possibleDoubles + verdicts['possible-double'],
    });
  }

  #report(change: Partial<BridgeProgress>): void {
    this.#progress = { ...this.#progress, ...change };
    this.options.onProgress?.(this.#progress);
  }

  disconnected(): void {
    this.#report({ connected: false });
  }

  /** Marks what was proved last and closes the books. */
  async #close(
    runs: ReadonlyMap<string, GroupRun>,
    end: 'stopped' | 'idle',
    intake: Intake,
  ): Promise<BridgedGroup[]> {
    const { pool, groups, stream } = this.options;
    const holder = this.#lease.holder.name;
    const closed: BridgedGroup[] = [];
    for (const group of groups) {
      const { id } = runs.get(group.name) as GroupRun;
      if (!(await this.#ledger.markAcked(pool, id, holder, this.#proved.get(id) ?? []))) throw leaseLost();
      const summed = await this.#sum(id, group, intake);
      // A drain that was stopped goes on as the same run.
      if (stream !== undefined && end === 'stopped') return [summed];
      if (!(await this.#ledger.finish(pool, id, holder, summed.books))) throw leaseLost();
      closed.push(summed);
    }
    this.#runs = [];
    return closed;
  }

  async #sum(id: string, group: GroupToBridge, intake: Intake): Promise<BridgedGroup> {
    const { pool, stream } = this.options;
    const totals = await this.#ledger.totals(pool, id);
    const findings = await this.#bridgeLedger.findings(pool, id);
    const counts = sumFindings(findings);
    const known = { group: group.name, runId: id, totals, counts, findings };
    if (stream !== undefined) {
      const next = intake.offsetOf(group.queues[0]?.name ?? '') ?? 0;
      const { initial = 0 } = this.#runs[0] ?? {};
      const remaining = Math.max(0, stream.last - next + 1);
      const input = { totals, remaining, initial: initial ?? 0, interrupted: false };
      return { ...known, books: closeBooks({ ...input, expectedLeft: 0, doubtfulIds: 0 }) };
    }
    const names = group.queues.filter((queue) => !queue.stream).map(({ name }) => name);
    const left = this.#standings.filter(({ queue }) => names.includes(queue));
    const remaining = left.reduce((sum, { ready }) => sum + (ready ?? 0), 0);
    return { ...known, books: booksOf(totals, counts, remaining) };
  }

  /** What can be said without asking the servers again. */
  async unfinished(): Promise<BridgeResult> {
    return { end: 'stopped', finished: false, groups: [], standings: this.#standings };
  }

  /** Once it was connected, whatever a server says while it comes back is waited out. */
  heals(error: unknown): boolean {
    if (mayHeal(error)) return this.#progress.connections > 0;
    return false;
  }
}

function booksOf(totals: Totals, counts: LateCounts, remaining: number): Books {
  const remarks: string[] = [];
  if (counts.messages > 0) remarks.push(`${counts.messages} came late: somebody still publishes.`);
  if (counts.possibleDoubles > 0) {
    remarks.push(
      `${counts.possibleDoubles} rows could be doubles: they came back after an interruption and have no id.`,
    );
  }
  if (counts.repeats > 0) {
    remarks.push(
      `${counts.repeats} came again with an id and contents that had been taken: they are in the ledger without a second job. If ids are used again on purpose, give the queue the rule ids: 'reused'.`,
    );
  }
  if (counts.otherContents > 0) {
    remarks.push(
      `${counts.otherContents} came with an id that had been taken with other contents: both are kept.`,
    );
  }
  if (remaining > 0) remarks.push(`${remaining} are still in the broker.`);
  const arrived = taken(totals) + remaining;
  return { initial: 0, arrived, ...totals, remaining, difference: 0, balanced: true, remarks };
}

/** Codes of ours that a restart of a server can cause. */
const HEALING = new Set([
  ...['amqp-unreachable', 'amqp-silent', 'amqp-refused', 'queue-unreachable', 'database-slow'],
]);

/**
 * Lost connections and what servers say while they start or stop, in the words of both clients. A missing table, a bug or
 * a lost lease only repeats itself.
 */
function mayHeal(error: unknown): boolean {
  if (error instanceof UnbrokerError) return HEALING.has(error.code);
  if (error instanceof TypeError || error instanceof RangeError) return false;
  const { code } = error as { code?: unknown };
  if (typeof code === 'number') return true;
  if (typeof code === 'string') return /^(08|57|53|25|40|55P03|E[A-Z]+$)/.test(code);
  return tellsOfLoss(error);
}
