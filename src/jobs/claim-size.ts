/**
 * How many jobs a claim may ask for so that its answer fits into memory and time, by the length of what earlier ones brought: a
 * thousand payloads of 1 MiB are a gigabyte on both sides, and an answer that is late goes back, to be asked for again. It sees
 * no payload, asks nobody, and only guesses: a claim whose first jobs are a hundred times as long as those before is as long.
 */
import { type ClaimedMany, lengthOf } from './claimed.js';
import type { ClaimedJob } from './job.js';

/** Expected of one claim: characters of texts and bytes of bodies. On loopback 16 MiB take 0.1 s. */
export const MAX_CLAIM_LENGTH = 16 * 1_024 * 1_024;
/** An answer that took longer counts as if it had been as long as that takes: a slow way there has room for less. */
const MAX_ANSWER_MS = 2_000;
/** A shorter one was late for another reason: beside a synchronous standby that lags by 2.5 s claims of 100 short jobs came down to one. */
const MIN_LATE_LENGTH = 256 * 1_024;
/** While nothing is known. */
const FIRST_JOBS = 100;

type Measured = Pick<ClaimedJob, 'kind' | 'payloadText' | 'body'>;

/** The length that a job is expected to have: longer at once, shorter by half a claim at most, so claims grow twofold. */
class JobLength {
  #length = MAX_CLAIM_LENGTH / FIRST_JOBS;

  /** So many of them make one claim. A single one comes however long it is. */
  get most(): number {
    return Math.max(1, Math.floor(MAX_CLAIM_LENGTH / this.#length));
  }

  brought(jobs: number, length: number): void {
    this.#length = Math.max(length / jobs, this.#length / 2);
  }

  /** No answer came in time: half as many, and no more than if nothing were known. */
  late(): void {
    this.#length = Math.min(MAX_CLAIM_LENGTH, Math.max(this.#length * 2, MAX_CLAIM_LENGTH / FIRST_JOBS));
  }
}

/** So many times as long an answer of this length counts. */
function stretch(length: number, ms: number): number {
  if (ms <= MAX_ANSWER_MS || length < MIN_LATE_LENGTH) return 1;
  return Math.max(1, ((ms / MAX_ANSWER_MS) * MAX_CLAIM_LENGTH) / length);
}

export class ClaimSize {
  /** Whatever their kind: bounds a claim of many kinds. */
  readonly #all = new JobLength();
  /** A kind of long jobs leaves the others their places. */
  readonly #kinds = new Map<string, JobLength>();

  /** Jobs of one claim. */
  get most(): number {
    return this.#all.most;
  }

  /** Of a kind that is named by a handler. */
  mostOf(kind: string): number {
    return this.#of(kind).most;
  }

  /** `ms`: until the answer was there. */
  broughtFew(jobs: readonly Measured[], ms: number): void {
    const sums = new Map<string, { jobs: number; length: number }>();
    for (const job of jobs) {
      const sum = sums.get(job.kind);
      if (sum === undefined) sums.set(job.kind, { jobs: 1, length: lengthOf(job) });
      else {
        sum.jobs += 1;
        sum.length += lengthOf(job);
      }
    }
    let length = 0;
    for (const sum of sums.values()) length += sum.length;
    const times = stretch(length, ms);
    for (const [kind, sum] of sums) this.#of(kind).brought(sum.jobs, sum.length * times);
    if (jobs.length > 0) this.#all.brought(jobs.length, length * times);
  }

  /** `kinds` as they were asked for. One alone is measured as a whole; with several the answer is taken apart anyway. */
  broughtMany(many: ClaimedMany, kinds: readonly { readonly kind: string }[], ms: number): void {
    const [only] = kinds;
    if (many.count === 0 || only === undefined) return;
    if (kinds.length > 1) this.broughtFew(many.jobs(), ms);
    else {
      const length = many.length * stretch(many.length, ms);
      this.#of(only.kind).brought(many.count, length);
      this.#all.brought(many.count, length);
    }
  }

  late(): void {
    this.#all.late();
    for (const kind of this.#kinds.values()) kind.late();
  }

  #of(kind: string): JobLength {
    let known = this.#kinds.get(kind);
    if (known === undefined) {
      known = new JobLength();
      this.#kinds.set(kind, known);
    }
    return known;
  }
}
