/**
 * What it takes to hand a transaction to other functions: parameters, arguments, what uses them, and who has to change
 * together. Shapes only; threading.ts and deep-write.ts find them, thread-work.ts and thread-edits.ts write them.
 */

import type { ts } from 'ts-morph';
import type { Family } from './callers.js';
import type { HandleType } from './handle-types.js';
import type { PublishFacts } from './publish.js';
import type { Obstacle } from './reasons.js';
import type { Idiom } from './transactions/idiom.js';
import type { PoolName } from './transactions/pool-name.js';

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
  /** What uses the parameter instead: a pool's name in its queries. */
  readonly replacements: readonly { readonly node: ts.Node; readonly text: string }[];
  /** Calls inside or beside transactions: each is a site, and all of them are rewritten or none. */
  readonly needs: readonly ts.CallExpression[];
  readonly families: readonly Family[];
  readonly obstacles: readonly Obstacle[];
  /** What else the functions do, which must not run any earlier than it does. */
  readonly noise: readonly Obstacle[];
}

/** What hands the client down, and where the call itself gets it. */
export interface Deep {
  readonly index: number;
  readonly pool: PoolName;
  readonly threading: Threading;
}
