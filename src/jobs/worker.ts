/**
 * Claim, run, settle, and give back: the loop of one worker process. It decides when to ask the database, never what
 * an outcome means (settle.ts) nor how it is written (store.ts). A lost database never ends it.
 */
import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import { errorFields, type Log, quiet, SILENT, unfailing } from '../log.js';
import { Ahead, isLastAttempt, MAX_AHEAD_MS, parted } from './ahead.js';
import { ClaimStart } from './claim-start.js';
import type { ClaimOrder } from './claim-store.js';
import { OncePerCause, sayingOf } from './database-says.js';
import { LeaseLost, Run } from './handler.js';
import type { ClaimedJob } from './job.js';
import { Leases } from './leases.js';
import { hearErrors, isAnswer, isConflict, isCutShort, isHeld, type Patient, patient } from './patience.js';
import { ReturnRamp } from './ramp.js';
import { DEFAULT_RETRY_POLICY } from './retry.js';
import { DEFAULT_SCHEMA } from './schema-name.js';
import { type HandlerEnd, leavesNothing, RetryAfter, settle } from './settle.js';
import { completionsOf, MAX_SETTLE, Settler } from './settler.js';
import { Signal, within } from './signal.js';
import { SoloPatience } from './solo.js';
import { createStore, type Store } from './store.js';
import { Turns } from './turns.js';
import { Upkeep } from './upkeep.js';
import { MAX_SLEEP_MS, Wake } from './wake.js';
import type { Worker, WorkerEvent, WorkerOptions } from './worker-face.js';
import { Kinds } from './worker-kinds.js';
import {
  bounded,
  checkHandlers,
  checkKindLimits,
  checkOptions,
  checkRetention,
  whole,
} from './worker-options.js';

export type { Worker, WorkerEvent, WorkerOptions } from './worker-face.js';

/** With few free slots, claims come at most this often: each costs a statement, and slots free up one by one. */
const MIN_CLAIM_MS = 5;
/** Of a backlog of short jobs a claim waits for half the slots, so long at most. */
const MAX_GATHER_MS = 20;
/** Rows of one claim; also bounds what one lost reply puts at risk. With 500 each job costs 10 % more CPU (measured). */
const MAX_CLAIM = 1_000;
/** A claim of so many is answered as one text, and taken apart when the next one is on its way. */
const MANY = 250;
/** So many full claims in a row are a backlog. One alone says little: with one slot every claim is full. */
const BACKLOG_CLAIMS = 5;
const MAX_BACKOFF_MS = 10_000;
/** While jobs come one after the other, claims come so often: fewer, of more jobs each, where they come fast. */
const MANY_AT_ONCE = 5;
const MAX_BUSY_POLL_MS = 10;
/** Only after so long without a job is it said that this worker sleeps: a thousand jobs a second notified 120 times each. */
const QUIET_MS = 20;
/** A limit that is used up is looked at again after so long at most: nobody notifies of it. */
const LIMITED_POLL_MS = 200;
/** A claim whose answer comes later than that gives its jobs back. Less than the patience below, or none came. */
const MAX_CLAIM_MS = 10_000;
/** How long a connection may leave a question unanswered before it is thrown away: a third of the lease, within these. */
const MIN_PATIENCE_MS = 1_000;
const MAX_PATIENCE_MS = 15_000;
const UPKEEP_PATIENCE_MS = 30_000;
/** A worker that stops while the database is away keeps trying for so long; then the leases run out. */
const MAX_LAST_WRITE_MS = 10_000;

/** Throws `worker-invalid` (exit 2) for settings out of range. */
export function createWorker(options: WorkerOptions): Worker {
  return new JobWorker(options);
}

interface Claim extends ClaimOrder {
  /** As many as there can come at most. */
  readonly asked: number;
  /** So many of them have a slot. */
  readonly slots: number;
}

/** Something may have been left behind: in all, or of one kind. */
function filledOne(claimed: readonly ClaimedJob[], { demands, asked }: Claim): boolean {
  if (claimed.length === 0) return false;
  if (claimed.length >= asked) return true;
  if (demands.length === 1) return false;
  const counts = new Map<string, number>();
  for (const { kind } of claimed) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  return demands.some(({ kind, limit }) => (counts.get(kind) ?? 0) >= limit);
}

/** A provider that says when to come again is there. */
const asksForLater = (end: HandlerEnd): boolean => end.type === 'threw' && end.error instanceof RetryAfter;

const NOT_STARTED: HandlerEnd = { type: 'threw', error: new LeaseLost() };

class JobWorker implements Worker {
  ready = false;
  readonly #db: Patient;
  readonly #store: Store;
  readonly #name = `${hostname().slice(0, 60)}:${process.pid}:${randomBytes(4).toString('hex')}`;
  readonly #kinds: Kinds;
  readonly #concurrency: number;
  readonly #leaseMs: number;
  readonly #pollMs: number;
  readonly #log: Log;
  /** Undefined without a listener: then no event is built for each job. */
  readonly #emit: ((event: WorkerEvent) => void) | undefined;
  readonly #leases: Leases;
  readonly #settler: Settler;
  readonly #turns: Turns;
  readonly #return = new ReturnRamp();
  readonly #upkeep: Upkeep | undefined;
  readonly #wakeUp: Wake | undefined;

  /** Begun and not yet ended. */
  readonly #executing = new Set<Run>();
  /** Claimed and not yet begun. */
  readonly #ahead: Ahead;
  /** Their lease ended before they were begun. */
  readonly #tooLate: Run[] = [];
  readonly #said = new OncePerCause();
  #stopping = false;
  #loop: Promise<void> | undefined;
  /** Claimed many at once, and not yet taken apart. */
  #arriving = 0;
  /** Resolves when they have been started or given back. */
  #begun: Promise<void> | undefined;
  /** Claims in a row that came back full. */
  #fullClaims = 0;
  #lastClaimAt = Number.NEGATIVE_INFINITY;
  readonly #start: ClaimStart;
  /** The next claim is under way or comes within some ms. */
  #claimsSoon = false;
  #idlePollMs = MIN_CLAIM_MS;
  readonly #solo: SoloPatience;
  /** Nothing was due at the last look. */
  #idle = false;
  /** Fired when a slot frees up or a result is written. */
  readonly #slotFreed = new Signal();
  /** Fired when there may be work: wake(), stop(), a job that waits to run alone. */
  readonly #nudged = new Signal();

  constructor(options: WorkerOptions) {
    checkOptions(options);
    this.#concurrency = whole('concurrency', options.concurrency ?? 10, 10_000);
    this.#leaseMs = bounded('leaseMs', options.leaseMs ?? 30_000, 100, 86_400_000);
    this.#ahead = new Ahead(this.#concurrency, performance.now());
    const pollMs = bounded('pollMs', options.pollMs ?? 200, 5, 60_000);
    const upkeepMs = bounded('upkeepMs', options.upkeepMs ?? 5_000, 0, 3_600_000);
    const kinds = checkHandlers(options.handlers);
    const limits = checkKindLimits(options.kinds ?? {});
    this.#pollMs = limits.size > 0 ? Math.min(pollMs, LIMITED_POLL_MS) : pollMs;
    this.#kinds = new Kinds(kinds, limits, {
      concurrency: this.#concurrency,
      keepDone: options.keepDone ?? true,
    });
    const retention = checkRetention(options);
    this.#solo = new SoloPatience(this.#leaseMs);
    const patienceMs = Math.max(MIN_PATIENCE_MS, Math.min(this.#leaseMs / 3, MAX_PATIENCE_MS));
    this.#db = patient(options.db, patienceMs);
    this.#store = createStore(options.schema ?? DEFAULT_SCHEMA);
    this.#log = unfailing(options.log ?? SILENT);
    this.#emit = this.#guarded(options.onEvent);
    hearErrors(options.db, (error) => this.#log.warn(errorFields(error), 'an idle connection was lost'));
    const shared = {
      store: this.#store,
      db: this.#db,
      onError: (error: unknown) => this.#databaseError(error),
    };
    this.#start = new ClaimStart({ ...shared, onFound: () => this.#nudged.fire() });
    this.#leases = new Leases({ ...shared, leaseMs: this.#leaseMs, onLost: (run) => this.#lost(run) });
    this.#settler = new Settler({
      ...{ ...shared, keeping: this.#db.keeping },
      // With nothing to begin until the claim has come, or who claims many at once, settles beside the claims: one after the
      // other took twice as long.
      claimsSoon: () =>
        this.#claimsSoon && (this.#fullClaims === 0 || this.#ahead.size > 0) && this.#concurrency < 2 * MANY,
      batch: Math.floor(bounded('settleBatch', options.settleBatch ?? MAX_SETTLE, 1, MAX_SETTLE)),
      removes: (job) => !this.#kinds.of(job.kind).keepDone && leavesNothing(job),
      onSettled: ({ run, outcome }, written) => {
        this.#leases.remove(run);
        if (written) {
          this.#emit?.({ type: 'settled', job: run.job, outcome });
          if (outcome.type === 'complete' || outcome.type === 'discard') this.#turns.ended(run.job);
        } else this.#lost(run);
        this.#beginNext();
        this.#slotFreed.fire();
      },
    });
    this.#turns = new Turns({ ...shared, onPromoted: () => this.wake() });
    if (options.listen !== undefined) {
      this.#wakeUp = new Wake({
        ...{ store: this.#store, db: this.#db, worker: this.#name, connect: options.listen, log: this.#log },
        onWake: () => this.#nudged.fire(),
      });
    }
    if (upkeepMs > 0) {
      this.#upkeep = new Upkeep({
        ...shared,
        db: patient(options.db, UPKEEP_PATIENCE_MS),
        everyMs: upkeepMs,
        ...retention,
        onReaped: (jobs) => this.#emit?.({ type: 'reaped', jobs }),
        onFired: (schedules) => {
          this.#emit?.({ type: 'fired', schedules });
          this.wake();
        },
        onUnreadable: (schedule, error) => this.#log.warn({ schedule, code: error.code }, error.line),
        onSwept: () => this.#lookForSolo(false),
      });
    }
  }

  get running(): number {
    return this.#executing.size;
  }

  start(): void {
    if (this.#stopping)
      this.#log.warn({}, 'this worker was stopped: it does not start again, create another one');
    if (this.#stopping || this.#loop !== undefined) return;
    this.#leases.start();
    this.#upkeep?.start();
    this.#wakeUp?.start();
    this.#loop = this.#run();
  }

  wake(): void {
    this.#idlePollMs = MIN_CLAIM_MS;
    this.#nudged.fire();
  }

  async stop({ deadlineMs = 30_000 } = {}): Promise<void> {
    this.#stopping = true;
    this.#upkeep?.stop();
    this.#nudged.fire();
    this.#slotFreed.fire();
    await this.#loop;
    // Handlers are waited for no longer because the database is away.
    const givenBack = this.#giveBackAhead();
    await this.#begun;
    const deadlineAt = performance.now() + deadlineMs;
    for (
      let leftMs = deadlineMs;
      this.#executing.size > 0 && leftMs > 0;
      leftMs = deadlineAt - performance.now()
    ) {
      await this.#slotFreed.wait(leftMs);
    }
    await this.#wakeUp?.stop();
    await Promise.all([givenBack, this.#giveBack([...this.#executing])]);
    const written = this.#settler.drained().then(() => this.#turns.drained());
    await within(written, Math.min(this.#leaseMs, MAX_LAST_WRITE_MS)).catch((error) =>
      this.#databaseError(error),
    );
    this.#settler.close();
    this.#leases.stop();
    this.ready = false;
  }

  async #run(): Promise<void> {
    let backoffMs = 50;
    while (!this.#stopping) {
      try {
        await this.#turn();
        backoffMs = 50;
      } catch (error) {
        this.#claimsNotSoon();
        this.#start.forget();
        this.#databaseError(error);
        if (isConflict(error)) {
          await this.#nudged.wait(MIN_CLAIM_MS * 2 * Math.random());
          continue;
        }
        this.ready = false;
        this.#return.lost();
        this.#fullClaims = 0;
        // Jittered, so that a fleet does not come back in step.
        await this.#nudged.wait(backoffMs * (0.5 + Math.random()));
        backoffMs = Math.min(backoffMs * 2, MAX_BACKOFF_MS);
      }
    }
    this.#claimsNotSoon();
  }

  /** One look at the situation: wait, or claim. */
  async #turn(): Promise<void> {
    const nudges = this.#nudged.fired;
    if (this.#ahead.stale(performance.now())) await this.#giveBackAhead();
    this.#beginNext();
    if (this.#solo.shouldLook(performance.now())) await this.#lookForSolo(false);
    if (this.#solo.waiting) {
      this.#claimsNotSoon();
      if (await this.#soloTurn()) return;
    }
    this.#claimsSoon = true;
    const now = performance.now();
    const most = this.#mayLookAhead(now) ? this.#ahead.most(now) : 0;
    const slots = this.#freeSlots(now) - this.#ahead.size;
    const free = slots + most;
    // Half of them are there still: enough until the next claim has come.
    const demands = free <= 0 || this.#ahead.size > most / 2 ? [] : this.#kinds.demands(most);
    if (demands.length === 0) return this.#slotFreed.wait(this.#waitMs());
    const sinceMs = now - this.#lastClaimAt;
    if (this.#executing.size + this.#ahead.size > 0 && free < this.#concurrency / 2) {
      if (most > 0 && sinceMs < MAX_GATHER_MS) return this.#slotFreed.wait(MAX_GATHER_MS - sinceMs);
      if (sinceMs < MIN_CLAIM_MS) return this.#nudged.wait(MIN_CLAIM_MS - sinceMs);
    }
    const wanted = Math.min(
      free,
      Math.max(Math.ceil(this.#concurrency / 2), 10) + most,
      most > 0 ? MANY - 1 : MAX_CLAIM,
    );
    const asked = Math.min(
      wanted,
      demands.reduce((sum, demand) => sum + demand.limit, 0),
    );
    const claim = {
      ...{ demands, total: wanted, asked, slots, worker: this.#name, leaseMs: this.#leaseMs },
      ...this.#start.next(this.#lastClaimAt, this.#fullClaims > 0),
    };
    const claimed = await (wanted < MANY ? this.#claimFew(claim) : this.#claimMany(claim));
    if (claimed === null) return;
    if (claimed > 0) this.#idle = false;
    this.#fullClaims = claimed >= asked ? this.#fullClaims + 1 : 0;
    if (this.#fullClaims === BACKLOG_CLAIMS) void this.#wakeUp?.awake();
    if (this.#fullClaims > 0) return;
    if (claimed > 0) this.#idlePollMs = claimed < MANY_AT_ONCE ? MIN_CLAIM_MS : MAX_BUSY_POLL_MS;
    else if (this.#executing.size === 0 && (await this.#nothingElse())) this.#emit?.({ type: 'idle' });
    // Said just now: one more look, for what was enqueued while nobody was to be notified.
    const quietMs = performance.now() - this.#start.lastJobAt;
    if (claimed === 0 && (await this.#wakeUp?.asleep(quietMs >= QUIET_MS))) return;
    const pollMs = this.#wakeUp?.listening ? Math.min(this.#pollMs, MAX_SLEEP_MS) : this.#idlePollMs;
    const waitMs = Math.min(pollMs, this.#wakeUp?.lookAgainMs || pollMs);
    if (waitMs > MAX_BUSY_POLL_MS) this.#claimsNotSoon();
    await this.#nudged.wait(waitMs, nudges);
    this.#idlePollMs = Math.min(this.#idlePollMs * 2, this.#pollMs);
  }

  /** Is there a backlog of jobs that may wait here for a slot? */
  #mayLookAhead(nowMs: number): boolean {
    return this.#fullClaims > 0 && this.#concurrency < MANY && this.#kinds.mayLookAhead(nowMs);
  }

  #freeSlots(nowMs: number): number {
    const slots = this.#return.slots(this.#concurrency, nowMs);
    const unsettled = Math.max(0, this.#settler.pending - this.#concurrency);
    return slots - this.#executing.size - unsettled - this.#arriving;
  }

  /** While no slot is free. */
  #waitMs(): number {
    return this.#ahead.size > 0 ? Math.min(this.#pollMs, MAX_AHEAD_MS) : this.#pollMs;
  }

  /** What ended is written by itself. */
  #claimsNotSoon(): void {
    this.#claimsSoon = false;
    this.#settler.flush();
  }

  /** True when no job waits to run alone either. Asked when the worker falls idle, then as often as by a busy one. */
  async #nothingElse(): Promise<boolean> {
    if (!this.#idle) await this.#lookForSolo(true);
    this.#idle = !this.#solo.waiting;
    return this.#idle;
  }

  /** With what has ended in the same statement. How many came; null when the database refused that: then they go apart. */
  async #claimFew(claim: Claim): Promise<number | null> {
    const sentAt = performance.now();
    const ended = this.#settler.take();
    const rows = completionsOf(ended);
    let finished: readonly string[] = [];
    try {
      const jobs = await this.#claim(claim.slots, async ({ keeping }) => {
        const answer = await this.#store.finishAndClaim(keeping, rows, claim);
        finished = answer.finished;
        return answer.jobs;
      });
      this.#settler.wrote(ended, finished);
      const limited = claim.demands.some(({ rule }) => rule !== undefined);
      this.#start.learned(claim, jobs, !limited && !filledOne(jobs, claim), sentAt);
      return jobs.length;
    } catch (error) {
      this.#settler.putBack(ended, error);
      this.#start.failed(claim);
      if (ended.length > 0 && isAnswer(error)) return null;
      throw error;
    }
  }

  /** Claims, and has as many started as have a slot. Local deadlines count from before the request. */
  async #claim(
    slots: number,
    ask: (db: Patient) => Promise<readonly ClaimedJob[]>,
  ): Promise<readonly ClaimedJob[]> {
    const sentAt = performance.now();
    const jobs = await this.#answer(ask(this.#db), (late) => late);
    if (jobs.length === 0) return jobs;
    const begun = this.#beginOrKeep(this.#take(jobs, sentAt), slots);
    // Not before the event loop's next turn: by then the next claim is on its way, so one batch runs while the next is
    // fetched. Two loops that claimed side by side were no faster and cost the server 1.3 us a job more, since each
    // steps over the rows that the other is locking.
    setImmediate(() => begun.forEach((run) => void this.#execute(run)));
    if (this.#stopping) await this.#giveBack(begun);
    return jobs;
  }

  /**
   * The same for many: taking them apart waits for the next turn, too, so that the server has the next claim while this
   * process is at work. How many came.
   */
  async #claimMany(claim: Claim): Promise<number> {
    const sentAt = performance.now();
    const many = await this.#answer(this.#store.claimMany(this.#db, claim), (late) => late.jobs());
    this.#start.learned(claim, many.last(), false, sentAt);
    if (many.count === 0) return 0;
    const byKind = many.byKind();
    for (const [kind, count] of byKind) this.#kinds.of(kind).running += count;
    const arrive = async (): Promise<void> => {
      await new Promise((resolve) => setImmediate(resolve));
      for (const [kind, count] of byKind) this.#kinds.of(kind).running -= count;
      this.#arriving = 0;
      const jobs = many.jobs();
      this.#start.learnedMore(jobs);
      const runs = this.#take(jobs, sentAt);
      for (const run of runs) this.#executing.add(run);
      // Lost first: an execution then ends before it starts.
      const givenBack = this.#stopping ? this.#giveBack(runs) : undefined;
      for (const run of runs) void this.#execute(run);
      await givenBack;
    };
    this.#arriving = many.count;
    const before = this.#begun;
    this.#begun = arrive()
      .catch((error) => this.#databaseError(error))
      .then(() => before);
    return many.count;
  }

  /** An answer that comes too late gives its jobs back. */
  async #answer<T>(asked: Promise<T>, jobs: (late: T) => readonly ClaimedJob[]): Promise<T> {
    this.#lastClaimAt = performance.now();
    const maxMs = Math.min(this.#leaseMs, MAX_CLAIM_MS);
    const answer = await within(asked, maxMs, (late) => void this.#release(jobs(late)));
    this.ready = true;
    this.#return.answered(performance.now());
    return answer;
  }

  #take(jobs: readonly ClaimedJob[], sentAt: number): readonly Run[] {
    const runs = jobs.map((job) => this.#begin(job, sentAt + this.#leaseMs));
    this.#emit?.({ type: 'claimed', jobs });
    return runs;
  }

  #begin(job: ClaimedJob, deadlineAt: number): Run {
    const run = new Run(job, deadlineAt, this.#log, this.#store, this.#db);
    const kind = this.#kinds.of(job.kind);
    this.#leases.add(run);
    kind.running += 1;
    if (isLastAttempt(run)) kind.lastAttemptAt = performance.now();
    return run;
  }

  /** Those for which there is a slot; the rest waits for one. */
  #beginOrKeep(runs: readonly Run[], slots: number): readonly Run[] {
    const now = performance.now();
    // Slots that were free when it was sent are there still, and since then some may have become free.
    const { begun, waiting, mustNotWait } = parted(runs, Math.max(slots, this.#freeSlots(now)));
    for (const run of begun) this.#executing.add(run);
    this.#ahead.put(waiting, now);
    if (mustNotWait.length > 0) {
      const before = this.#begun;
      this.#begun = this.#giveBackUnbegun(mustNotWait).then(() => before);
    }
    return begun;
  }

  #beginNext(): void {
    if (this.#ahead.size === 0 || this.#stopping) return;
    for (let free = this.#freeSlots(performance.now()); free > 0; free -= 1) {
      const run = this.#ahead.next();
      if (run === undefined) return;
      this.#executing.add(run);
      void this.#execute(run);
    }
  }

  async #giveBackAhead(): Promise<void> {
    await this.#giveBackUnbegun(this.#ahead.empty());
  }

  async #giveBackUnbegun(runs: readonly Run[]): Promise<void> {
    for (const run of runs) this.#kinds.of(run.job.kind).running -= 1;
    await this.#giveBack(runs);
  }

  /** If nobody has taken it, it goes back as it was: it was never begun. */
  #comesTooLate(run: Run): void {
    run.lose();
    this.#tooLate.push(run);
    if (this.#tooLate.length > 1) return;
    setImmediate(() => {
      const before = this.#begun;
      this.#begun = this.#giveBack(this.#tooLate.splice(0)).then(() => before);
    });
  }

  async #execute(run: Run): Promise<void> {
    const kind = this.#kinds.of(run.job.kind);
    // This process was stopped, or another handler kept it busy: somebody else may run it by now.
    if (run.lost || run.deadlineAt <= performance.now()) this.#comesTooLate(run);
    // Lost before it started, or given back, since the worker stops.
    const end = run.lost ? NOT_STARTED : await run.execute(kind.options);
    this.#executing.delete(run);
    this.#ahead.ended();
    kind.running -= 1;
    if (run.lost) this.#leases.ended(run);
    else {
      const outcome = settle(run.job, end, kind.options.retryPolicy ?? DEFAULT_RETRY_POLICY, Math.random());
      this.#settler.push({ run, outcome });
      if (outcome.type === 'complete') kind.ramp.succeeded();
      if (outcome.type === 'retry' && !asksForLater(end)) kind.ramp.failed();
      if (end.type === 'threw') {
        const { id, kind: name, attempt } = run.job;
        const fields = { job: id, kind: name, attempt, outcome: outcome.type, ...errorFields(end.error) };
        this.#log.warn(fields, 'a handler threw');
      }
    }
    this.#beginNext();
    this.#slotFreed.fire();
  }

  /** Claims nothing until this worker is empty, then one job that must run alone. True while that goes on. */
  async #soloTurn(): Promise<boolean> {
    // An outcome that is not yet written is work that a dying process would lose.
    const busy =
      this.#executing.size > 0 || this.#ahead.size > 0 || this.#settler.pending > 0 || this.#arriving > 0;
    if (!this.#solo.goOn(performance.now(), busy)) return false;
    if (busy) {
      await this.#slotFreed.wait(this.#pollMs);
      return true;
    }
    const all = this.#kinds.oneOfEach();
    const claimed = await this.#claim(1, async (db) => {
      const job = await this.#store.claimSolo(db, all, this.#name, this.#leaseMs);
      return job === null ? [] : [job];
    });
    this.#solo.claimed(performance.now(), claimed.length > 0);
    return claimed.length > 0;
  }

  async #lookForSolo(idle: boolean): Promise<void> {
    const found = await this.#store.soloWaiting(this.#db, this.#kinds.names);
    this.#solo.looked(performance.now(), found, idle);
    if (this.#solo.waiting) this.#nudged.fire();
  }

  /** Ends these runs here and returns their jobs, attempts included. Failing that, the reaper does it later. */
  async #giveBack(runs: readonly Run[]): Promise<void> {
    if (runs.length === 0) return;
    for (const run of runs) {
      run.lose();
      this.#leases.remove(run);
    }
    await this.#release(runs.map((run) => run.job));
  }

  async #release(jobs: readonly ClaimedJob[]): Promise<void> {
    if (jobs.length === 0) return;
    await this.#store.release(this.#db, jobs).catch((error) => this.#databaseError(error));
  }

  #lost(run: Run): void {
    this.#emit?.({ type: 'lost', job: run.job });
    this.#log.warn({ job: run.job.id, kind: run.job.kind, attempt: run.job.attempt }, 'a lease was lost');
  }

  #guarded(onEvent: WorkerOptions['onEvent']): ((event: WorkerEvent) => void) | undefined {
    if (onEvent === undefined) return undefined;
    const threw = (error: unknown): void => this.#log.error(errorFields(error), 'onEvent threw');
    return (event) => {
      try {
        quiet(onEvent(event), threw);
      } catch (error) {
        threw(error);
      }
    };
  }

  #databaseError(error: unknown): void {
    this.#emit?.({ type: 'database-error', error });
    if (!isConflict(error) && !isHeld(error) && !isCutShort(error)) this.ready = false;
    const { level, text } = sayingOf(error);
    const times = this.#said.times(text, performance.now());
    if (times !== null) this.#log[level]({ ...errorFields(error), ...(times > 1 && { times }) }, text);
  }
}
