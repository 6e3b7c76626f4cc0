/**
 * A write that commits by itself, through a pg pool or a client or ORM (autocommit.ts), followed by a publish: which
 * statements a new transaction would have to hold. It finds the stretch and what stands in its way; it refuses to
 * write the transaction.
 */

import { ts } from 'ts-morph';
import type { Arounds } from '../around.js';
import type { Availabilities } from '../availability.js';
import type { Between } from '../between.js';
import { type CallLike, type Effect, type Effects, isWrite, type PgQuery } from '../effects.js';
import { alwaysExits, combinator, enclosures, follows, mayExit, statementOf } from '../hazards.js';
import type { Obstacle } from '../reasons.js';
import {
  bare,
  contains,
  eachOwnNode,
  isAsync,
  lineOf,
  ownCalls,
  quote,
  type Scope,
  unwrapped,
} from '../syntax.js';
import type { Deep } from '../thread-shapes.js';
import { handlesError } from '../waits.js';
import type { Idiom } from './idiom.js';
import type { PoolName, PoolNames } from './pool-name.js';
import type { Key } from './scope.js';

export const name = 'pg-pool';
export const summary = 'autocommitted pool.query, to be wrapped in a transaction with the publish';

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

type Stretch = Pick<PoolScope, 'statements' | 'behind' | 'emptyReturns' | 'obstacles'>;

export class PoolFinder {
  constructor(
    private readonly names: PoolNames,
    private readonly effects: Effects,
    private readonly availabilities: Availabilities,
    private readonly between: Between,
    private readonly arounds: Arounds,
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
    const stretch = this.stretch(statement, publish, writes, queries, isSite, scope);
    const opener = last.deep?.opener;
    const fixed = writes.find((w) => w.fixed === true);
    if (fixed !== undefined)
      obstacles.push({
        code: 'unsupported-library',
        what: `${quote(fixed.handle)}, a repository with a constructor of its own`,
      });
    const handled = stretch.statements.find((s) => holds(s, (n) => handlesError(n) && isOf(n, queries)));
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
      queries: queries.filter((q) => q.on === 'pool' && stretch.statements.some((s) => contains(s, q.call))),
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

  private stretch(
    lastWrite: ts.Statement,
    publish: ts.Statement,
    writes: readonly PoolQuery[],
    queries: readonly PoolQuery[],
    isSite: (call: ts.CallExpression) => boolean,
    scope: Scope,
  ): Stretch {
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
      const guard = this.emptyGuard(statement, all.slice(start, all.indexOf(statement)));
      if (guard !== undefined) emptyReturns.push(...guard);
      else if (mayExit(statement))
        obstacles.push({ code: 'early-exit', what: `line ${lineOf(statement)}, ${quote(statement)}` });
      else foreign.push(statement);
    }
    // What follows and writes through a function on the same pool belongs to the same unit of work.
    const writesToo = (s: ts.Statement): boolean =>
      queries.some((q) => q.deep !== undefined && contains(s, q.call) && this.sameAs(q, writes));
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
    return { statements, behind, emptyReturns, obstacles };
  }

  private sameAs(query: PoolQuery, writes: readonly PoolQuery[]): boolean {
    return writes.every((w) => this.poolKey(w) === this.poolKey(query));
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
    const isOurs = (n: ts.Node): boolean =>
      (ts.isCallExpression(n) && isSite(n)) ||
      queries.some((q) => q.on === 'pool' && (q.call === n || q.spine?.has(n)));
    let fits = true;
    let effect = false;
    eachOwnNode(statement, (n) => {
      if (isOurs(n)) effect = true;
      else if (ts.isAwaitExpression(n) && !isOurs(bare(n.expression))) fits = false;
      else if (ts.isCallExpression(n) && !this.availabilities.isPlain(n) && !holds(n, isOurs)) fits = false;
    });
    // A call for its own sake does something: only the console may do it before the commit.
    if (ts.isExpressionStatement(statement) && ts.isCallExpression(bare(statement.expression)) && !effect) {
      return fits && /^console\./.test(bare(statement.expression).getText());
    }
    return fits;
  }

  /**
   * `if (rows.length === 0) return …` or `throw`: the guard of the one write before it. No row came back, so none was
   * written, and ending the transaction either way is the same. Undefined when it is no such guard.
   */
  private emptyGuard(
    statement: ts.Statement,
    before: readonly ts.Statement[],
  ): ts.ReturnStatement[] | undefined {
    if (!ts.isIfStatement(statement) || statement.elseStatement !== undefined) return undefined;
    if (!alwaysExits(statement.thenStatement) || !provesEmpty(statement.expression, this.rowNames(before)))
      return undefined;
    const returns: ts.ReturnStatement[] = [];
    let plain = true;
    eachOwnNode(statement.thenStatement, (n) => {
      if (ts.isReturnStatement(n)) returns.push(n);
      if (ts.isBreakStatement(n) || ts.isContinueStatement(n) || ts.isAwaitExpression(n)) plain = false;
      if (ts.isIfStatement(n) || ts.isIterationStatement(n, false) || ts.isTryStatement(n)) plain = false;
    });
    return plain ? returns : undefined;
  }

  /** Names that stand for the write's result, its rows or its first row. */
  private rowNames(statements: readonly ts.Statement[]): ReadonlySet<string> {
    const names = new Set<string>();
    for (const statement of statements) {
      if (!ts.isVariableStatement(statement)) continue;
      for (const { name: bound, initializer } of statement.declarationList.declarations) {
        const source = initializer === undefined ? undefined : unwrapped(initializer);
        if (source === undefined) continue;
        const query = ts.isCallExpression(source) ? this.effects.pgQuery(source) : undefined;
        const root = rootName(source);
        if (query !== undefined) {
          if (returnsWhatItWrote(query.text)) for (const n of resultNames(bound)) names.add(n);
        } else if (root !== undefined && names.has(root) && ts.isIdentifier(bound)) names.add(bound.text);
      }
    }
    return names;
  }

  /** Repositories and managers of TypeORM, models of others lead to one data source, or the package's openings have refused it. */
  private poolKey(query: PoolQuery): string {
    if (query.deep?.key !== undefined) return query.deep.key;
    const { library } = query;
    const isOneOfMany = library?.wrap?.inside !== undefined || library?.wrap?.join !== undefined;
    return library !== undefined && isOneOfMany ? library.name : this.key(query.handle);
  }
}

function isPg(query: PoolQuery): query is PoolQuery & PgQuery {
  return query.library === undefined;
}

/** `insert … returning`: without a row in the answer there is no row that was written. */
function returnsWhatItWrote(sql: string): boolean {
  return /^\s*(?:insert|update|delete)\b[\s\S]*\breturning\b/i.test(sql);
}

/** `result`, `{ rows }`, `{ rowCount }`, `{ rows: [row] }`: names for the whole answer or its first row. */
function resultNames(bound: ts.BindingName): string[] {
  if (ts.isIdentifier(bound)) return [bound.text];
  if (!ts.isObjectBindingPattern(bound)) return [];
  return bound.elements.flatMap((e) => {
    const key = (e.propertyName ?? e.name).getText();
    if (key !== 'rows' && key !== 'rowCount') return [];
    if (ts.isIdentifier(e.name)) return [e.name.text];
    const [first] = ts.isArrayBindingPattern(e.name) ? e.name.elements : [];
    return first !== undefined && ts.isBindingElement(first) && ts.isIdentifier(first.name)
      ? [first.name.text]
      : [];
  });
}

function holds(node: ts.Node, test: (n: ts.Node) => boolean): boolean {
  let found = false;
  eachOwnNode(node, (n) => {
    if (test(n)) found = true;
  });
  return found;
}

function isOf(call: ts.Node, queries: readonly PoolQuery[]): boolean {
  return queries.some((q) => q.on === 'pool' && contains(call, q.call));
}

function isWriting(query: PoolQuery): boolean {
  return query.sql === 'write' || query.sql === 'unknown';
}

/** `!row`, `row === undefined`, `rows.length === 0`, `result.rowCount === 0`, `!result.rowCount`, and `||` of these. */
function provesEmpty(condition: ts.Expression, names: ReadonlySet<string>): boolean {
  const e = bare(condition);
  const known = (x: ts.Expression): boolean => {
    const root = rootName(x);
    return root !== undefined && names.has(root);
  };
  if (ts.isPrefixUnaryExpression(e) && e.operator === ts.SyntaxKind.ExclamationToken) return known(e.operand);
  if (!ts.isBinaryExpression(e)) return false;
  const kind = e.operatorToken.kind;
  if (kind === ts.SyntaxKind.BarBarToken) return provesEmpty(e.left, names) && provesEmpty(e.right, names);
  const equal = kind === ts.SyntaxKind.EqualsEqualsEqualsToken || kind === ts.SyntaxKind.EqualsEqualsToken;
  const below = kind === ts.SyntaxKind.LessThanToken;
  const right = e.right.getText();
  const isCount = /\.(?:length|rowCount)$/.test(bare(e.left).getText());
  if (equal)
    return known(e.left) && (right === 'undefined' || right === 'null' || (right === '0' && isCount));
  return below && known(e.left) && isCount && right === '1';
}

/** `rows` in `rows[0]`, `result` in `result.rows[0]`: only through rows, length, rowCount and an index. */
function rootName(e: ts.Expression): string | undefined {
  let x = bare(e);
  while (ts.isPropertyAccessExpression(x) || ts.isElementAccessExpression(x)) {
    const step = ts.isPropertyAccessExpression(x) ? x.name.text : '[]';
    if (!['rows', 'length', 'rowCount', '[]'].includes(step)) return undefined;
    x = bare(x.expression);
  }
  return ts.isIdentifier(x) ? x.text : undefined;
}
