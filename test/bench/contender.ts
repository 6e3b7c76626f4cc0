/**
 * What a contender is: one queue, ours or another's, or a hand-written loop, in the few words that every bench needs.
 * A contender never measures; it does what it is told, in a process of its own (contender-process.ts).
 */
import type pg from 'pg';

export interface Contender {
  /** One row, one column `unfinished`: true while a job is not done. Asked every few milliseconds, so it must be cheap. */
  readonly unfinished: string;
  /** Creates the tables in an empty database. */
  install(url: string): Promise<void>;
  /** Whatever must be there before the first job is put in. */
  enqueuer(url: string): Promise<Enqueuer>;
  /** Works with the settings that the contender documents as its fastest; calls `onJob` in each handler. */
  work(url: string, profile: WorkProfile, onJob: (payload: Payload) => void): Promise<Working>;
}

/**
 * `drain`: a full table, as many jobs a second as one process can. `remove`: the same, done jobs removed at once where that
 * is a choice. `steady`: a thousand jobs a second as they come.
 * `idle`: one now and then. `small`: a full table, 24 at once, nothing tuned.
 * `each`: the same, every outcome written by itself.
 */
export type WorkProfile = 'drain' | 'remove' | 'small' | 'each' | 'steady' | 'idle';

/** The payload of every job of every contender. */
export interface Payload {
  readonly n: number;
  /** Spread over so many priorities, where the contender can. */
  readonly priority?: number;
  /** Epoch ms with fractions: when the job was due to be enqueued. Latency is counted from here. */
  readonly sentAt?: number;
}

export interface Enqueuer {
  /** Puts one due job in through a client, which may be inside a transaction. */
  enqueue(client: pg.ClientBase, payload: Payload): Promise<unknown>;
  /** The same with its statement prepared, where that is an option: what a hand-written insert does too. */
  enqueuePrepared?(client: pg.ClientBase, payload: Payload): Promise<unknown>;
  /** Puts up to BATCH due jobs in, the fastest way that the contender documents. */
  enqueueMany(payloads: readonly Payload[]): Promise<unknown>;
  close(): Promise<void>;
}

export interface Working {
  stop(): Promise<void>;
}

export const CONTENDERS = ['unbroker', 'limit', 'graphile', 'pgboss'] as const;
export type ContenderName = (typeof CONTENDERS)[number];

/** The kind, task or queue of every job. */
export const KIND = 'bench.noop';
export const BATCH = 1_000;
/** Priorities that jobs are spread over where a bench says so: 0 to this, without it. */
export const PRIORITIES = 5;

/** Loaded by name, so that a process pays for one contender only. */
export async function loadContender(name: ContenderName): Promise<Contender> {
  switch (name) {
    case 'unbroker':
      return (await import('./contenders/unbroker.js')).unbroker;
    case 'limit':
      return (await import('./contenders/limit.js')).limit;
    case 'graphile':
      return (await import('./peers/graphile.js')).graphile;
    case 'pgboss':
      return (await import('./peers/pgboss.js')).pgboss;
  }
}
