/**
 * The statements that a new transaction would hold, from the first write to the publish: which of them may stand in one,
 * which leave it and run behind the commit, and what would still ask the database beside it. It finds no writes; it edits nothing.
 */

import { ts } from 'ts-morph';
import type { Arounds } from '../around.js';
import type { Availabilities } from '../availability.js';
import type { Between } from '../between.js';
import { mayExit } from '../hazards.js';
import type { Obstacle } from '../reasons.js';
import type { Rethrows } from '../rethrow.js';
import { bare, contains, eachOwnNode, holds, lineOf, ownCalls, quote, type Scope } from '../syntax.js';
import { waits } from '../waits.js';
import type { Asking } from './asking.js';
import type { EmptyGuards } from './empty-guard.js';
import type { PoolQuery, PoolScope } from './pool-query.js';
import type { Strays } from './strays.js';

export type Stretch = Pick<PoolScope, 'statements' | 'behind' | 'emptyReturns' | 'obstacles'>;

export interface StretchAsked {
  readonly scope: Scope;
  readonly lastWrite: ts.Statement;
  readonly publish: ts.Statement;
  readonly writes: readonly PoolQuery[];
  /** Those of one pool: they would run on the transaction. */
  readonly queries: readonly PoolQuery[];
  readonly isSite: (call: ts.CallExpression) => boolean;
}

export class Stretches {
  constructor(
    private readonly availabilities: Availabilities,
    private readonly between: Between,
    private readonly arounds: Arounds,
    private readonly guards: EmptyGuards,
    private readonly asking: Asking,
    private readonly strays: Strays,
    private readonly rethrows: Rethrows,
  ) {}

  of({ lastWrite, publish, writes, queries, isSite, scope }: StretchAsked): Stretch {
    const list = lastWrite.parent;
    const end = 'statements' in list ? this.top(publish, list, queries, isSite) : undefined;
    if (end === undefined || !('statements' in list)) {
      return {
        statements: [],
        behind: [],
        emptyReturns: [],
        obstacles: [
          {
            code: 'between-not-movable',
            what: `the write at line ${lineOf(lastWrite)} stands in another block`,
          },
        ],
      };
    }
    const all = list.statements as ts.NodeArray<ts.Statement>;
    let last = all.indexOf(end);
    const emptyReturns: ts.ReturnStatement[] = [];
    const foreign: ts.Statement[] = [];
    const obstacles: Obstacle[] = [];
    let start = all.indexOf(lastWrite);
    const holdsWrite = (s: ts.Statement): boolean => writes.some((w) => contains(s, w.call));
    for (const statement of all.slice(start + 1, last)) {
      if (this.fits(statement, queries, isSite)) continue;
      const guard = this.guards.of(statement, all.slice(start, all.indexOf(statement)));
      if (guard !== undefined) emptyReturns.push(...guard);
      else if (mayExit(statement))
        obstacles.push({ code: 'early-exit', what: `line ${lineOf(statement)}, ${quote(statement)}` });
      else foreign.push(statement);
    }
    // What follows and writes through a function on the same pool belongs to the same unit of work.
    const writesToo = (s: ts.Statement): boolean =>
      queries.some((q) => q.deep !== undefined && contains(s, q.call));
    while (all[last + 1] !== undefined && writesToo(all[last + 1] as ts.Statement)) {
      if (!this.fits(all[last + 1], queries, isSite)) break;
      last++;
    }
    while (start > 0 && this.fits(all[start - 1], queries, isSite)) start--;
    while (start < last && !holdsWrite(all[start] as ts.Statement)) start++;
    const statements = all.slice(start, last + 1);
    const behind = this.behind(foreign, statements, queries, scope);
    obstacles.push(
      ...foreign
        .filter((s) => !behind.includes(s))
        .map((s): Obstacle => ({ code: 'between-not-movable', what: `line ${lineOf(s)}, ${quote(s)}` })),
    );
    const outside = writes.find((w) => !statements.some((s) => contains(s, w.call)));
    if (outside !== undefined) {
      obstacles.push({
        code: 'between-not-movable',
        what: `line ${lineOf(outside.call)} writes too, with other work behind it`,
      });
    }
    if (emptyReturns.length > 0 && writes.length > 1) {
      obstacles.push({ code: 'early-exit', what: `line ${lineOf(emptyReturns[0] as ts.Node)}` });
    }
    const inside = statements.filter((s) => !foreign.includes(s) && !behind.includes(s));
    obstacles.push(...this.beside(inside, lastWrite, queries, scope));
    return { statements, behind, emptyReturns, obstacles };
  }

  /** What would ask the database on another connection, or after the end, while the transaction is open. */
  private beside(
    inside: readonly ts.Statement[],
    lastWrite: ts.Statement,
    queries: readonly PoolQuery[],
    scope: Scope,
  ): Obstacle[] {
    const known = new Set<ts.Node>(queries.flatMap((q) => [q.call, ...(q.spine ?? [])]));
    const strays = inside.flatMap((s) => this.strays.in(s, scope, known) ?? []);
    const asked = ownCalls(lastWrite).find(
      (c) => !known.has(c) && ![...known].some((k) => contains(c, k)) && this.asking.reachesDatabase(c),
    );
    return [...strays, ...(asked === undefined ? [] : [asked])].slice(0, 1).map((n) => ({
      code: 'transaction-unclear',
      what: `line ${lineOf(n)} asks the database beside the transaction (${quote(n)})`,
    }));
  }

  /** What may run behind the commit instead, and constants that only it reads. */
  private behind(
    foreign: readonly ts.Statement[],
    statements: readonly ts.Statement[],
    queries: readonly PoolQuery[],
    scope: Scope,
  ): ts.Statement[] {
    const late = new Set<ts.Statement>();
    for (const statement of [...statements].reverse()) {
      const kept = statements.slice(statements.indexOf(statement) + 1).filter((s) => !late.has(s));
      if (foreign.includes(statement)) {
        const movable = ts.isExpressionStatement(statement) || ts.isVariableStatement(statement);
        if (movable && this.between.mayFollow(statement, kept, scope)) late.add(statement);
      } else if (
        ts.isVariableStatement(statement) &&
        !queries.some((q) => contains(statement, q.call)) &&
        this.between.reads([...late], statement) &&
        this.between.mayFollow(statement, kept, scope)
      )
        late.add(statement);
    }
    return statements.filter((s) => late.has(s));
  }

  /**
   * The statement of the write's list that holds the publish: the publish itself, or an `if` around it in which
   * everything may stand inside a transaction. Undefined when it is neither.
   */
  private top(
    publish: ts.Statement,
    list: ts.Node,
    queries: readonly PoolQuery[],
    isSite: (call: ts.CallExpression) => boolean,
  ): ts.Statement | undefined {
    if (publish.parent === list) return publish;
    let n: ts.Node = publish;
    while (n.parent !== list) {
      n = n.parent;
      if (ts.isSourceFile(n) || !(ts.isBlock(n) || ts.isIfStatement(n))) return undefined;
    }
    if (!ts.isIfStatement(n)) return undefined;
    return this.branchFits(n, queries, isSite) ? n : undefined;
  }

  private branchFits(
    branch: ts.IfStatement,
    queries: readonly PoolQuery[],
    isSite: (call: ts.CallExpression) => boolean,
  ): boolean {
    const inside = (s: ts.Statement | undefined): boolean => {
      if (s === undefined) return true;
      if (ts.isBlock(s)) return s.statements.every(inside);
      if (ts.isIfStatement(s)) return this.branchFits(s, queries, isSite);
      return this.fits(s, queries, isSite);
    };
    return (
      this.availabilities.isPlain(branch.expression) &&
      inside(branch.thenStatement) &&
      inside(branch.elseStatement)
    );
  }

  /** May stand inside the new transaction: pg statements on the pool, plain values, console lines, other sites. */
  private fits(
    statement: ts.Statement | undefined,
    queries: readonly PoolQuery[],
    isSite: (call: ts.CallExpression) => boolean,
  ): boolean {
    if (statement === undefined) return false;
    if (this.arounds.isReportingTry(statement, isSite)) return true;
    if (!ts.isVariableStatement(statement) && !ts.isExpressionStatement(statement)) return false;
    // It would be disposed of with the transaction.
    if (ts.isVariableStatement(statement) && statement.declarationList.flags & ts.NodeFlags.Using)
      return false;
    const isOurs = (n: ts.Node): boolean =>
      (ts.isCallExpression(n) && isSite(n)) || queries.some((q) => q.call === n || q.spine?.has(n));
    let fits = this.areWaitedFor(queries.filter((q) => contains(statement, q.call)));
    let effect = false;
    eachOwnNode(statement, (n) => {
      if (isOurs(n)) effect = true;
      else if (ts.isAwaitExpression(n)) fits &&= isOurs(this.rethrows.inner(bare(n.expression)));
      else if (ts.isCallExpression(n) && !holds(n, isOurs))
        fits &&= this.availabilities.isPlain(n) && !this.asking.asks(n);
    });
    // A call for its own sake does something: only the console may do it before the commit.
    if (ts.isExpressionStatement(statement) && ts.isCallExpression(bare(statement.expression)) && !effect) {
      return fits && /^console\./.test(bare(statement.expression).getText());
    }
    return fits;
  }

  /** What nobody waits for may run when the transaction has ended. */
  private areWaitedFor(queries: readonly PoolQuery[]): boolean {
    const isPart = (q: PoolQuery): boolean => queries.some((o) => o !== q && contains(o.call, q.call));
    return queries.every((q) => waits(this.rethrows.outer(q.call)) || isPart(q) || this.asking.onlyMakes(q));
  }
}
