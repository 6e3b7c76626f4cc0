/**
 * What a publisher meant to put in and what it was told is in, outside Postgres: one line before each enqueue, one after
 * its answer. The publisher may be killed at any moment; the machine is not, so lines need no sync to outlive it.
 */
import { closeSync, existsSync, openSync, readFileSync, writeSync } from 'node:fs';

export class Journal {
  readonly #fd: number;

  constructor(path: string) {
    this.#fd = openSync(path, 'a');
  }

  /** Before anything is sent. */
  attempt(key: string): void {
    writeSync(this.#fd, `a ${key}\n`);
  }

  /** After the answer to its commit. */
  acknowledge(key: string): void {
    writeSync(this.#fd, `k ${key}\n`);
  }

  close(): void {
    closeSync(this.#fd);
  }
}

export interface JournalBooks {
  readonly attempted: ReadonlySet<string>;
  readonly acknowledged: ReadonlySet<string>;
}

/** The books of all publishers. A last line that was cut off counts as not written. */
export function readJournals(paths: readonly string[]): JournalBooks {
  const attempted = new Set<string>();
  const acknowledged = new Set<string>();
  for (const path of paths) {
    if (!existsSync(path)) continue;
    for (const line of readFileSync(path, 'utf8').split('\n').slice(0, -1)) {
      (line.startsWith('k ') ? acknowledged : attempted).add(line.slice(2));
    }
  }
  return { attempted, acknowledged };
}

/** The six numbers: what the journals say against what the table holds. */
export interface SixNumbers {
  readonly attempted: number;
  readonly acknowledged: number;
  /** Acknowledged and not there. */
  readonly lost: number;
  /** There and never attempted. */
  readonly unexpected: number;
  /** There more than once. */
  readonly duplicated: number;
  /** There although nobody was told. */
  readonly recovered: number;
}

export function compareBooks(books: JournalBooks, stored: readonly string[]): SixNumbers {
  const there = new Set(stored);
  return {
    attempted: books.attempted.size,
    acknowledged: books.acknowledged.size,
    lost: [...books.acknowledged].filter((key) => !there.has(key)).length,
    unexpected: [...there].filter((key) => !books.attempted.has(key)).length,
    duplicated: stored.length - there.size,
    recovered: [...there].filter((key) => books.attempted.has(key) && !books.acknowledged.has(key)).length,
  };
}
