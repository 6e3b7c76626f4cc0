/** What a channel works with: a pool, the store, the tables of topology; and what it may hold. It runs nothing. */
import type { ClaimedJob, Queryable } from '../../src/jobs/job.js';
import type { Store } from '../../src/jobs/store.js';
import type { Tables } from './tables.js';

/** What we ask of a pool. pg.Pool has it. */
export interface ChannelPool extends Queryable {
  connect(): Promise<Queryable & { release(destroy?: boolean): void }>;
}

export interface ChannelWorld {
  readonly pool: ChannelPool;
  readonly store: Store;
  readonly tables: Tables;
  /** In `locked_by`. */
  readonly holder: string;
  readonly leaseMs: number;
  readonly pollMs: number;
}

/** A claim as the store settles it. */
export const held = ({ id, leaseToken }: ClaimedJob) => ({ id, leaseToken });
