/**
 * Where handlers leave their effects in fault tests: a small process outside Postgres that writes each to a file and syncs
 * it before it answers. What it has answered has happened, whoever is killed afterwards; it judges nothing.
 */
import { closeSync, fdatasync, mkdtempSync, openSync, readFileSync, rmSync, write } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { startScript } from './processes.js';

export interface Effect {
  readonly job: string;
  readonly token: string;
  readonly attempt: number;
  /** What of the job it is: `start`, `effect`. */
  readonly what: string;
  /** Whose: the pid of the handler's process. */
  readonly pid: number;
  /** Epoch ms, by the handler's clock. */
  readonly at: number;
}

export interface EffectsSink {
  readonly port: number;
  /** Everything that was synced so far, in order. */
  read(): Effect[];
  close(): Promise<void>;
}

const SERVE = '--serve-effects';

export async function startEffectsSink(): Promise<EffectsSink> {
  const folder = mkdtempSync(join(tmpdir(), 'unbroker-effects-'));
  const file = join(folder, 'effects.jsonl');
  const process = startScript(fileURLToPath(import.meta.url), [SERVE, file]);
  const [, port] = await process.waitFor(/listening on (\d+)/);
  return {
    port: Number(port),
    read: () =>
      readFileSync(file, 'utf8')
        .split('\n')
        .filter((line) => line !== '')
        .map((line) => JSON.parse(line) as Effect),
    async close() {
      await process.kill();
      rmSync(folder, { recursive: true });
    },
  };
}

/** The handlers' side. `record` resolves once the effect is on disk, rejects when the sink is gone. */
export class EffectsClient {
  #socket: Socket | undefined;
  #waiting: { resolve(): void; reject(error: Error): void }[] = [];

  constructor(private readonly port: number) {}

  record(effect: Omit<Effect, 'pid' | 'at'>): Promise<void> {
    const line = `${JSON.stringify({ ...effect, pid: process.pid, at: Date.now() })}\n`;
    return new Promise((resolve, reject) => {
      this.#waiting.push({ resolve, reject });
      this.#open().write(line);
    });
  }

  close(): void {
    this.#socket?.destroy();
  }

  #open(): Socket {
    if (this.#socket !== undefined) return this.#socket;
    const socket = connect(this.port, '127.0.0.1');
    socket.on('data', (answers) => {
      for (const _ of answers) this.#waiting.shift()?.resolve();
    });
    socket.on('error', () => {});
    socket.on('close', () => {
      this.#socket = undefined;
      for (const { reject } of this.#waiting.splice(0)) reject(new Error('the effects sink is gone'));
    });
    this.#socket = socket;
    return socket;
  }
}

/** One byte for each line, once the line is on disk. Lines that come while one batch is synced make the next. */
function serve(file: string): void {
  const fd = openSync(file, 'a');
  let pending: { line: string; socket: Socket }[] = [];
  let busy = false;
  const flush = async (): Promise<void> => {
    busy = true;
    while (pending.length > 0) {
      const batch = pending;
      pending = [];
      await promisify(write)(fd, batch.map(({ line }) => `${line}\n`).join(''));
      await promisify(fdatasync)(fd);
      for (const { socket } of batch) socket.write('.');
    }
    busy = false;
  };
  const server = createServer((socket) => {
    let rest = '';
    socket.on('error', () => {});
    socket.on('data', (chunk) => {
      const lines = (rest + String(chunk)).split('\n');
      // A killed handler's half line is no effect.
      rest = lines.pop() ?? '';
      pending.push(...lines.map((line) => ({ line, socket })));
      if (!busy) void flush();
    });
  });
  server.listen(0, '127.0.0.1', () => {
    process.stdout.write(`listening on ${(server.address() as { port: number }).port}\n`);
  });
  process.once('exit', () => closeSync(fd));
}

if (process.argv[2] === SERVE) serve(process.argv[3] as string);
