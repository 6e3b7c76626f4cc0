/**
 * What every service of the house does at start and end: read its environment, say where it listens, stop in order
 * on SIGTERM. It knows nothing of what is served.
 */

export interface Running {
  readonly url: string;
  /** Stops taking work, finishes what is in hand, closes. */
  stop(): Promise<void>;
}

const STOP_TIMEOUT_MS = 15_000;

export async function run(name: string, start: () => Promise<Running>): Promise<void> {
  let running: Running;
  try {
    running = await start();
  } catch (error) {
    console.error(`${name}: cannot start: ${error instanceof Error ? error.message : String(error)}`);
    process.exit(1);
  }
  let stopping = false;
  const stop = () => {
    if (stopping) return;
    stopping = true;
    setTimeout(() => process.exit(1), STOP_TIMEOUT_MS).unref();
    running.stop().then(
      () => process.exit(0),
      (error) => {
        console.error(`${name}: stop failed: ${error instanceof Error ? error.message : String(error)}`);
        process.exit(1);
      },
    );
  };
  process.on('SIGTERM', stop);
  process.on('SIGINT', stop);
  console.log(`${name} listening on ${running.url}`);
}

export function env(name: string, fallback?: string): string {
  const value = process.env[name] ?? fallback;
  if (value === undefined) throw new Error(`${name} is not set`);
  return value;
}

export function intEnv(name: string, fallback: number): number {
  const value = Number(process.env[name] ?? fallback);
  if (!Number.isInteger(value) || value < 0) throw new Error(`${name} is not a whole number`);
  return value;
}
