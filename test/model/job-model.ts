/**
 * The life of a job as a few lines of plain data: what each operation should do to each row. The model test runs the
 * same operations on Postgres and compares whole rows. Time is a counter: whoever is put in or comes back later is due
 * later, and everything is due.
 */

export type State = 'ready' | 'running' | 'done' | 'dead' | 'cancelled';

export interface ModelJob {
  readonly id: string;
  readonly priority: number;
  state: State;
  attempts: number;
  maxAttempts: number;
  solo: boolean;
  park: boolean;
  expired: boolean;
  /** Claims so far; the newest of them while it runs. */
  token: string | null;
  dueAt: number;
  errors: number;
  progress: number | null;
  result: number | null;
}

/** A lease as its holder knows it, current or stale. */
export interface ModelLease {
  readonly id: string;
  readonly token: string;
}

export class Model {
  readonly jobs = new Map<string, ModelJob>();
  /** Every lease that was ever given out. */
  readonly leases: ModelLease[] = [];
  newestToken = 0n;
  #clock = 0;

  get all(): ModelJob[] {
    return [...this.jobs.values()];
  }

  put(id: string, priority: number, maxAttempts: number): void {
    this.jobs.set(id, {
      ...{ id, priority, maxAttempts, state: 'ready', attempts: 0, solo: false, park: false, expired: false },
      ...{ token: null, dueAt: this.#clock++, errors: 0, progress: null, result: null },
    });
  }

  /** Who a claim of `limit` should get, in no particular order. */
  claimable(limit: number): ModelJob[] {
    return this.all
      .filter((job) => job.state === 'ready' && !job.solo)
      .sort((a, b) => b.priority - a.priority || a.dueAt - b.dueAt)
      .slice(0, limit);
  }

  claimableSolo(): ModelJob | undefined {
    return this.all.filter((job) => job.state === 'ready' && job.solo).sort((a, b) => a.dueAt - b.dueAt)[0];
  }

  claim(job: ModelJob, token: string, park: boolean): void {
    Object.assign(job, { state: 'running', attempts: job.attempts + 1, token, park, expired: false });
    this.leases.push({ id: job.id, token });
    // Tokens of one claim come in any order.
    if (BigInt(token) > this.newestToken) this.newestToken = BigInt(token);
  }

  /** The job, when this lease is the one it runs under. */
  holds({ id, token }: ModelLease): ModelJob | undefined {
    const job = this.jobs.get(id);
    return job?.state === 'running' && job.token === token ? job : undefined;
  }

  #leave(job: ModelJob, state: State): void {
    Object.assign(job, { state, token: null, park: false, expired: false });
  }

  complete(job: ModelJob, result: number | null): void {
    this.#leave(job, 'done');
    job.result = result;
  }

  retry(job: ModelJob): void {
    this.#leave(job, 'ready');
    Object.assign(job, { solo: false, dueAt: this.#clock++, errors: job.errors + 1 });
  }

  snooze(job: ModelJob): void {
    this.#leave(job, 'ready');
    Object.assign(job, { solo: false, dueAt: this.#clock++, attempts: job.attempts - 1 });
  }

  discard(job: ModelJob): void {
    this.#leave(job, 'dead');
    job.errors += 1;
  }

  release(job: ModelJob): void {
    this.#leave(job, 'ready');
    job.attempts -= 1;
  }

  /** Whom a sweep of `limit` should take back. */
  reapable(): ModelJob[] {
    return this.all.filter((job) => job.state === 'running' && job.expired);
  }

  reap(job: ModelJob): void {
    const dead = job.park || job.attempts >= job.maxAttempts;
    this.#leave(job, dead ? 'dead' : 'ready');
    job.solo = !dead;
    job.errors += 1;
  }

  operatorRetry(job: ModelJob, more: number): void {
    Object.assign(job, { state: 'ready', solo: false, dueAt: this.#clock++ });
    job.maxAttempts = Math.min(Math.max(job.maxAttempts, job.attempts + more), 1_000);
  }

  finish(job: ModelJob, state: 'dead' | 'cancelled', error: boolean): void {
    job.state = state;
    if (error) job.errors += 1;
  }
}
