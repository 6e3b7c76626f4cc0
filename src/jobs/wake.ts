/**
 * Waking a worker that sleeps: it listens on a connection of its own, says in the table that it sleeps and for which kinds, and
 * whoever enqueues then notifies: for one job two of those that have its kind, else all. An accelerator and nothing more: polling goes on, so a lost notification, a dead connection or
 * a pooler that swallows LISTEN costs latency, never a job.
 */
import { randomBytes } from 'node:crypto';
import { errorFields, type Log } from '../log.js';
import { LOOK_EVERY_MS } from './enqueue-store.js';
import type { Queryable } from './job.js';
import { type Seat, untilTurnMs } from './shared-looks.js';
import { Signal, within } from './signal.js';
import type { Store } from './store.js';

/** A connection that is ours alone and direct, not through a pooler: pg's Client once it is connected. */
export interface ListenClient extends Queryable {
  on(event: 'notification', listener: (message: { readonly payload?: string | undefined }) => void): unknown;
  on(event: 'error' | 'end', listener: (error?: Error) => void): unknown;
  end(): Promise<void>;
}

export interface WakeOptions {
  readonly store: Store;
  readonly db: Queryable;
  readonly worker: string;
  /** Those it has handlers for. */
  readonly kinds: readonly string[];
  /** Has it a free slot for this kind, or for any? */
  readonly mayTake: (kind?: string) => boolean;
  /** Opens the connection; called again after it was lost. */
  readonly connect: () => Promise<ListenClient>;
  readonly onWake: () => void;
  readonly log: Log;
}

/** How long one announcement counts; renewed at a third of it. A worker that dies is notified in vain that long. */
const ANNOUNCE_MS = 15_000;
/** So often at least a worker that sleeps looks, and says it again. */
export const MAX_SLEEP_MS = ANNOUNCE_MS / 3;
/** After that, no enqueuer that was committed soon goes by what it was told before the announcement. */
const LOOK_AGAIN_MS = 3 * LOOK_EVERY_MS;
/** A notification of our own must come back within this, or nobody's does. */
const PROBE_MS = 2_000;
/** For all that sleep. */
const ALL = '';
const PROBE_EVERY_MS = 10_000;
const MAX_BACKOFF_MS = 30_000;
/** More notifications a second than this: poll instead, and let the enqueuers be. */
const MAX_WAKES_PER_SECOND = 100;

export class Wake {
  readonly #options: WakeOptions;
  #client: ListenClient | undefined;
  #stopped = false;
  #loop: Promise<void> | undefined;
  /** Fired when a pause makes no more sense: stop, a lost connection. */
  readonly #over = new Signal();
  /** The last probe came back: notifications reach us. */
  #hears = false;
  #probe: { token: string; heard: () => void } | undefined;
  #announcedAt = Number.NEGATIVE_INFINITY;
  /** Among those that sleep, as of `announcedAt`; undefined while that is not known. */
  #seat: Seat | undefined;
  /** How often it was taken back. */
  #withdrawn = 0;
  /** Since then it has been said without a gap. */
  #asleepSince = Number.NEGATIVE_INFINITY;
  /** Notifications in the current second. */
  readonly #wakes = { second: 0, count: 0 };

  constructor(options: WakeOptions) {
    this.#options = options;
  }

  /** True while an enqueue wakes this worker: it may sleep for long between polls. */
  get listening(): boolean {
    return this.#hears && performance.now() - this.#announcedAt < ANNOUNCE_MS;
  }

  /** In this second so many enqueued that none shall notify any more. */
  get stormy(): boolean {
    return this.#thisSecond() && this.#wakes.count >= MAX_WAKES_PER_SECOND;
  }

  start(): void {
    this.#loop = this.#run();
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    this.#over.fire();
    await hangUp(this.#client);
    // One that is still connecting takes its time; it hangs up by itself then.
    await within(this.#loop ?? Promise.resolve(), PROBE_MS).catch(() => undefined);
    if (this.#announcedAt > 0) await this.awake();
  }

  /**
   * Nothing more is due: say so, at most every third of an announcement's time, and for the first time only when it is `quiet`,
   * too. True when it was said for the first time just now.
   */
  async asleep(quiet: boolean): Promise<boolean> {
    const { store, db, worker, kinds } = this.#options;
    const now = performance.now();
    if (!this.#hears || this.stormy || now - this.#announcedAt < MAX_SLEEP_MS) return false;
    const first = now - this.#announcedAt >= ANNOUNCE_MS;
    if (first && !quiet) return false;
    const withdrawn = this.#withdrawn;
    const seat = await store.sleepUntil(db, worker, ANNOUNCE_MS, kinds);
    // Taken back while the answer was on its way: nobody will notify.
    if (withdrawn !== this.#withdrawn) return false;
    this.#announcedAt = now;
    // Counted from before it was asked for: a turn may be a round trip early.
    this.#seat = seat;
    if (first) this.#asleepSince = performance.now();
    return first;
  }

  /** Ms until one more look, for what was enqueued by who had looked for sleepers just before; 0 when that is long ago. */
  get lookAgainMs(): number {
    return Math.max(0, this.#asleepSince + LOOK_AGAIN_MS - performance.now());
  }

  /** Ms until this worker's next look for what nobody notifies of, while it sleeps: those that sleep take turns. */
  untilLookMs(pollMs: number): number {
    if (this.#seat === undefined) return pollMs;
    return untilTurnMs(this.#seat, performance.now() - this.#announcedAt, pollMs);
  }

  /** There is more than this worker can take, and nobody was notified of it: those that wait for their turn are to look now. */
  async wakeOthers(): Promise<void> {
    if (this.#seat !== undefined && this.#seat.of > 2) await this.#notifyAll();
  }

  /** There is a backlog: enqueuers need not notify. */
  async awake(): Promise<void> {
    if (this.#announcedAt === Number.NEGATIVE_INFINITY) return;
    this.#announcedAt = Number.NEGATIVE_INFINITY;
    this.#seat = undefined;
    this.#withdrawn += 1;
    await this.#options.store.stopSleeping(this.#options.db, this.#options.worker).catch(() => undefined);
  }

  async #run(): Promise<void> {
    let backoffMs = 500;
    while (!this.#stopped) {
      try {
        await this.#listen();
        backoffMs = 500;
      } catch (error) {
        if (!this.#stopped) this.#options.log.warn(errorFields(error), 'wake-up is away; polling goes on');
      }
      this.#hears = false;
      // Who is named and deaf keeps a job waiting.
      void this.awake();
      await hangUp(this.#client);
      this.#client = undefined;
      if (this.#stopped) return;
      await this.#over.wait(backoffMs * (0.5 + Math.random()));
      backoffMs = Math.min(backoffMs * 2, MAX_BACKOFF_MS);
    }
  }

  /** Listens and probes until the connection is lost, by an event or by a probe that does not come back. */
  async #listen(): Promise<void> {
    const client = await within(this.#options.connect(), PROBE_MS * 5, (late) => void hangUp(late));
    this.#client = client;
    let lost = false;
    const over = (): void => {
      lost = true;
      this.#over.fire();
    };
    client.on('error', over);
    client.on('end', over);
    client.on('notification', ({ payload }) => this.#notified(payload));
    await within(client.query(`listen "${this.#options.store.channel}"`), PROBE_MS);
    while (!lost && !this.#stopped) {
      await this.#selfTest();
      this.#hears = true;
      await this.#over.wait(PROBE_EVERY_MS);
    }
  }

  /** A notification through the pool must arrive on the connection; behind a transaction pooler it does not. */
  async #selfTest(): Promise<void> {
    const token = randomBytes(8).toString('hex');
    const heard = new Promise<void>((resolve) => {
      this.#probe = { token, heard: resolve };
    });
    await within(this.#options.store.notify(this.#options.db, token), PROBE_MS);
    await within(heard, PROBE_MS);
  }

  /** `worker,worker kind`: one job, for one of these. */
  #notified(payload = ALL): void {
    if (payload === this.#probe?.token) this.#probe.heard();
    const { worker, kinds, mayTake, onWake } = this.#options;
    const at = payload.indexOf(' ');
    const kind = payload.slice(at + 1);
    if (payload !== ALL && !(at > 0 && kinds.includes(kind))) return;
    this.#count();
    if (payload === ALL) onWake();
    else if (!payload.slice(0, at).split(',').includes(worker)) return;
    else if (mayTake(kind)) onWake();
    else void this.#passOn();
  }

  /** The other one that was named may be as full: for all that sleep, of which this one need not be. */
  async #passOn(): Promise<void> {
    if (!this.#options.mayTake()) await this.awake();
    await this.#notifyAll();
  }

  async #notifyAll(): Promise<void> {
    await this.#options.store.notify(this.#options.db, ALL).catch(() => undefined);
  }

  #count(): void {
    this.#wakes.count = this.#thisSecond() ? this.#wakes.count + 1 : 1;
    this.#wakes.second = Math.floor(performance.now() / 1_000);
    if (this.stormy) void this.awake();
  }

  #thisSecond(): boolean {
    return this.#wakes.second === Math.floor(performance.now() / 1_000);
  }
}

/** The client is the caller's: its end may throw, or never come. */
async function hangUp(client: ListenClient | undefined): Promise<void> {
  await within((async () => client?.end())(), PROBE_MS).catch(() => undefined);
}
