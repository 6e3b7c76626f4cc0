/**
 * What it takes to hand a transaction to other functions: parameters, arguments, what uses them, and who has to change
 * together. Shapes only; threading.ts and deep-write.ts find them, thread-work.ts and thread-edits.ts write them.
 */

import type { ts } from 'ts-morph';
import type { Family } from './callers.js';
import type { TextEdit } from './edits.js';
import type { HandleType } from './handle-types.js';
import type { PublishFacts } from './publish.js';
import type { Obstacle } from './reasons.js';
import type { Idiom } from './transactions/idiom.js';
import type { PoolName } from './transactions/pool-name.js';

/** A method that opens a transaction for others: `rows.inTransaction(async (client) => …)`. */
export interface Opener {
  readonly name: string;
  /** What its callback is handed. */
  readonly handle: HandleType;
  /** What runs the callback: `this.db.transaction(work)`; undefined: BEGIN and COMMIT on a client of the pool. */
  readonly run: string | undefined;
  /** The pool, where there is no `run`. */
  readonly pool: string;
}

/** What a declaration gets besides: a method, a member of an interface, `export` in front of a constant. */
export type Addition =
  | { readonly what: 'method'; readonly beside: ts.ClassElement; readonly opener: Opener }
  | { readonly what: 'member'; readonly beside: ts.TypeElement; readonly opener: Opener }
  | { readonly what: 'export'; readonly beside: ts.VariableStatement };

/** A parameter that a declaration gets. */
export interface NewParameter {
  readonly signature: ts.SignatureDeclaration;
  readonly index: number;
  readonly name: string;
  readonly type: HandleType;
  /** It may be left out; a text is what it is then. */
  readonly optional?: true | string;
}

/** An argument that a call gets, and the `await` that it may lack. */
export interface NewArgument {
  readonly call: ts.CallExpression;
  readonly index: number;
  readonly text: string;
  readonly awaits: boolean;
}

/** A publish that becomes an enqueue on the parameter. */
export interface InnerPublish {
  readonly call: ts.CallExpression;
  readonly statement: ts.Statement;
  readonly facts: PublishFacts;
  readonly handle: string;
  readonly library: Idiom | undefined;
}

export interface Threading {
  readonly publishes: readonly InnerPublish[];
  readonly parameters: readonly NewParameter[];
  readonly arguments: readonly NewArgument[];
  /** How the statements use the parameter: in place of a pool's name, or told of it. Once for each node. */
  readonly replacements: readonly { readonly node: ts.Node; readonly edits: readonly TextEdit[] }[];
  readonly additions: readonly Addition[];
  /** Calls inside or beside transactions: each is a site, and all of them are rewritten or none. */
  readonly needs: readonly ts.CallExpression[];
  readonly families: readonly Family[];
  readonly obstacles: readonly Obstacle[];
  /** What else the functions do, which must not run any earlier than it does. */
  readonly noise: readonly Obstacle[];
}

/** What hands the client down, and where the call itself gets it. */
export interface Deep {
  /** The argument that the call gets; `instead`: it takes the place of the one that is there. */
  readonly index: number;
  readonly instead: boolean;
  /** How the pool is called where the transaction is opened; with an opener it is not called at all. */
  readonly pool: PoolName | undefined;
  /** `this.rows.inTransaction`: whose method opens the transaction. */
  readonly opener: string | undefined;
  /** Calls with another text are on another object, which may have another pool. */
  readonly key: string | undefined;
  readonly threading: Threading;
}
