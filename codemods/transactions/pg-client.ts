/**
 * A transaction that is opened and ended by statements: `client.query('BEGIN')` … `client.query('COMMIT')` on a pg
 * client, or the like of a client or ORM (manual.ts). It finds the statements and says how a publish stands to them;
 * it refuses to know what the publish says and how it is edited.
 */

import { ts } from 'ts-morph';
import type { Effects, PgQuery } from '../effects.js';
import { isWrite } from '../effects.js';
import { enclosures, follows, statementOf, stepsOf } from '../hazards.js';
import type { Obstacle } from '../reasons.js';
import { bare, isAsync, lineOf, ownCalls, quote, type Scope } from '../syntax.js';
import type { Idiom } from './idiom.js';
import type { Key, TransactionScope } from './scope.js';
import { insertTarget } from './sql.js';
import type { Writes } from './writes.js';

export const name = 'pg-client';
export const summary = 'BEGIN and COMMIT on one pg client';

/** What opens or ends a transaction, and on which handle. */
export interface TxCall extends Pick<PgQuery, 'call' | 'on' | 'handle' | 'sql'> {
  readonly library?: Idiom;
  /** What the transaction was opened on, where the adapter wants it beside the handle. */
  readonly root?: ts.Expression | undefined;
}

/** One BEGIN, COMMIT or ROLLBACK. */
export interface TxStatement {
  readonly query: TxCall;
  readonly statement: ts.Statement;
}

/** The transaction of `scope` that a publish belongs to; undefined when there is none in this function. */
export function find(
  scope: Scope,
  publish: ts.Statement,
  effects: Effects,
  key: Key,
  all: readonly TxStatement[],
  proof: Writes,
): TransactionScope | undefined {
  const commits = all.filter((t) => t.query.sql === 'commit');
  const inside = commits.find((c) => c.statement.pos >= publish.end && isInside(c, all, publish, scope, key));
  if (inside !== undefined) return scopeInside(inside, all, publish, scope, effects, key, proof);
  const reached = commits
    .filter((c) => c.statement.end <= publish.end)
    .map((commit) => ({ commit, relation: follows(commit.statement, publish, scope) }))
    .filter(({ relation }) => relation.reachable);
  const last = reached.at(-1);
  if (last === undefined) return undefined;
  const obstacles: Obstacle[] = [...last.relation.obstacles];
  if (reached.length > 1) {
    obstacles.push({
      code: 'two-commits',
      what: reached.map((r) => `line ${lineOf(r.commit.statement)}`).join(', '),
    });
  }
  obstacles.push(...unclear(last.commit, all, scope, key), ...writesBetween(last.relation.between, effects));
  return {
    ...common(last.commit, all, scope, effects, key, obstacles, proof),
    position: 'after',
    between: last.relation.between,
    rollbackCatch: rollbackCatch(last.commit, publish, all),
  };
}

export function transactionStatements(scope: Scope, effects: Effects): TxStatement[] {
  return ownCalls(scope).flatMap((call) => {
    const query = effects.pgQuery(call);
    const statement = statementOf(call);
    const isTx =
      query !== undefined && (query.sql === 'begin' || query.sql === 'commit' || query.sql === 'rollback');
    return isTx && statement !== undefined ? [{ query, statement }] : [];
  });
}

function common(
  commit: TxStatement,
  all: readonly TxStatement[],
  scope: Scope,
  effects: Effects,
  key: Key,
  obstacles: readonly Obstacle[],
  proof: Writes,
): Omit<TransactionScope, 'position' | 'between' | 'rollbackCatch'> {
  const begin = beginOf(commit, all, scope, key);
  const between = begin === undefined ? [] : callsBetween(scope, begin, commit.statement);
  const stored = between.flatMap((call) => outboxInsert(call, effects));
  const { library, handle } = commit.query;
  const root = all.find((t) => t.statement === begin)?.query.root;
  const written =
    library === undefined
      ? {
          writes: between.some(
            (call) => effects.ofCall(call).some(isWrite) || passesHandle(call, commit, key),
          ),
          obstacles: [],
        }
      : proof.among(between, handle);
  return {
    idiom: library?.name ?? name,
    handle: root === undefined ? handle.getText() : `${root.getText()}, ${handle.getText()}`,
    handleNode: handle,
    library,
    begin,
    end: commit.statement,
    target: { before: commit.statement },
    inner: undefined,
    writes: written.writes,
    obstacles: [...obstacles, ...stored, ...written.obstacles],
  };
}

function scopeInside(
  commit: TxStatement,
  all: readonly TxStatement[],
  publish: ts.Statement,
  scope: Scope,
  effects: Effects,
  key: Key,
  proof: Writes,
): TransactionScope {
  const obstacles = unclear(commit, all, scope, key);
  const list = stepsOf(publish, scope).find((s) => s.list === commit.statement.parent);
  const stop = list?.statement ?? publish;
  // A loop or a branch inside the transaction stays as it is; an own catch would hide an aborted transaction.
  obstacles.push(
    ...enclosures(publish, stop).filter((o) => o.code !== 'loop' && o.code !== 'conditional-path'),
  );
  for (const { list: inner, statement } of stepsOf(publish, scope)) {
    if (statement === stop) break;
    const rest = inner.statements.slice(inner.statements.indexOf(statement) + 1);
    if (rest.some((s) => all.some((t) => t.query.sql === 'rollback' && t.statement === s))) {
      obstacles.push({ code: 'publishes-on-failure', what: `a ROLLBACK follows at line ${lineOf(inner)}` });
    }
  }
  return {
    ...common(commit, all, scope, effects, key, obstacles, proof),
    position: 'inside',
    target: { before: publish },
    between: [],
    rollbackCatch: undefined,
  };
}

/** The BEGIN that always precedes this COMMIT: in the same list or one around it. */
function beginOf(
  commit: TxStatement,
  all: readonly TxStatement[],
  scope: Scope,
  key: Key,
): ts.Statement | undefined {
  const steps = stepsOf(commit.statement, scope);
  const begins = all.filter(
    (t) =>
      t.query.sql === 'begin' &&
      t.statement.end <= commit.statement.pos + 1 &&
      key(t.query.handle) === key(commit.query.handle) &&
      steps.some((s) => s.list === t.statement.parent),
  );
  return begins.at(-1)?.statement;
}

function isInside(
  commit: TxStatement,
  all: readonly TxStatement[],
  publish: ts.Statement,
  scope: Scope,
  key: Key,
): boolean {
  const begin = beginOf(commit, all, scope, key);
  const steps = stepsOf(publish, scope);
  if (begin === undefined || begin.end > publish.pos + 1) return false;
  if (!steps.some((s) => s.list === begin.parent) || !steps.some((s) => s.list === commit.statement.parent))
    return false;
  // A commit before the publish that leads to it has ended the transaction.
  return !all.some(
    (t) =>
      t.query.sql === 'commit' &&
      t.statement.pos >= begin.end &&
      t.statement.end <= publish.pos + 1 &&
      follows(t.statement, publish, scope).reachable,
  );
}

function unclear(commit: TxStatement, all: readonly TxStatement[], scope: Scope, key: Key): Obstacle[] {
  const obstacles: Obstacle[] = [];
  const add = (what: string): void => {
    obstacles.push({ code: 'transaction-unclear', what });
  };
  const begin = beginOf(commit, all, scope, key);
  const at = `COMMIT at line ${lineOf(commit.statement)}`;
  if (commit.query.on === 'pool') add(`${at} runs on a pool, on whichever connection is free`);
  else if (begin === undefined) add(`no BEGIN precedes the ${at} on every path`);
  if (!isAwaitedStatement(commit)) add(`the ${at} is not an awaited statement`);
  if (!isAsync(scope)) obstacles.push({ code: 'not-async', what: `line ${lineOf(scope)}` });
  const loose = all.find(
    (t) =>
      t.query.sql === 'rollback' &&
      begin !== undefined &&
      t.statement.pos >= begin.end &&
      t.statement.end <= commit.statement.pos + 1 &&
      follows(t.statement, commit.statement, scope).reachable,
  );
  if (loose !== undefined) add(`the ROLLBACK at line ${lineOf(loose.statement)} leads on to the ${at}`);
  return obstacles;
}

function isAwaitedStatement(t: TxStatement): boolean {
  return (
    ts.isExpressionStatement(t.statement) &&
    ts.isAwaitExpression(t.statement.expression) &&
    bare(t.statement.expression.expression) === t.query.call
  );
}

function writesBetween(between: readonly ts.Statement[], effects: Effects): Obstacle[] {
  const write = between.flatMap((s) => effects.of(s)).find((e) => isWrite(e) || e.kind === 'pg-transaction');
  return write === undefined
    ? []
    : [{ code: 'write-after-commit', what: `line ${lineOf(write.at)}, ${quote(write.at)}` }];
}

function callsBetween(scope: Scope, begin: ts.Statement, commit: ts.Statement): ts.CallExpression[] {
  return ownCalls(scope).filter((c) => c.pos >= begin.end && c.end <= commit.pos + 1);
}

function passesHandle(call: ts.CallExpression, commit: TxStatement, key: Key): boolean {
  return call.arguments.some((a) => ts.isIdentifier(a) && key(a) === key(commit.query.handle));
}

function outboxInsert(call: ts.CallExpression, effects: Effects): Obstacle[] {
  const table = insertTarget(effects.pgQuery(call)?.text ?? '');
  return table?.includes('outbox')
    ? [{ code: 'already-transactional', what: `insert into ${table}, line ${lineOf(call)}` }]
    : [];
}

/** The line of a catch that holds a ROLLBACK and whose try holds both the commit and the publish. */
function rollbackCatch(
  commit: TxStatement,
  publish: ts.Statement,
  all: readonly TxStatement[],
): number | undefined {
  for (let n: ts.Node = commit.statement; !ts.isSourceFile(n); n = n.parent) {
    const holder = n.parent;
    if (!ts.isTryStatement(holder) || holder.tryBlock !== n || holder.catchClause === undefined) continue;
    const handler = holder.catchClause;
    const both = publish.pos >= n.pos && publish.end <= n.end;
    const rolls = all.some(
      (t) => t.query.sql === 'rollback' && t.statement.pos >= handler.pos && t.statement.end <= handler.end,
    );
    if (both && rolls) return lineOf(handler);
  }
  return undefined;
}
