/**
 * What a new transaction is made of: the publish that is replaced, and the stretch that it goes around. Shapes only;
 * wrap-edits.ts and callback-edits.ts write them.
 */

import type { ts } from 'ts-morph';
import type { CallParts } from './call-text.js';
import type { PoolScope } from './transactions/pg-pool.js';

/** One publish that is replaced. */
export interface Publish {
  readonly statement: ts.Statement;
  readonly parts: CallParts;
  /** The publish's own expressions that live on in the enqueue. */
  readonly kept: readonly ts.Expression[];
}

export interface Wrap extends Publish {
  readonly how: 'wrap';
  readonly scope: PoolScope;
}
