/**
 * A write that commits by itself, through a pg pool or a client or ORM (autocommit.ts), followed by a publish: which
 * statements a new transaction would have to hold. It finds the stretch and what stands in its way; it refuses to
 * write the transaction.
 */

import { ts } from 'ts-morph';
import { type Effect, type Effects, isWrite, type PgQuery } from '../effects.js';
import { combinator, enclosures, follows, statementOf } from '../hazards.js';
import type { Obstacle } from '../reasons.js';
import type { Rethrows } from '../rethrow.js';
import { bare, contains, holds, isAsync, lineOf, ownCalls, quote, type Scope } from '../syntax.js';
import type { PoolNames } from './pool-name.js';
import type { PoolQuery, PoolScope } from './pool-query.js';
import type { Key } from './scope.js';
import type { Stretches } from './stretch.js';

export const name = 'pg-pool';
export const summary = 'autocommitted pool.query, to be wrapped in a transaction with the publish';

export class PoolFinder {
  constructor(
    private readonly names: PoolNames,
    private readonly effects: Effects,
    private readonly stretches: Stretches,
    private readonly rethrows: Rethrows,
    private readonly key: Key,
    private readonly autocommits: (scope: Scope) => readonly PoolQuery[],
    /** Calls that write in other functions, asked for when this one writes nothing itself. */
    private readonly deep: (scope: Scope) => readonly PoolQuery[],
  ) {}

  /** Undefined when no autocommitted write on a pool precedes the publish in this function. */
  find(
    scope: Scope,
    publish: ts.Statement,
    isSite: (call: ts.CallExpression) => boolean,
  ): PoolScope | undefined {
    const queries: readonly PoolQuery[] = ownCalls(scope).flatMap((call) => this.effects.pgQuery(call) ?? []);
    return (
      this.among(queries, scope, publish, isSite) ??
      this.among(this.autocommits(scope), scope, publish, isSite) ??
      this.throughCalls(queries, scope, publish, isSite)
    );
  }

  /** Only where all is well: else the report says where the write is, and what lies on the way. */
  private throughCalls(
    queries: readonly PoolQuery[],
    scope: Scope,
    publish: ts.Statement,
    isSite: (call: ts.CallExpression) => boolean,
  ): PoolScope | undefined {
    const deep = this.deep(scope);
    if (deep.length === 0) return undefined;
    const all = [...queries, ...this.autocommits(scope), ...deep];
    const found = this.among(all, scope, publish, isSite);
    if (found === undefined || found.obstacles.length > 0) return undefined;
    return this.outside(found, scope, publish) === undefined ? found : undefined;
  }

  /** A write in front of the publish that the stretch does not hold: it would still commit by itself. */
  private outside(found: PoolScope, scope: Scope, publish: ts.Statement): Effect | undefined {
    return this.effects
      .of(scope)
      .filter((e) => isWrite(e) && e.at.end <= publish.pos)
      .find((e) => {
        const statement = statementOf(e.at);
        if (statement === undefined || found.statements.some((s) => contains(s, e.at))) return false;
        return follows(statement, publish, scope).reachable;
      });
  }

  private among(
    queries: readonly PoolQuery[],
    scope: Scope,
    publish: ts.Statement,
    isSite: (call: ts.CallExpression) => boolean,
  ): PoolScope | undefined {
    const writes = queries.filter((q) => q.on === 'pool' && isWriting(q) && q.call.end <= publish.end);
    const last = writes.at(-1);
    const statement = last === undefined ? undefined : statementOf(last.call);
    if (last === undefined || statement === undefined) return undefined;
    const relation = follows(statement, publish, scope);
    if (!relation.reachable) return undefined;
    const obstacles: Obstacle[] = [...relation.obstacles.filter((o) => o.code !== 'conditional-path')];
    obstacles.push(...this.ownStatement(last, statement));
    if (!isAsync(scope)) obstacles.push({ code: 'not-async', what: `line ${lineOf(scope)}` });
    // Another pool's statements stay on it: they have no place in here.
    const mine = queries.filter((q) => q.on === 'pool' && this.poolKey(q) === this.poolKey(last));
    const asked = { scope, lastWrite: statement, publish, writes, queries: mine, isSite };
    const stretch = this.stretches.of(asked);
    const inside = stretch.statements.filter((s) => !stretch.behind.includes(s));
    const opener = last.deep?.opener;
    const fixed = writes.find((w) => w.fixed === true);
    if (fixed !== undefined)
      obstacles.push({
        code: 'unsupported-library',
        what: `${quote(fixed.handle)}, a repository with a constructor of its own`,
      });
    const handled = stretch.statements.find((s) =>
      holds(s, (n) => this.rethrows.swallows(n) && isOf(n, mine)),
    );
    if (handled !== undefined)
      obstacles.push({
        code: 'transaction-unclear',
        what: `line ${lineOf(handled)} goes on after a statement that fails, and that aborts it`,
      });
    const held = stretch.statements.find((s) => holds(s, ts.isYieldExpression));
    if (held !== undefined)
      obstacles.push({
        code: 'transaction-unclear',
        what: `line ${lineOf(held)} yields, and it would stay open`,
      });
    const [returned] = stretch.emptyReturns;
    if (returned !== undefined && (last.deep?.opener !== undefined || last.library?.wrap !== undefined))
      obstacles.push({ code: 'early-exit', what: `line ${lineOf(returned)}` });
    const pool =
      last.deep !== undefined
        ? last.deep.pool
        : isPg(last)
          ? this.names.of(last)
          : { text: last.handle.getText(), from: undefined };
    if (pool === undefined && opener === undefined)
      obstacles.push({ code: 'pool-not-in-scope', what: quote(last.handle) });
    const foreign = writes.find((w) => this.poolKey(w) !== this.poolKey(last));
    if (foreign !== undefined)
      obstacles.push({ code: 'two-databases', what: `${quote(foreign.handle)}, ${quote(last.handle)}` });
    return {
      idiom: last.library?.name ?? name,
      library: last.library,
      pool,
      opener,
      handleNode: last.handle,
      statements: stretch.statements,
      queries: mine.filter((q) => inside.some((s) => contains(s, q.call))),
      behind: stretch.behind,
      emptyReturns: stretch.emptyReturns,
      obstacles: [...obstacles, ...stretch.obstacles],
    };
  }

  /** The write must be what its statement does: `await`ed, alone or as the value of a declaration or assignment. */
  private ownStatement(write: PoolQuery, statement: ts.Statement): Obstacle[] {
    let awaited = false;
    for (let n: ts.Node = write.call; n !== statement; n = n.parent) {
      if (ts.isAwaitExpression(n)) awaited = true;
    }
    const around = enclosures(write.call, statement).map(
      (o): Obstacle => ({ code: 'path-without-write', what: o.what }),
    );
    if (around.length > 0) return around;
    const all = combinator(write.call);
    if (all !== undefined) return [{ code: 'promise-all-on-one-client', what: all }];
    return awaited
      ? []
      : [{ code: 'transaction-unclear', what: `the write at line ${lineOf(write.call)} is not awaited` }];
  }

  /** Repositories and managers of TypeORM, models of others lead to one data source, or the package's openings have refused it. */
  private poolKey(query: PoolQuery): string {
    if (query.deep?.key !== undefined) return query.deep.key;
    const { library } = query;
    const isOneOfMany = library?.wrap?.inside !== undefined || library?.wrap?.join !== undefined;
    if (library !== undefined && isOneOfMany) return library.name;
    // One class of two objects may hold two pools.
    const handle = bare(query.handle);
    const owner = ts.isPropertyAccessExpression(handle) ? handle.expression.getText() : '';
    return `${this.key(handle)} ${owner}`;
  }
}

function isPg(query: PoolQuery): query is PoolQuery & PgQuery {
  return query.library === undefined;
}

function isOf(call: ts.Node, queries: readonly PoolQuery[]): boolean {
  return queries.some((q) => contains(call, q.call));
}

function isWriting(query: PoolQuery): boolean {
  return query.sql === 'write' || query.sql === 'unknown';
}
