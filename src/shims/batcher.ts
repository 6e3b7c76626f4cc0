/**
 * Puts concurrent single enqueues into one statement: while one insert is on its way, the next gathers. Each caller is
 * answered only when the commit that holds its row is. It decides nothing about jobs.
 */
import { type Enqueued, LIMITS, type PreparedJob, type Queryable } from '../jobs/job.js';
import { codeOf } from '../jobs/sqlstate.js';
import type { Store } from '../jobs/store.js';
import { Refusal } from './contract.js';

interface Waiting {
  readonly job: PreparedJob;
  readonly resolve: (enqueued: Enqueued) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Inserts under way at once. The first starts with whatever is there; a further one for each FULL that wait meanwhile, so
 * that a slow disk is asked by several at once, as its group commit likes it, and a fast one not row by row.
 */
const MAX_FLUSHES = 6;
const FULL = 4;
/** While the database hangs, clients come again: what is more than so many jobs, or characters of payload, is told so at once. */
const WAITING = { jobs: 10_000, length: 67_108_864 } as const;
/** Characters of payload in one statement. */
const MAX_BATCH_LENGTH = 4_194_304;

export class Batcher {
  #waiting: Waiting[] = [];
  #length = 0;
  #flushes = 0;

  constructor(
    private readonly db: Queryable,
    private readonly store: Store,
    private readonly most: { readonly jobs: number; readonly length: number } = WAITING,
  ) {}

  /** Only for jobs without a dedupe key: two batches that wait for each other's keys would deadlock. */
  enqueue(job: PreparedJob): Promise<Enqueued> {
    const { length } = job.payloadText;
    if (this.#waiting.length >= this.most.jobs || this.#length + length > this.most.length)
      return Promise.reject(new Refusal(503, 'overloaded', 'the database is too slow; send it again later'));
    return new Promise((resolve, reject) => {
      this.#waiting.push({ job, resolve, reject });
      this.#length += length;
      const waiting = this.#waiting.length;
      const start = this.#flushes === 0 ? waiting === 1 : this.#flushes < MAX_FLUSHES && waiting % FULL === 0;
      // One turn of the event loop: requests that came together go together.
      if (start) setImmediate(() => void this.#flush());
    });
  }

  async #flush(): Promise<void> {
    if (this.#flushes >= MAX_FLUSHES || this.#waiting.length === 0) return;
    this.#flushes += 1;
    try {
      while (this.#waiting.length > 0) await this.#write(this.#take());
    } finally {
      this.#flushes -= 1;
    }
  }

  #take(): Waiting[] {
    let length = 0;
    let count = 0;
    for (const { job } of this.#waiting) {
      const more = length + job.payloadText.length;
      if (count > 0 && (more > MAX_BATCH_LENGTH || count >= LIMITS.enqueueBatch)) break;
      length = more;
      count += 1;
    }
    this.#length -= length;
    return this.#waiting.splice(0, count);
  }

  async #write(batch: readonly Waiting[]): Promise<void> {
    try {
      const answers = await this.store.enqueueMany(
        this.db,
        batch.map(({ job }) => job),
      );
      for (const [index, { resolve }] of batch.entries()) resolve(answers[index] as Enqueued);
    } catch (error) {
      // A row that the server refuses must not take its neighbours along.
      if (batch.length > 1 && isDataError(error)) for (const one of batch) await this.#write([one]);
      else for (const { reject } of batch) reject(error);
    }
  }
}

/** SQLSTATE class 22 (data exception), 23 (constraint) or 54 (limit exceeded). */
function isDataError(error: unknown): boolean {
  const code = codeOf(error);
  return /^(22|23|54)/.test(code);
}
