/**
 * Shapes of what commits by itself: one statement on a pool, client or ORM, and the stretch of statements that a new
 * transaction would hold. Who finds them is pg-pool.ts, autocommit.ts and deep-write.ts; nothing is decided here.
 */

import type { ts } from 'ts-morph';
import type { CallLike, PgQuery } from '../effects.js';
import type { Obstacle } from '../reasons.js';
import type { Deep } from '../thread-shapes.js';
import type { Idiom } from './idiom.js';
import type { PoolName } from './pool-name.js';

/** One statement that commits by itself: a query on a pg pool, or a call of a client or ORM on its own handle. */
export interface PoolQuery extends PgQuery<CallLike> {
  /** The calls of its builder: `db.insert(orders)` in `db.insert(orders).values(…)`. */
  readonly spine?: ReadonlySet<ts.Node>;
  readonly library?: Idiom;
  /** The package that its handle is of. */
  readonly pkg?: string;
  /** What its handle is: a repository, a manager, a db. */
  readonly what?: string;
  /** Its root cannot be made again in a transaction. */
  readonly fixed?: boolean;
  /** Prisma's list of statements: it becomes one statement after the other. */
  readonly list?: readonly PoolQuery[];
  /** The statement is in a function that the call leads to: how a client gets there. */
  readonly deep?: Deep;
}

export interface PoolScope {
  readonly idiom: string;
  /** The client or ORM whose callback the new transaction is; undefined for pg, which gets BEGIN and COMMIT. */
  readonly library?: Idiom | undefined;
  readonly pool: PoolName | undefined;
  /** `this.rows.inTransaction`: the method that opens it, where the pool has no name. */
  readonly opener: string | undefined;
  readonly handleNode: ts.Expression;
  /** From the first write to the publish, neighbours in one list. */
  readonly statements: readonly ts.Statement[];
  /** Calls inside that have to run on the client. */
  readonly queries: readonly PoolQuery[];
  /** Those of them that have no place in a transaction and run behind the commit instead. */
  readonly behind: readonly ts.Statement[];
  /** `return`s of a guard that proves that nothing was written: each ends the transaction first. */
  readonly emptyReturns: readonly ts.ReturnStatement[];
  readonly obstacles: readonly Obstacle[];
}
