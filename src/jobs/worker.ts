/**
 * Claim, and claim again: the loop of one worker process. It asks the database for jobs, as many and as often as claim-pace.ts
 * says; what it got is run and settled by runs.ts. A lost database never ends it.
 */
import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import { errorFields, type Log, quiet, SILENT, unfailing } from '../log.js';
import { MAX_AHEAD_MS } from './ahead.js';
import { ClaimPace, MAX_BUSY_POLL_MS, MIN_CLAIM_MS } from './claim-pace.js';
import { ClaimStart } from './claim-start.js';
import type { ClaimOrder } from './claim-store.js';
import { OncePerCause, sayingOf } from './database-says.js';
import type { ClaimedJob } from './job.js';
import { hearErrors, type Patient, patient } from './patience.js';
import { ReturnRamp } from './ramp.js';
import { Runs } from './runs.js';
import { completionsOf } from './settlement.js';
import { Signal, within } from './signal.js';
import { SoloPatience } from './solo.js';
import { codeOf, isAnswer, isConflict, isCutShort, isHeld } from './sqlstate.js';
import { createStore, type Store } from './store.js';
import { Turns } from './turns.js';
import { Upkeep } from './upkeep.js';
import { MAX_SLEEP_MS, Wake } from './wake.js';
import { type Advice, adviceOn } from './worker-advice.js';
import type { Worker, WorkerEvent, WorkerOptions } from './worker-face.js';
import { Kinds } from './worker-kinds.js';
import { deadlineOf, settingsOf } from './worker-options.js';

export type { Worker, WorkerEvent, WorkerOptions } from './worker-face.js';

const MAX_BACKOFF_MS = 10_000;
/** Only after so long without a job is it said that this worker sleeps: a thousand jobs a second notified 120 times each. */
const QUIET_MS = 20;
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

function countsOf(claimed: readonly ClaimedJob[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const { kind } of claimed) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  return counts;
}

/** Something may have been left behind: in all, or of one kind. */
function filledOne(claimed: readonly ClaimedJob[], { demands, asked }: Claim): boolean {
  if (claimed.length === 0) return false;
  if (claimed.length >= asked) return true;
  if (demands.length === 1) return false;
  const counts = countsOf(claimed);
  return demands.some(({ kind, limit }) => (counts.get(kind) ?? 0) >= limit);
}

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
  readonly #runs: Runs;
  readonly #turns: Turns;
  readonly #ramp = new ReturnRamp();
  readonly #upkeep: Upkeep | undefined;
  readonly #wakeUp: Wake | undefined;

  readonly #advice: readonly Advice[];
  readonly #said = new OncePerCause();
  #stopping = false;
  #loop: Promise<void> | undefined;
  readonly #pace: ClaimPace;
  readonly #start: ClaimStart;
  /** The next claim is under way or comes within some ms. */
  #claimsSoon = false;
  /** A kind that was full may take more, and no claim has asked since. */
  #kindFreed = false;
  readonly #solo: SoloPatience;
  /** The next claim is a look that nobody called for. */
  #unasked = false;
  /** Nothing was due at the last look. */
  #idle = false;
  /** Fired when there may be work: wake(), stop(), a job that waits to run alone. */
  readonly #nudged = new Signal();

  constructor(options: WorkerOptions) {
    const settings = settingsOf(options);
    const { concurrency, leaseMs } = settings;
    this.#concurrency = concurrency;
    this.#leaseMs = leaseMs;
    this.#pollMs = settings.pollMs;
    this.#kinds = new Kinds(settings.handlers, settings.limits, settings);
    this.#pace = new ClaimPace(concurrency, settings.pollMs);
    this.#solo = new SoloPatience(leaseMs);
    const patienceMs = Math.max(MIN_PATIENCE_MS, Math.min(leaseMs / 3, MAX_PATIENCE_MS));
    this.#db = patient(options.db, patienceMs);
    this.#store = createStore(options.schema);
    this.#log = unfailing(options.log ?? SILENT);
    this.#advice = adviceOn(options.db, settings.handlers, settings.limits, concurrency);
    this.#emit = this.#guarded(options.onEvent);
    hearErrors(options.db, (error) => this.#log.warn(errorFields(error), 'an idle connection was lost'));
    const shared = {
      store: this.#store,
      db: this.#db,
      onError: (error: unknown) => this.#databaseError(error),
    };
    this.#start = new ClaimStart({ ...shared, onFound: () => this.#nudged.fire() });
    this.#turns = new Turns({ ...shared, onPromoted: () => this.wake() });
    this.#runs = new Runs({
      ...{ ...shared, ...settings, kinds: this.#kinds, ramp: this.#ramp, log: this.#log, emit: this.#emit },
      // With nothing to begin until the claim has come, what ended is written beside it.
      claimsSoon: () =>
        this.#claimsSoon && this.#pace.takesAlong && (!this.#pace.full || this.#runs.waiting > 0),
      onOver: (job) => this.#turns.ended(job),
      onKindFreed: () => this.#claimForFreed(),
    });
    if (options.listen !== undefined) {
      this.#wakeUp = new Wake({
        ...{ store: this.#store, db: this.#db, worker: this.#name, connect: options.listen, log: this.#log },
        kinds: this.#kinds.names,
        mayTake: (kind) => this.#mayTake(kind),
        onWake: () => this.wake(),
      });
    }
    if (settings.upkeepMs > 0) {
      this.#upkeep = new Upkeep({
        ...shared,
        db: patient(options.db, UPKEEP_PATIENCE_MS),
        everyMs: settings.upkeepMs,
        ...settings.retention,
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
    return this.#runs.running;
  }

  start(): void {
    if (this.#stopping)
      this.#log.warn({}, 'this worker was stopped: it does not start again, create another one');
    if (this.#stopping || this.#loop !== undefined) return;
    for (const { level, fields, text } of this.#advice) this.#log[level](fields, text);
    this.#runs.leases.start();
    this.#upkeep?.start();
    this.#wakeUp?.start();
    this.#loop = this.#run();
  }

  wake(): void {
    this.#pace.hurry();
    this.#nudged.fire();
  }

  async stop(options?: { readonly deadlineMs?: number | undefined }): Promise<void> {
    const deadlineMs = deadlineOf(options, (text) => this.#log.warn({}, text));
    this.#stopping = true;
    this.#upkeep?.stop();
    // Others are to be woken in its place.
    void this.#wakeUp?.awake();
    this.#runs.close();
    this.#nudged.fire();
    await this.#loop;
    // Handlers are waited for no longer because the database is away.
    const givenBack = this.#runs.giveBackWaiting();
    await this.#runs.ended(deadlineMs);
    await this.#wakeUp?.stop();
    await Promise.all([givenBack, this.#runs.giveBackRunning()]);
    const written = this.#runs.settler.drained().then(() => this.#turns.drained());
    await within(written, Math.min(this.#leaseMs, MAX_LAST_WRITE_MS)).catch((error) =>
      this.#databaseError(error),
    );
    this.#runs.giveUpUnwritten();
    this.ready = false;
  }

  async #run(): Promise<void> {
    let backoffMs = 50;
    let reached = false;
    while (!this.#stopping) {
      try {
        if (!reached) await this.#store.reach(this.#db);
        reached = true;
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
        void this.#wakeUp?.awake();
        this.#ramp.lost();
        this.#pace.lost(codeOf(error) === 'database-slow' || isCutShort(error));
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
    if (this.#runs.waitTooLong) await this.#runs.giveBackWaiting();
    this.#runs.beginNext();
    if (this.#solo.shouldLook(performance.now())) await this.#lookForSolo(false);
    if (this.#solo.waiting) {
      this.#claimsNotSoon();
      if (await this.#soloTurn()) return;
    }
    this.#claimsSoon = true;
    const now = performance.now();
    const most =
      this.#pace.mayLookAhead && this.#kinds.mayLookAhead(now)
        ? this.#pace.ahead(this.#runs.mostAhead(now))
        : 0;
    const slots = this.#runs.freeSlots(now) - this.#runs.waiting;
    const free = slots + most;
    // Half of them are there still: enough until the next claim has come.
    const demands = free <= 0 || this.#runs.waiting > most / 2 ? [] : this.#kinds.demands(most);
    if (demands.length === 0) return this.#runs.slotFreed.wait(this.#waitMs());
    const few = this.#runs.running + this.#runs.waiting > 0 && free < this.#concurrency / 2;
    if (few || (this.#kindFreed && !this.#pace.full)) {
      const gatherMs = few && most > 0 ? this.#pace.gatherMs(now) : 0;
      if (gatherMs > 0) return this.#runs.slotFreed.wait(gatherMs);
      const pauseMs = this.#pace.pauseMs(now);
      if (pauseMs > 0) return this.#nudged.wait(pauseMs);
    }
    this.#kindFreed = false;
    const total = this.#pace.total(free, most);
    const bounded = this.#pace.bounded(total, demands);
    const claim = {
      ...{ ...bounded, slots, worker: this.#name, leaseMs: this.#leaseMs },
      ...this.#start.next(this.#pace.sentAt, this.#pace.full),
    };
    const claimed = await (this.#pace.isMany(total) ? this.#claimMany(claim) : this.#claimFew(claim));
    if (claimed === null) return;
    this.#pace.brought(claimed, bounded.asked);
    if (claimed > 0) this.#idle = false;
    if (this.#unasked && this.#pace.full) void this.#wakeUp?.wakeOthers();
    this.#unasked = false;
    if (this.#pace.backlogBegins) void this.#wakeUp?.awake();
    if (!this.#pace.full) await this.#rest(claimed, nudges);
  }

  /** Nothing more is due: until there may be work. */
  async #rest(claimed: number, nudges: number): Promise<void> {
    if (claimed === 0 && this.#runs.running === 0 && (await this.#nothingElse()))
      this.#emit?.({ type: 'idle' });
    // Said just now: one more look, for what was enqueued while nobody was to be notified.
    // And again in time, though each claim brings one: jobs at an even pace would else outlive what was said, every 15 s a poll long.
    const quiet = claimed === 0 && performance.now() - this.#start.lastJobAt >= QUIET_MS;
    if (await this.#wakeUp?.asleep(quiet)) return;
    const listening = this.#wakeUp?.listening === true;
    // Nobody announces that a limit across workers has room again: with `rate` 50 a second 5 started while this waited to be woken.
    const sharing = listening && !this.#kinds.limited;
    const maxMs = sharing ? (this.#wakeUp?.untilLookMs(this.#pollMs) ?? this.#pollMs) : this.#pace.idleMs;
    const pollMs = listening ? Math.min(maxMs, MAX_SLEEP_MS) : maxMs;
    // Whom many wake, mostly for kinds of others, looks as often until it may say again that it sleeps: a job waited up to 84 ms.
    const stormMs = this.#wakeUp?.stormy ? MAX_BUSY_POLL_MS : pollMs;
    const waitMs = Math.min(pollMs, stormMs, this.#wakeUp?.lookAgainMs || pollMs);
    if (waitMs > MAX_BUSY_POLL_MS) this.#claimsNotSoon();
    await this.#nudged.wait(waitMs, nudges);
    this.#unasked = this.#nudged.fired === nudges;
    this.#pace.waited();
  }

  /**
   * The last claim was not full, so the worker may wait to be woken, though jobs of a kind that was full had to stay: a kind of 10 ms
   * with one slot of ten beside another kind ended 5 a second instead of 60. Once a claim, or each end would cost a turn.
   */
  #claimForFreed(): void {
    if (this.#kindFreed) return;
    this.#kindFreed = true;
    this.#nudged.fire();
  }

  /** Would a claim be sent now, for this kind or any? */
  #mayTake(kind?: string): boolean {
    if (this.#stopping || this.#solo.waiting) return false;
    const slots = this.#runs.freeSlots(performance.now()) - this.#runs.waiting;
    return slots > 0 && (kind === undefined || this.#kinds.hasRoom(kind));
  }

  /** While no slot is free. */
  #waitMs(): number {
    return this.#runs.waiting > 0 ? Math.min(this.#pollMs, MAX_AHEAD_MS) : this.#pollMs;
  }

  /** What ended is written by itself. */
  #claimsNotSoon(): void {
    this.#claimsSoon = false;
    this.#runs.settler.flush();
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
    const { settler } = this.#runs;
    const ended = settler.take();
    const rows = completionsOf(ended);
    let finished: readonly string[] = [];
    try {
      const jobs = await this.#claim(claim.slots, async ({ keeping }) => {
        const answer = await this.#store.finishAndClaim(keeping, rows, claim);
        finished = answer.finished;
        this.#pace.size.broughtFew(answer.jobs, performance.now() - sentAt);
        return answer.jobs;
      });
      settler.wrote(ended, finished);
      const limited = claim.demands.some(({ rule }) => rule !== undefined);
      this.#start.learned(claim, jobs, !limited && !filledOne(jobs, claim), sentAt);
      if (this.#kinds.brought(claim.demands, () => countsOf(jobs))) this.#claimForFreed();
      return jobs.length;
    } catch (error) {
      settler.putBack(ended, error);
      this.#start.failed(claim);
      if (ended.length > 0 && isAnswer(error)) return null;
      throw error;
    }
  }

  /** Claims, and has as many started as have a slot. */
  async #claim(
    slots: number,
    ask: (db: Patient) => Promise<readonly ClaimedJob[]>,
  ): Promise<readonly ClaimedJob[]> {
    const sentAt = performance.now();
    const jobs = await this.#answer(ask(this.#db), (late) => late);
    if (jobs.length > 0) await this.#runs.took(jobs, sentAt, slots);
    return jobs;
  }

  /** The same for many. How many came. */
  async #claimMany(claim: Claim): Promise<number> {
    const sentAt = performance.now();
    const asked = this.#store.claimMany(this.#db, claim).then((many) => {
      this.#pace.size.broughtMany(many, claim.demands, performance.now() - sentAt);
      return many;
    });
    const many = await this.#answer(asked, (late) => late.jobs());
    this.#start.learned(claim, many.last(), false, sentAt);
    if (many.count > 0) this.#runs.tookMany(many, sentAt, (jobs) => this.#start.learnedMore(jobs));
    if (this.#kinds.brought(claim.demands, many.byKind)) this.#claimForFreed();
    return many.count;
  }

  /** An answer that comes too late gives its jobs back. */
  async #answer<T>(asked: Promise<T>, jobs: (late: T) => readonly ClaimedJob[]): Promise<T> {
    this.#pace.sent(performance.now());
    const maxMs = Math.min(this.#leaseMs, MAX_CLAIM_MS);
    const answer = await within(asked, maxMs, (late) => void this.#runs.release(jobs(late)));
    this.ready = true;
    this.#ramp.answered(performance.now());
    return answer;
  }

  /** Claims nothing until this worker is empty, then one job that must run alone. True while that goes on. */
  async #soloTurn(): Promise<boolean> {
    const { busy } = this.#runs;
    if (!this.#solo.goOn(performance.now(), busy)) return false;
    if (busy) {
      await this.#runs.slotFreed.wait(this.#pollMs);
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
