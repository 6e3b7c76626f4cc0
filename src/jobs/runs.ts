/**
 * The jobs that a worker holds, from a claim's answer until their outcome is written: those that run, those that wait for a
 * slot, their leases; and how they are given back. When to claim is the worker's to say, what an outcome means settle.ts's.
 */
import { type Log, SILENT } from '../log.js';
import { Ahead, isLastAttempt, parted } from './ahead.js';
import type { ClaimedMany } from './claimed.js';
import { OncePerCause } from './database-says.js';
import { endLine } from './end-lines.js';
import { LeaseLost, Run } from './handler.js';
import type { ClaimedJob } from './job.js';
import { Leases } from './leases.js';
import type { Patient } from './patience.js';
import type { ReturnRamp } from './ramp.js';
import { releaseJobs } from './release.js';
import { DEFAULT_RETRY_POLICY } from './retry.js';
import { RunList } from './run-list.js';
import { type HandlerEnd, leavesNothing, type Outcome, RetryAfter, settle } from './settle.js';
import type { Settlement } from './settlement.js';
import { Settler } from './settler.js';
import { Signal } from './signal.js';
import type { Store } from './store.js';
import type { WorkerEvent } from './worker-face.js';
import type { Kind, Kinds } from './worker-kinds.js';

export interface RunsOptions {
  readonly store: Store;
  readonly db: Patient;
  readonly kinds: Kinds;
  readonly concurrency: number;
  readonly leaseMs: number;
  /** Outcomes of one statement. */
  readonly settleBatch: number;
  /** Slots open slowly after an outage. */
  readonly ramp: ReturnRamp;
  /** Will a claim come within some ms, and take along what ended? */
  readonly claimsSoon: () => boolean;
  readonly log: Log;
  /** Undefined without a listener: then no event is built for each job. */
  readonly emit: ((event: WorkerEvent) => void) | undefined;
  readonly onError: (error: unknown) => void;
  /** It will not start again, and that is written. */
  readonly onOver: (job: ClaimedJob) => void;
  /** A kind that could take no more, here or across all workers, may again. */
  readonly onKindFreed: () => void;
}

/** A provider that says when to come again is there. */
function asksForLater(end: HandlerEnd): boolean {
  try {
    return end.type === 'threw' && end.error instanceof RetryAfter;
  } catch {
    // A handler may throw anything, a revoked proxy too.
    return false;
  }
}

const NOT_STARTED: HandlerEnd = { type: 'threw', error: new LeaseLost() };

export class Runs {
  /** Fired when a slot frees up or a result is written. */
  readonly slotFreed = new Signal();
  readonly settler: Settler;
  readonly leases: Leases;
  readonly #options: RunsOptions;
  /** Begun and not yet ended. */
  readonly #executing = new RunList('slotAt');
  /** Claimed and not yet begun. */
  readonly #ahead: Ahead;
  /** Their lease ended before they were begun. */
  readonly #tooLate: Run[] = [];
  /** Claimed many at once, and not yet taken apart. */
  #arriving = 0;
  /** Resolves when they have been started or given back. */
  #begun: Promise<void> | undefined;
  readonly #said = new OncePerCause();
  #closed = false;
  #beginning = false;

  constructor(options: RunsOptions) {
    const { kinds, concurrency, settleBatch, claimsSoon } = options;
    this.#options = options;
    this.#ahead = new Ahead(concurrency, performance.now());
    this.leases = new Leases({ ...options, onLost: (run) => this.#lost(run) });
    this.settler = new Settler({
      ...options,
      keeping: options.db.keeping,
      batch: settleBatch,
      claimsSoon,
      removes: (job) => !kinds.of(job.kind).keepDone && leavesNothing(job),
      onSettled: (settlement, written) => this.#settled(settlement, written),
    });
  }

  /** Handlers now running. */
  get running(): number {
    return this.#executing.size;
  }

  /** Jobs that wait for a slot. */
  get waiting(): number {
    return this.#ahead.size;
  }

  /** Something holds up all slots. */
  get waitTooLong(): boolean {
    return this.#ahead.stale(performance.now());
  }

  /** Is anything held at all? An outcome that is not yet written is work that a dying process would lose. */
  get busy(): boolean {
    return this.#executing.size > 0 || this.#ahead.size > 0 || this.settler.pending > 0 || this.#arriving > 0;
  }

  /** For jobs that run, and those that wait for one not counted. */
  freeSlots(nowMs: number): number {
    const slots = this.#options.ramp.slots(this.#options.concurrency, nowMs);
    const unsettled = Math.max(0, this.settler.pending - this.#options.concurrency);
    return slots - this.#executing.size - unsettled - this.#arriving;
  }

  /** So many may wait for a slot now. */
  mostAhead(nowMs: number): number {
    return this.#ahead.most(nowMs);
  }

  /**
   * A claim sent at `sentAt` brought these; so many slots were free then. Begins as many as have a slot, and keeps the others.
   * Local deadlines count from before the request.
   */
  async took(jobs: readonly ClaimedJob[], sentAt: number, slots: number): Promise<void> {
    const begun = this.#beginOrKeep(this.#leased(jobs, sentAt), slots);
    // Not before the event loop's next turn: by then the next claim is on its way, so one batch runs while the next is
    // fetched. Two loops that claimed side by side were no faster and cost the server 1.3 us a job more, since each
    // steps over the rows that the other is locking.
    setImmediate(() => {
      for (const run of begun) this.#execute(run);
    });
    if (this.#closed) await this.#giveBack(begun);
  }

  /**
   * The same for many: taking them apart waits for the next turn, too, so that the server has the next claim while this
   * process is at work. `onApart` hears of them first.
   */
  tookMany(many: ClaimedMany, sentAt: number, onApart: (jobs: readonly ClaimedJob[]) => void): void {
    const { kinds, onError } = this.#options;
    const byKind = many.byKind();
    for (const [kind, count] of byKind) kinds.of(kind).running += count;
    const arrive = async (): Promise<void> => {
      await new Promise((resolve) => setImmediate(resolve));
      for (const [kind, count] of byKind) kinds.of(kind).running -= count;
      this.#arriving = 0;
      const jobs = many.jobs();
      onApart(jobs);
      const runs = this.#leased(jobs, sentAt);
      for (const run of runs) this.#executing.add(run);
      // Lost first: an execution then ends before it starts.
      const givenBack = this.#closed ? this.#giveBack(runs) : undefined;
      for (const run of runs) this.#execute(run);
      await givenBack;
    };
    this.#arriving = many.count;
    this.#alsoBegun(arrive().catch(onError));
  }

  /** Begins what waits, as far as there are slots. */
  beginNext(): void {
    // Asked by one that ended at once, and was begun here.
    if (this.#beginning) return;
    this.#beginning = true;
    try {
      while (this.#ahead.size > 0 && !this.#closed && this.freeSlots(performance.now()) > 0) {
        const run = this.#ahead.next();
        if (run === undefined) return;
        this.#executing.add(run);
        this.#execute(run);
      }
    } finally {
      this.#beginning = false;
    }
  }

  /** Others may have what waits for a slot. */
  async giveBackWaiting(): Promise<void> {
    await this.#giveBackUnbegun(this.#ahead.empty());
  }

  /** Nothing begins any more. */
  close(): void {
    this.#closed = true;
    this.slotFreed.fire();
  }

  /** Resolves when all that had begun has ended, after `deadlineMs` at the latest. */
  async ended(deadlineMs: number): Promise<void> {
    await this.#begun;
    const deadlineAt = performance.now() + deadlineMs;
    for (
      let leftMs = deadlineMs;
      this.#executing.size > 0 && leftMs > 0;
      leftMs = deadlineAt - performance.now()
    ) {
      await this.slotFreed.wait(leftMs);
    }
  }

  /** Aborts what runs, and gives it back. */
  async giveBackRunning(): Promise<void> {
    await Promise.all([this.#giveBack(this.#executing.all()), this.#begun]);
  }

  /** What ended and could not be written by now is left to the reaper; each is told as lost. */
  giveUpUnwritten(): void {
    this.settler.close();
    this.leases.stop();
    for (const run of this.leases.runs()) {
      this.leases.remove(run);
      this.#lost(run);
    }
  }

  /** Returns jobs that came too late to be begun, attempts included. Failing that, the reaper does it later. */
  async release(jobs: readonly ClaimedJob[]): Promise<void> {
    if (jobs.length === 0) return;
    const { store, db, onError } = this.#options;
    await releaseJobs(store, db, jobs).catch(onError);
  }

  /** Under their leases from now on. */
  #leased(jobs: readonly ClaimedJob[], sentAt: number): readonly Run[] {
    const runs = jobs.map((job) => this.#begin(job, sentAt));
    this.#options.emit?.({ type: 'claimed', jobs });
    return runs;
  }

  #begin(job: ClaimedJob, sentAt: number): Run {
    const { kinds, leaseMs, log, store, db } = this.#options;
    const run = new Run(job, sentAt + leaseMs, log, store, db);
    run.sentAt = sentAt;
    const kind = kinds.of(job.kind);
    this.leases.add(run);
    kind.running += 1;
    if (isLastAttempt(run)) kind.lastAttemptAt = performance.now();
    return run;
  }

  /** Those for which there is a slot; the rest waits for one. */
  #beginOrKeep(runs: readonly Run[], slots: number): readonly Run[] {
    const now = performance.now();
    // Slots that were free when it was sent are there still, and since then some may have become free.
    const { begun, waiting, mustNotWait } = parted(runs, Math.max(slots, this.freeSlots(now)));
    for (const run of begun) this.#executing.add(run);
    this.#ahead.put(waiting, now);
    if (mustNotWait.length > 0) this.#alsoBegun(this.#giveBackUnbegun(mustNotWait));
    return begun;
  }

  #alsoBegun(more: Promise<void>): void {
    const before = this.#begun;
    this.#begun = more.then(() => before);
  }

  /** If nobody has taken it, it goes back as it was: it was never begun. */
  #comesTooLate(run: Run): void {
    this.#tooLate.push(run);
    if (this.#tooLate.length > 1) return;
    const together = new Promise((resolve) => setImmediate(resolve));
    this.#alsoBegun(together.then(() => this.#giveBack(this.#tooLate.splice(0))));
  }

  #execute(run: Run): void {
    const kind = this.#options.kinds.of(run.job.kind);
    // This process was stopped, or another handler kept it busy: somebody else may run it by now.
    if (run.deadlineAt <= performance.now()) this.leases.ended(run);
    // Lost before it started, or given back, since the worker stops.
    const end = run.lost ? NOT_STARTED : run.execute(kind.options);
    if (end instanceof Promise) void end.then((late) => this.#ended(run, kind, late));
    else this.#ended(run, kind, end);
  }

  #ended(run: Run, kind: Kind, end: HandlerEnd): void {
    const { onKindFreed } = this.#options;
    this.#executing.delete(run);
    this.#ahead.ended();
    kind.running -= 1;
    if (run.lost) this.leases.ended(run);
    else {
      const outcome = settle(run.job, end, kind.options.retryPolicy ?? DEFAULT_RETRY_POLICY, Math.random());
      this.settler.push({ run, outcome });
      if (outcome.type === 'complete') kind.ramp.succeeded();
      if (outcome.type === 'retry' && !asksForLater(end)) kind.ramp.failed();
      this.#sayEnd(run, end, outcome);
    }
    if (kind.mayHaveMore && kind.running < kind.ramp.slots) onKindFreed();
    this.beginNext();
    this.slotFreed.fire();
  }

  #sayEnd(run: Run, end: HandlerEnd, outcome: Outcome): void {
    const { log } = this.#options;
    if (log === SILENT) return;
    const line = endLine(run, end, outcome);
    if (line === undefined) return;
    const times = line.cause === undefined ? 1 : this.#said.times(line.cause, performance.now());
    if (times !== null) log[line.level]({ ...line.fields, ...(times > 1 && { times }) }, line.text);
  }

  #settled({ run, outcome }: Settlement, written: boolean): void {
    const { kinds, emit, onOver, onKindFreed } = this.#options;
    this.leases.remove(run);
    if (written && !run.over) {
      run.over = true;
      emit?.({ type: 'settled', job: run.job, outcome, heldMs: performance.now() - run.sentAt });
      if (outcome.type === 'complete' || outcome.type === 'discard') onOver(run.job);
    } else this.#lost(run);
    if (kinds.of(run.job.kind).rule?.maxRunning !== undefined) onKindFreed();
    this.beginNext();
    this.slotFreed.fire();
  }

  async #giveBackUnbegun(runs: readonly Run[]): Promise<void> {
    for (const run of runs) this.#options.kinds.of(run.job.kind).running -= 1;
    await this.#giveBack(runs);
  }

  /** Ends these runs here and returns their jobs. */
  async #giveBack(runs: readonly Run[]): Promise<void> {
    if (runs.length === 0) return;
    for (const run of runs) {
      run.lose();
      this.leases.remove(run);
    }
    // Of a lost one that was told.
    const released = runs.filter((run) => !run.over).map((run) => run.job);
    for (const run of runs) run.over = true;
    if (released.length > 0) this.#options.emit?.({ type: 'released', jobs: released });
    await this.release(runs.map((run) => run.job));
  }

  /** Said once: by the leases, or by an end that could not be written. */
  #lost(run: Run): void {
    if (run.over) return;
    run.over = true;
    const { job } = run;
    this.#options.emit?.({ type: 'lost', job });
    this.#options.log.warn({ job: job.id, kind: job.kind, attempt: job.attempt }, 'a lease was lost');
    if (!run.begun) this.#comesTooLate(run);
  }
}
