/**
 * Two small waits: for an event with a limit, and for an answer with a limit. Nothing here knows what is waited for.
 */
import { UnbrokerError } from '../errors.js';

/** A longer one ends after 1 ms. Whoever waits for more looks again after that: 24 days. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/**
 * Wakes whoever waits. Who looks at the state and then waits takes `fired` before the look: a fire in between is then
 * not forgotten.
 */
export class Signal {
  #waiting = new Set<() => void>();
  #fired = 0;

  /** How often it was fired. */
  get fired(): number {
    return this.#fired;
  }

  fire(): void {
    this.#fired += 1;
    for (const wake of this.#waiting) wake();
  }

  /** Until the next fire after `since`, at most `maxMs`. */
  wait(maxMs: number, since: number = this.#fired): Promise<void> {
    if (since !== this.#fired) return Promise.resolve();
    return new Promise((resolve) => {
      const done = (): void => {
        clearTimeout(timer);
        this.#waiting.delete(done);
        resolve();
      };
      const timer = setTimeout(done, Math.min(maxMs, MAX_TIMER_MS));
      this.#waiting.add(done);
    });
  }
}

/**
 * The promise's answer, or `database-slow` after `maxMs`: a half-open connection must not make a loop deaf for ever.
 * `onLate` gets an answer that comes after all.
 */
export async function within<T>(
  promise: Promise<T>,
  maxMs: number,
  onLate: (late: T) => void = () => {},
): Promise<T> {
  // From a caller's code may come something that is no promise.
  const asked = Promise.resolve(promise);
  let timer: NodeJS.Timeout | undefined;
  let late = false;
  const timeout = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      late = true;
      reject(
        new UnbrokerError('database-slow', `The database did not answer within ${maxMs} ms`, {
          hint: 'It is asked again.',
        }),
      );
    }, maxMs);
  });
  asked.then(
    (value) => late && onLate(value),
    () => undefined,
  );
  try {
    return await Promise.race([asked, timeout]);
  } finally {
    clearTimeout(timer);
  }
}
