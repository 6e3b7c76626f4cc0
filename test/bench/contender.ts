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
  /** Inserts this many due jobs as fast as the contender documents, in batches of 1,000. */
  enqueueMany(url: string, jobs: number): Promise<void>;
  /** Puts one job in through a client that is inside a transaction. Called once before the clock starts. */
  enqueuer(url: string): Promise<Enqueuer>;
  /** Works with the settings that the contender documents as its fastest; calls `onJob` in each handler. */
  work(url: string, profile: WorkProfile, onJob: (payload: Payload) => void): Promise<Working>;
}

/** `drain`: a full table, one process, as many jobs a second as it can. `idle`: a job now and then. */
export type WorkProfile = 'drain' | 'idle';

/** The payload of every job of every contender. */
export interface Payload {
  readonly n: number;
  /** Epoch ms with fractions, just before the enqueue; latency only. */
  readonly sentAt?: number;
}

export interface Enqueuer {
  enqueue(client: pg.ClientBase, payload: Payload): Promise<unknown>;
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

/** Batches of payloads, numbered from 0. */
export function* batches(jobs: number): Generator<Payload[]> {
  for (let start = 0; start < jobs; start += BATCH) {
    yield Array.from({ length: Math.min(BATCH, jobs - start) }, (_, i) => ({ n: start + i }));
  }
}

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
