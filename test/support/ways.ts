/**
 * Several ways to get the same server, tried in order. A way that is not there says why; a way that is there and
 * fails says so on stderr, and the next one gets its turn. It knows nothing of the servers.
 */
import { say } from './machine.js';

/** Resolves to the server, or to one line that says why this way is not open on this machine. */
export interface Way<T> {
  readonly name: string;
  start(): Promise<T | string>;
}

/** Resolves to the first server, or rejects with every reason; `remedy` is the sentence that ends the error. */
export async function firstThatWorks<T extends object>(
  service: string,
  ways: readonly Way<T>[],
  remedy: string,
): Promise<T> {
  const reasons: string[] = [];
  for (const way of ways) {
    try {
      const server = await way.start();
      if (typeof server !== 'string') return server;
      reasons.push(`${way.name}: ${server}`);
    } catch (error) {
      reasons.push(`${way.name}: ${error instanceof Error ? error.message : String(error)}`);
      if (way !== ways.at(-1)) say(`${service} did not start this way (${reasons.at(-1)}); trying the next`);
    }
  }
  throw new Error(`no ${service} for the tests (${reasons.join('; ')}). ${remedy}`);
}
