/**
 * What every idiom of a transaction that is already there answers: the handle, where an enqueue goes, and what
 * stands in the way. Adding an idiom is one file that makes this and one line in plan.ts.
 */

import type { ts } from 'ts-morph';
import type { Obstacle } from '../reasons.js';
import type { Idiom } from './idiom.js';

/** Names a handle so that two mentions of one client or pool compare equal. */
export type Key = (handle: ts.Expression) => string;

/** Where the enqueue goes: in front of a statement, or at the end of a block. */
export type Target =
  | { readonly before: ts.Statement; readonly atEndOf?: undefined }
  | { readonly atEndOf: ts.Block; readonly before?: undefined };

/** The transaction's result under the names it has inside. */
export interface InnerNames {
  readonly renames: ReadonlyMap<ts.Symbol, string>;
  /** `return rows[0]` becomes `const order = rows[0]` and `return order`. */
  readonly introduce: { readonly name: string; readonly statement: ts.ReturnStatement } | undefined;
}

export interface AddedParameter {
  readonly callback: ts.ArrowFunction | ts.FunctionExpression;
  readonly name: string;
}

export interface TransactionScope {
  readonly idiom: string;
  /** Source text of the handle where the enqueue goes. */
  readonly handle: string;
  readonly handleNode: ts.Expression;
  /** The client or ORM whose transaction it is: the enqueue goes through its adapter. Undefined for pg. */
  readonly library?: Idiom | undefined;
  /** A parameter to add to the callback, where it does not ask for its transaction. */
  readonly parameter?: AddedParameter | undefined;
  /** The statements that open and end it, for the report. */
  readonly begin: ts.Node | undefined;
  readonly end: ts.Node;
  /** `after`: the publish follows the commit and moves in front of it; `inside`: it is replaced where it stands. */
  readonly position: 'after' | 'inside';
  readonly target: Target;
  /** Statements between the commit and the publish. */
  readonly between: readonly ts.Statement[];
  readonly inner: InnerNames | undefined;
  /** The line of a catch that rolls back and also catches a failed publish. */
  readonly rollbackCatch: number | undefined;
  /** Whether a write was seen in it. */
  readonly writes: boolean;
  readonly obstacles: readonly Obstacle[];
  /** A caller's, handed over as a parameter: shown by everybody who calls the function. */
  readonly passed?: true;
}
