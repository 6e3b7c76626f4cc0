/**
 * What is done to the servers under a running child, and how the child is run until it is through: the same for a drain
 * and for the way back. It refuses to know what the child does.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { StartedProcess } from '../support/processes.js';
import type { PostgresServer, RabbitServer } from '../support/services.js';

export type ServerFault = 'broker killed' | 'broker stopped' | 'database killed' | 'database stopped at once';

const WITHIN_MS = 180_000;
const MAX_RUNS = 8;

/** Takes a server away and brings it back. */
export async function strikeServer(
  fault: ServerFault,
  postgres: PostgresServer,
  rabbit: RabbitServer,
): Promise<void> {
  switch (fault) {
    case 'broker killed':
      await rabbit.kill();
      return rabbit.start();
    case 'broker stopped':
      await rabbit.stop();
      return rabbit.start();
    case 'database killed':
      await postgres.kill();
      return postgres.start();
    case 'database stopped at once':
      await postgres.stop('immediate');
      return postgres.start();
  }
}

/**
 * The first child to its end, then others until one is through or says that it cannot be. `paused`: the first one sleeps
 * meanwhile; it wakes up in a world that went on without it, and must not write.
 */
export async function runToTheEnd(first: StartedProcess, start: () => StartedProcess, paused: boolean) {
  let child = paused ? start() : first;
  for (let run = 1; ; run += 1) {
    const { code } = await child.waitForExit(WITHIN_MS);
    const output = `exit ${code}: ${child.stdout}${child.stderr}`.trim();
    if (code === 0 || code === 3 || run === MAX_RUNS) {
      if (paused) {
        first.signal('SIGCONT');
        await first.waitForExit(WITHIN_MS);
      }
      return { code, output };
    }
    await sleep(1_000);
    child = start();
  }
}
