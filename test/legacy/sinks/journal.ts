/**
 * The sinks' journal: one JSON line for each thing received, on disk before the sender gets its answer. It is what
 * counts deliveries, so it outlives the sink and may be read while that runs.
 */
import { closeSync, existsSync, fsyncSync, openSync, readFileSync, writeSync } from 'node:fs';

export interface Delivery {
  /** ISO 8601. */
  readonly at: string;
  readonly sink: 'smtp' | 'http';
  /** X-Notification-Id, Idempotency-Key, webhook-id or the Message-ID: whichever comes first; null without any. */
  readonly id: string | null;
  /** Recipients, or the path called. */
  readonly to: readonly string[];
  readonly subject: string | null;
  readonly headers: Readonly<Record<string, string>>;
  readonly text: string;
}

export class Journal {
  private readonly file: number;

  constructor(path: string) {
    this.file = openSync(path, 'a');
  }

  append(delivery: Delivery): void {
    writeSync(this.file, `${JSON.stringify(delivery)}\n`);
    fsyncSync(this.file);
  }

  close(): void {
    closeSync(this.file);
  }
}

/** Everything received so far; an unfinished last line is left out. */
export function readJournal(path: string): Delivery[] {
  if (!existsSync(path)) return [];
  const lines = readFileSync(path, 'utf8').split('\n');
  return lines.slice(0, -1).map((line) => JSON.parse(line) as Delivery);
}

const ID_HEADERS = ['x-notification-id', 'idempotency-key', 'webhook-id', 'message-id'];

export function idOf(headers: Readonly<Record<string, string>>): string | null {
  for (const name of ID_HEADERS) {
    if (headers[name] !== undefined) return headers[name];
  }
  return null;
}
