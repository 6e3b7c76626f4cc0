/**
 * What a new transaction is made of: the publish that is replaced, and the stretch that it goes around. Shapes only;
 * wrap-edits.ts and callback-edits.ts write them.
 */

import type { ts } from 'ts-morph';
import type { Around } from './around.js';
import type { CallParts } from './call-text.js';
import type { PoolScope } from './transactions/pool-query.js';

/** One publish that is replaced. */
export interface Publish {
  readonly statement: ts.Statement;
  readonly parts: CallParts;
  /** The publish's own expressions that live on in the enqueue. */
  readonly kept: readonly ts.Expression[];
}

export interface Wrap extends Publish {
  readonly how: 'wrap';
  readonly call: ts.CallExpression;
  readonly scope: PoolScope;
  /** What the statement is besides the publish. */
  readonly around?: Around | undefined;
}

/** One statement, what takes its place, and what of it runs behind the commit. */
export interface Replaced {
  readonly statement: ts.Statement;
  readonly wraps: readonly Wrap[];
  readonly rest: readonly ts.Expression[];
}

/** Publishes by the statement that they are in: those of one `Promise.all` share it. */
export function replacedBy(group: readonly Wrap[]): Replaced[] {
  const statements = [...new Set(group.map((w) => w.statement))];
  return statements.map((statement) => {
    const wraps = group.filter((w) => w.statement === statement);
    const list = wraps[0]?.around?.list;
    const ours = new Set<ts.Node>(wraps.map((w) => w.call));
    return { statement, wraps, rest: list?.elements.filter((e) => !ours.has(e)) ?? [] };
  });
}
