/**
 * What a transaction's handle is threaded through, while that is being found out: a function with all that declares it, and
 * the calls where the transactions are. Shapes only.
 */

import type { ts } from 'ts-morph';
import type { Family } from './callers.js';
import type { PublishFacts } from './publish.js';
import type { Fn } from './syntax.js';
import type { Idiom } from './transactions/idiom.js';

export interface Part {
  readonly family: Family;
  readonly index: number;
  /** Whether the parameter is new; one that is there has to be handed the transaction's handle. */
  readonly added: boolean;
  readonly publishes: readonly { call: ts.CallExpression; facts: PublishFacts; body: Fn }[];
  /** Calls of other threaded functions, and of itself. */
  readonly hops: { readonly call: ts.CallExpression; readonly body: Fn }[];
}

export interface Root {
  readonly call: ts.CallExpression;
  /** Undefined: a new transaction will be made around the call. */
  readonly handle: ts.Expression | undefined;
  readonly library: Idiom | undefined;
}
