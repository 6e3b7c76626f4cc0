/**
 * A seeded simulation of everything that a job goes through: callers that commit, a broker that is drained, workers that
 * crash, pause and lose answers, a reaper, a relay. One thread, a made-up clock, chance from a seed alone: the same seed
 * is the same history. The statements are a few lines of plain data here; what follows from a handler's end is settle.ts's.
 *
 * A mutant takes one rule out. Whoever breaks an invariant ends the run with its name.
 */
import type { ClaimedJob, RetryPolicy } from '../../src/jobs/job.js';
import { type HandlerEnd, settle } from '../../src/jobs/settle.js';

export const MUTANTS = {
  'no-token-at-finish': 'a finish asks only whether the job runs',
  'unguarded-reaper': 'expired ids are read first and taken back later, whatever became of them',
  'attempts-at-finish': 'attempts are counted when a job ends, not when it is claimed',
  'ack-before-commit': 'a drain acks a message, then commits its row',
  'mark-before-confirm': 'a relay is done when it has sent, not when the broker has confirmed',
  'no-dedupe-key': 'rows are inserted whether their key is there or not',
} as const;
export type Mutant = keyof typeof MUTANTS;

export interface Violation {
  readonly seed: number;
  /** As in docs/understand/reliability.md. */
  readonly invariant: string;
  readonly atMs: number;
  /** The last steps before it. */
  readonly trace: readonly string[];
}

type State = 'ready' | 'running' | 'done' | 'dead';

interface Row {
  readonly id: string;
  readonly key: string;
  readonly kind: 'plain' | 'relay' | 'poison';
  readonly maxAttempts: number;
  state: State;
  attempts: number;
  token: number;
  lockedUntil: number;
  runAt: number;
}

const LEASE = 60;
/** Faults happen until then; afterwards all must come to its end. */
const CALM_AT = 600;
const END_AT = 60_000;
const TRACE_KEPT = 40;
const POLICY: RetryPolicy = { type: 'fixed', delayMs: 10 };

class Broken extends Error {}

/** A violation, or null when the history kept every promise. */
export function simulate(seed: number, mutant?: Mutant): Violation | null {
  const simulation = new Simulation(seed, mutant);
  try {
    simulation.run();
    return null;
  } catch (error) {
    if (!(error instanceof Broken)) throw error;
    return { seed, invariant: error.message, atMs: simulation.now, trace: simulation.trace };
  }
}

/** mulberry32: small, seedable, good enough for chance. */
function chanceFrom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  };
}

class Simulation {
  now = 0;
  readonly trace: string[] = [];
  readonly #random: () => number;
  readonly #steps: { readonly at: number; readonly order: number; readonly run: () => void }[] = [];
  #order = 0;

  readonly #rows = new Map<string, Row>();
  #tokens = 0;
  /** Keys whose business transaction committed; that rolled back; messages that the broker once had. */
  readonly #committed = new Set<string>();
  readonly #rolledBack = new Set<string>();
  readonly #published = new Set<string>();
  /** What the broker holds, delivered or not. */
  readonly #queue: string[] = [];
  readonly #starts = new Map<string, number>();
  readonly #effects = new Map<string, number>();

  constructor(
    seed: number,
    private readonly mutant: Mutant | undefined,
  ) {
    this.#random = chanceFrom(seed);
  }

  run(): void {
    for (let n = 0; n < 4; n += 1) this.#caller(`order-${n}`);
    for (let n = 0; n < 3; n += 1) {
      this.#published.add(`message-${n}`);
      this.#queue.push(`message-${n}`);
    }
    this.#drain();
    for (let n = 0; n < 2; n += 1) new Worker(this, n);
    this.#reaper();
    while (this.now < END_AT && !this.#quiet()) {
      const next = this.#steps.shift();
      if (next === undefined) break;
      this.now = next.at;
      next.run();
    }
    this.#judge();
  }

  // Time and chance.

  after(delay: number, run: () => void): void {
    const step = { at: this.now + delay, order: this.#order++, run };
    let index = this.#steps.length;
    while (index > 0 && (this.#steps[index - 1] as { at: number }).at > step.at) index -= 1;
    this.#steps.splice(index, 0, step);
  }

  between(min: number, max: number): number {
    return min + this.#random() * (max - min);
  }

  /** A fault: none once it is calm. */
  fault(probability: number): boolean {
    return this.#random() < probability && this.now < CALM_AT;
  }

  note(what: string): void {
    this.trace.push(`${this.now.toFixed(1)} ${what}`);
    if (this.trace.length > TRACE_KEPT) this.trace.shift();
  }

  broken(invariant: string): never {
    throw new Broken(invariant);
  }

  // The table.

  insert(key: string): void {
    const there = [...this.#rows.values()].filter((row) => row.key === key).length;
    if (there > 0 && this.mutant !== 'no-dedupe-key') return;
    if (there > 0) this.broken('I1: two rows of one key');
    const kinds = ['plain', 'plain', 'relay', 'poison'] as const;
    const kind = kinds[Math.floor(this.#random() * kinds.length)] ?? 'plain';
    const id = String(this.#rows.size + 1);
    this.#rows.set(id, {
      ...{ id, key, kind, maxAttempts: kind === 'poison' ? 3 : 1_000, state: 'ready', attempts: 0 },
      ...{ token: 0, lockedUntil: 0, runAt: this.now },
    });
    this.note(`insert ${key} as ${id}, ${kind}`);
  }

  claim(limit: number): Row[] {
    const due = [...this.#rows.values()].filter((row) => row.state === 'ready' && row.runAt <= this.now);
    return due.slice(0, limit).map((row) => {
      this.#move(row, 'running');
      if (this.mutant !== 'attempts-at-finish') row.attempts += 1;
      this.#tokens += 1;
      row.token = this.#tokens;
      row.lockedUntil = this.now + LEASE;
      this.note(`claim ${row.id} token ${row.token}`);
      return { ...row };
    });
  }

  extend(id: string, token: number): boolean {
    const row = this.#rows.get(id);
    if (row?.state !== 'running' || row.token !== token) return false;
    row.lockedUntil = this.now + LEASE;
    return true;
  }

  finish(held: Row, end: HandlerEnd): void {
    const row = this.#rows.get(held.id);
    if (row?.state !== 'running') return;
    if (row.token !== held.token && this.mutant !== 'no-token-at-finish') return;
    this.note(`finish ${row.id} token ${held.token}`);
    if (row.token !== held.token) this.broken('I4: written under an older token');
    if (this.mutant === 'attempts-at-finish') row.attempts += 1;
    const job = { attempt: held.attempts, maxAttempts: held.maxAttempts, retryPolicy: null } as ClaimedJob;
    const outcome = settle(job, end, POLICY, this.#random());
    if (outcome.type === 'complete') {
      if (!this.#effects.has(row.id)) this.broken('I3: done without an effect');
      this.#move(row, 'done');
    } else if (outcome.type === 'discard') this.#move(row, 'dead');
    else {
      this.#move(row, 'ready');
      row.runAt = this.now + outcome.delayMs;
    }
  }

  #move(row: Row, to: State): void {
    if (row.state === 'done' || row.state === 'dead') this.broken(`I6: ${row.state} became ${to}`);
    row.state = to;
  }

  #takeBack(row: Row): void {
    this.note(`reap ${row.id}`);
    this.#move(row, row.attempts >= row.maxAttempts ? 'dead' : 'ready');
  }

  #reaper(): void {
    const expired = (): Row[] =>
      [...this.#rows.values()].filter((row) => row.state === 'running' && row.lockedUntil < this.now);
    if (this.mutant === 'unguarded-reaper') {
      const ids = expired();
      this.after(this.between(0, 8), () => {
        for (const row of ids) this.#takeBack(row);
      });
    } else for (const row of expired()) this.#takeBack(row);
    this.after(this.between(5, 25), () => this.#reaper());
  }

  // What happens outside of it.

  started(row: Row): void {
    const starts = (this.#starts.get(row.id) ?? 0) + 1;
    this.#starts.set(row.id, starts);
    this.note(`start ${row.id} token ${row.token}`);
    if (starts > row.maxAttempts) this.broken('I5: more starts than attempts');
  }

  effect(row: Row): void {
    this.#effects.set(row.id, (this.#effects.get(row.id) ?? 0) + 1);
    this.note(`effect of ${row.id} token ${row.token}`);
  }

  get marksBeforeConfirm(): boolean {
    return this.mutant === 'mark-before-confirm';
  }

  /** A caller's transaction, tried again until it is told how it ended. */
  #caller(key: string): void {
    this.after(this.between(0, 200), () => {
      if (this.fault(0.2)) {
        // It took the order back itself, and will not try again.
        if (!this.#committed.has(key)) this.#rolledBack.add(key);
        return;
      }
      if (this.fault(0.2)) return this.#caller(key);
      this.#committed.add(key);
      this.insert(key);
      if (this.fault(0.3)) this.#caller(key);
    });
  }

  /** Takes a message, commits its row, acks it; may die between any two. What is not acked comes again. */
  #drain(): void {
    const key = this.#queue[0];
    const again = (): void => this.after(this.between(1, 20), () => this.#drain());
    if (key === undefined) return;
    const ack = (): void => void this.#queue.splice(this.#queue.indexOf(key), 1);
    const first = this.mutant === 'ack-before-commit' ? ack : () => this.insert(key);
    const second = this.mutant === 'ack-before-commit' ? () => this.insert(key) : ack;
    this.after(this.between(1, 10), () => {
      if (this.fault(0.15)) return again();
      first();
      this.after(this.between(1, 10), () => {
        if (!this.fault(0.25)) second();
        again();
      });
    });
  }

  #quiet(): boolean {
    if (this.now < CALM_AT + 300 || this.#queue.length > 0) return false;
    return [...this.#rows.values()].every(({ state }) => state === 'done' || state === 'dead');
  }

  #judge(): void {
    const keys = new Set([...this.#rows.values()].map(({ key }) => key));
    for (const key of this.#committed) if (!keys.has(key)) this.broken('I1: an order without its job');
    for (const key of this.#rolledBack)
      if (keys.has(key) && !this.#committed.has(key)) this.broken('I1: a job without its order');
    for (const key of this.#published) {
      if (!keys.has(key) && !this.#queue.includes(key)) this.broken('I2: a message that is nowhere');
    }
    for (const { id, state, kind } of this.#rows.values()) {
      if (state !== 'done' && state !== 'dead') this.broken('it never came to its end');
      if (state === 'done' && !this.#effects.has(id)) this.broken('I3: done without an effect');
      if (state === 'dead' && kind !== 'poison') this.broken('a neighbour is dead');
    }
  }
}

/** A process: what it was doing when it dies is forgotten, what it has sent is not. */
class Worker {
  #life = 0;
  #pausedUntil = 0;

  constructor(
    private readonly world: Simulation,
    private readonly name: number,
  ) {
    this.#local(world.between(0, 20), () => this.#poll());
    this.#trouble();
  }

  /** A step of this process: not after its death, and not while it is paused. */
  #local(delay: number, run: () => void): void {
    const life = this.#life;
    const step = (): void => {
      if (life !== this.#life) return;
      if (this.world.now < this.#pausedUntil) this.world.after(this.#pausedUntil - this.world.now, step);
      else run();
    };
    this.world.after(delay, step);
  }

  #trouble(): void {
    this.world.after(this.world.between(20, 150), () => {
      const [dies, pauses] = [this.world.fault(0.4), this.world.fault(0.4)];
      if (dies) this.#die();
      else if (pauses) {
        this.#pausedUntil = this.world.now + this.world.between(10, 2.5 * LEASE);
        this.world.note(`worker ${this.name} is paused`);
      }
      if (this.world.now < CALM_AT) this.#trouble();
    });
  }

  #die(): void {
    this.#life += 1;
    this.world.note(`worker ${this.name} dies`);
    this.#local(this.world.between(5, 30), () => this.#poll());
  }

  #poll(): void {
    const sentAt = this.world.now;
    const life = this.#life;
    this.world.after(this.world.between(0.1, 3), () => {
      const rows = this.world.claim(2);
      // An answer that is lost: the rows wait for the reaper.
      if (this.world.fault(0.05) || life !== this.#life) return;
      this.#local(this.world.between(0.1, 3), () => {
        for (const row of rows) if (life === this.#life) this.#start(row, sentAt + LEASE);
      });
    });
    this.#local(this.world.between(5, 20), () => this.#poll());
  }

  #start(row: Row, deadlineAt: number): void {
    if (this.world.now >= deadlineAt) return;
    this.world.started(row);
    if (row.kind === 'poison') {
      this.#die();
      return;
    }
    const lease = { deadlineAt, ended: false };
    this.#heartbeat(row, lease);
    this.#local(this.world.between(1, 90), () => {
      const finish = (end: HandlerEnd): void => this.#finish(row, end, lease);
      // A handler that hears its signal ends; one that was paused just before does not hear it.
      if (this.world.now >= lease.deadlineAt) {
        lease.ended = true;
        if (!this.world.fault(0.5)) return;
      }
      if (this.world.fault(0.1)) return finish({ type: 'threw', error: new Error('failed') });
      if (row.kind === 'relay') return this.#relay(row, finish);
      this.world.effect(row);
      finish({ type: 'returned', value: null });
    });
  }

  /** Publish, and wait for the confirm; either may be lost on the way. */
  #relay(row: Row, finish: (end: HandlerEnd) => void): void {
    const arrives = !this.world.fault(0.3);
    if (arrives) this.world.after(this.world.between(0.1, 5), () => this.world.effect(row));
    const confirmed = arrives && !this.world.fault(0.2);
    if (this.world.marksBeforeConfirm) {
      finish({ type: 'returned', value: null });
      return;
    }
    this.#local(this.world.between(5, 10), () =>
      finish(
        confirmed ? { type: 'returned', value: null } : { type: 'threw', error: new Error('no confirm') },
      ),
    );
  }

  #heartbeat(row: Row, lease: { deadlineAt: number; ended: boolean }): void {
    this.#local(LEASE / 3, () => {
      if (lease.ended || this.world.now >= lease.deadlineAt) return;
      const sentAt = this.world.now;
      if (this.world.extend(row.id, row.token) && !this.world.fault(0.1)) lease.deadlineAt = sentAt + LEASE;
      this.#heartbeat(row, lease);
    });
  }

  #finish(row: Row, end: HandlerEnd, lease: { ended: boolean }): void {
    lease.ended = true;
    // Sent is sent: it arrives though its sender dies meanwhile, perhaps late.
    const late = this.world.fault(0.1) ? LEASE : 3;
    this.world.after(this.world.between(0.1, late), () => this.world.finish(row, end));
  }
}
