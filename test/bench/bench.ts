/** What every bench is given and what it gives back. */
import type { PostgresServer } from '../support/services.js';
import type { ContenderName } from './contender.js';

export interface BenchOptions {
  readonly rounds: number;
  /** A fifth of the jobs and the time: to see that it runs, not to quote. */
  readonly quick: boolean;
  readonly contenders: readonly ContenderName[];
  /** The Node of every contender. */
  readonly node: string;
  readonly server: PostgresServer;
  /** How long a paced measurement at 1,000 jobs a second sends. Default 20 (3 when quick). */
  readonly seconds?: number | undefined;
  /** Of a backlog that is not to run now. Default 1,000,000 (100,000 when quick). */
  readonly rows?: number | undefined;
  /** Where the Node CPU profile of unbroker's worker goes; none is taken by default. */
  readonly profileFolder?: string | undefined;
}

export interface BenchResult {
  /** Printed as one line of JSON with what main.ts adds. */
  readonly json: Readonly<Record<string, unknown>>;
  /** For a person. */
  readonly text: string;
}

/** Durable commits, as the server has them by default; a cache that holds the tables; everything else as installed. */
export const SERVER_SETTINGS = { shared_buffers: '512MB' };
