/**
 * Waiting for something to become true, with a deadline and a message that says what was awaited and what was last
 * seen. It is for what another process does; time that the code under test owns is set, not waited for.
 */
import { setTimeout as sleep } from 'node:timers/promises';

export interface UntilOptions {
  /** Default 60 000: on a busy machine things take ten times as long, and only a failure waits so long. */
  readonly withinMs?: number;
  /** Default 25. */
  readonly everyMs?: number;
}

/**
 * Calls `check` until it returns something truthy and resolves to that. A check that throws counts as "not yet"; its
 * last error, or its last value, is in the message when the deadline passes.
 */
export async function until<T>(
  what: string,
  check: () => T | Promise<T>,
  { withinMs = 60_000, everyMs = 25 }: UntilOptions = {},
): Promise<Exclude<T, false | null | undefined | 0 | ''>> {
  const deadline = Date.now() + withinMs;
  for (;;) {
    let last: string;
    try {
      const value = await check();
      if (value) return value as Exclude<T, false | null | undefined | 0 | ''>;
      last = `last seen: ${JSON.stringify(value)}`;
    } catch (error) {
      last = `last error: ${error instanceof Error ? error.message : String(error)}`;
    }
    if (Date.now() >= deadline)
      throw new Error(`gave up after ${withinMs} ms waiting until ${what} (${last})`);
    await sleep(everyMs);
  }
}
