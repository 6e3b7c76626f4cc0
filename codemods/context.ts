/**
 * A publish without a transaction in its function: why. The write is elsewhere, or later, or in another database, or
 * there is none. It gives obstacles; it edits nothing.
 */

import { ts } from 'ts-morph';
import type { Databases } from './databases.js';
import { dispatchOf } from './dispatch.js';
import { type Effect, type Effects, isWrite } from './effects.js';
import { callbackObstacle, enclosures, follows, statementOf } from './hazards.js';
import { localSymbol } from './origins.js';
import { classOf } from './packages.js';
import type { Obstacle } from './reasons.js';
import type { Resolver } from './resolve.js';
import { contains, describe, eachNode, lineOf, ownCalls, quote, type Scope, scopeOf } from './syntax.js';
import { choiceBehind, choicesOf } from './transactions/choices.js';
import { idiomOf } from './transactions/idioms.js';
import { classifySql } from './transactions/sql.js';

/** Roles of a transaction, or of what may be one, that a caller passes in. */
const HANDLES = new Set(['trx', 'tx', 'part', 'manager', 'runner', 'transaction', 'em', 'task']);

export class Contexts {
  constructor(
    private readonly resolver: Resolver,
    private readonly effects: Effects,
    private readonly databases: Databases,
    /** Why a call that writes cannot be handed a transaction. */
    private readonly whyNot: (call: ts.CallExpression) => string | undefined,
  ) {}

  /** Why there is no transaction to use. Never empty. */
  explain(call: ts.CallExpression): Obstacle[] {
    const scope = scopeOf(call);
    const own = this.inFunction(call, scope);
    const around = this.around(call, scope);
    const obstacles = [
      ...own,
      ...around,
      ...enclosures(call, scope).filter((o) => o.code !== 'finally-block'),
    ];
    if (own.length > 0 || around.length > 0) return obstacles;
    const dispatched = dispatchOf(scope, this.resolver);
    return [...obstacles, dispatched ?? { code: 'no-write', what: describe(scope) }];
  }

  /** Writes to a database that is no Postgres, in the function of a publish that has a pg transaction too. */
  foreignWrites(scope: Scope): Obstacle[] {
    const foreign = this.effects.of(scope).find((e) => e.kind === 'not-postgres');
    return foreign === undefined
      ? []
      : [{ code: 'two-databases', what: `Postgres and ${foreign.what} (line ${lineOf(foreign.at)})` }];
  }

  /**
   * A catch around both the write and the publish that does something of its own, and does not roll back: it makes up
   * for a failed publish of a row that is there, and would then make up for a row that is not. One that only tells of
   * the failure is right then for the first time.
   */
  coveringCatch(
    publish: ts.Node,
    write: ts.Node,
    scope: Scope,
    tellsOfFailure: (handler: ts.CatchClause) => boolean,
  ): Obstacle[] {
    for (let n = publish; n !== scope && !ts.isSourceFile(n); n = n.parent) {
      const holder = n.parent;
      if (!ts.isTryStatement(holder) || holder.tryBlock !== n || holder.catchClause === undefined) continue;
      if (!contains(n, write)) continue;
      const found = this.effects.of(holder.catchClause);
      if (
        (found.length === 0 && !this.doesSomething(holder.catchClause)) ||
        found.some((e) => e.kind === 'pg-transaction' && /^rollback/i.test(e.what)) ||
        (found.every((e) => e.kind === 'broker') && tellsOfFailure(holder.catchClause))
      )
        continue;
      return [{ code: 'catch-covers-both', what: `line ${lineOf(holder.catchClause)}` }];
    }
    return [];
  }

  /** Waits for something that could not be traced: it may be a write of another kind. */
  private doesSomething(handler: ts.CatchClause): boolean {
    return ownCalls(handler).some(
      (c) => ts.isAwaitExpression(c.parent) && this.resolver.calleeOf(c).kind === 'unresolved',
    );
  }

  private inFunction(call: ts.CallExpression, scope: Scope): Obstacle[] {
    const found = this.effects.of(scope).filter((e) => isWrite(e) || e.kind === 'pg-transaction');
    const others = found.filter((e) => !contains(call, e.at) && !contains(e.at, call));
    const obstacles: Obstacle[] = this.unresolvedSql(scope);
    const before = others.filter((e) => e.at.end <= call.getStart());
    if (others.length === 0) return obstacles;
    if (before.length === 0) {
      const [first] = others;
      if (first !== undefined)
        obstacles.push({
          code: 'publish-before-write',
          what: `line ${lineOf(first.at)}, ${quote(first.at)}`,
        });
      return [...obstacles, ...this.kinds(others)];
    }
    return [
      ...obstacles,
      ...this.kinds(before),
      ...this.elsewhere(
        before.filter((e) => e.kind.startsWith('pg') || (e.kind === 'orm' && idiomOf(e.what) !== undefined)),
        scope,
      ),
    ];
  }

  private kinds(effects: readonly Effect[]): Obstacle[] {
    const foreign = effects.find((e) => e.kind === 'not-postgres');
    const orm = effects.find((e) => e.kind === 'orm');
    const pg = effects.some((e) => e.kind === 'pg-write' || e.kind === 'pg-transaction');
    const obstacles: Obstacle[] = [];
    if (foreign !== undefined)
      obstacles.push({ code: pg ? 'two-databases' : 'not-postgres', what: foreign.what });
    if (orm !== undefined) {
      const library = idiomOf(orm.what);
      if (library === undefined) obstacles.push({ code: 'unsupported-library', what: orm.what });
      else
        obstacles.push(...this.databases.obstacles(library, orm.at).filter((o) => o.code === 'not-postgres'));
    }
    return obstacles;
  }

  /** The pg write is there, but its transaction is not in this function. */
  private elsewhere(effects: readonly Effect[], scope: Scope): Obstacle[] {
    const last = effects.at(-1);
    if (last === undefined) return [];
    const more = [...this.severalCommits(effects, scope), ...storedMessage(effects)];
    return [...more, ...this.notHere(last, effects, scope)];
  }

  /** Commits one after the other, each behind a call of the repository's own: which of them owns the job? */
  private severalCommits(effects: readonly Effect[], scope: Scope): Obstacle[] {
    const commits = effects.filter(
      ({ kind, source, direct }) =>
        kind === 'pg-transaction' &&
        !direct &&
        ts.isCallExpression(source) &&
        this.effects.transactionWord(source) === 'commit',
    );
    const statements = [...new Set(commits.flatMap(({ at }) => statementOf(at) ?? []))];
    const [first, ...later] = statements;
    const then = first === undefined ? [] : later.filter((s) => follows(first, s, scope).reachable);
    return first === undefined || then.length === 0
      ? []
      : [{ code: 'two-commits', what: [first, ...then].map((s) => `line ${lineOf(s)}`).join(', ') }];
  }

  private notHere(last: Effect, effects: readonly Effect[], scope: Scope): Obstacle[] {
    const array = this.arrayForm(effects, scope);
    if (array !== undefined) return [array];
    const query = ts.isCallExpression(last.at) ? this.effects.pgQuery(last.at) : undefined;
    if (last.kind === 'orm' && last.direct && scopeOf(last.at) === scope) return this.unclaimed(last, scope);
    if (query === undefined || scopeOf(last.at) !== scope) {
      const hindered = effects.find((e) => ts.isCallExpression(e.at) && this.whyNot(e.at) !== undefined);
      return [{ code: 'no-transaction-here', what: this.callee(hindered ?? last) }];
    }
    if (query.sql !== 'write' && query.sql !== 'unknown') {
      return [{ code: 'transaction-unclear', what: `line ${lineOf(last.at)}, ${quote(last.at)}` }];
    }
    if (query.on === 'pool')
      return [{ code: 'path-without-write', what: `line ${lineOf(last.at)}, ${quote(last.at)}` }];
    const handle = query.handle;
    const declaration = this.resolver.analysis.checker.getSymbolAtLocation(handle)?.valueDeclaration;
    if (declaration !== undefined && ts.isParameter(declaration) && ts.isIdentifier(handle)) {
      return [
        {
          code: 'no-transaction-here',
          what: `${handle.getText()} is passed in, and whoever passes it commits`,
        },
      ];
    }
    if (declaration !== undefined && scopeOf(declaration) === scopeOf(last.at)) {
      return [
        {
          code: 'transaction-unclear',
          what: `${handle.getText()} writes without BEGIN (line ${lineOf(last.at)})`,
        },
      ];
    }
    return [{ code: 'shared-client', what: handle.getText() }];
  }

  /** `prisma.$transaction([…])`: a list of statements has no place for an enqueue that reads their results. */
  private arrayForm(effects: readonly Effect[], scope: Scope): Obstacle | undefined {
    for (const { kind, at } of effects) {
      if (kind !== 'pg-transaction' || !ts.isCallExpression(at) || scopeOf(at) !== scope) continue;
      const [argument] = at.arguments;
      if (argument === undefined || !ts.isArrayLiteralExpression(argument)) continue;
      if (this.effects.transactionWord(at) === 'begin')
        return {
          code: 'transaction-unclear',
          what: `line ${lineOf(at)} is a list; only a callback has a handle`,
        };
    }
    return undefined;
  }

  /** A write of a client or ORM in this very function, and no transaction of it here. */
  private unclaimed(effect: Effect, scope: Scope): Obstacle[] {
    const passed = ts.isSourceFile(scope)
      ? undefined
      : scope.parameters.find(
          ({ name }) =>
            ts.isIdentifier(name) &&
            this.names(effect.at, name) &&
            HANDLES.has(this.resolver.roleOf(name)?.what ?? ''),
        );
    if (passed !== undefined) {
      const what = `${passed.name.getText()} is passed in, and whoever passes it commits`;
      return [{ code: 'no-transaction-here', what }];
    }
    const chosen = this.chosenIn(effect.at);
    if (chosen !== undefined) return [{ code: 'handle-may-be-missing', what: quote(chosen) }];
    const partial = this.partOf(effect.at);
    if (partial !== undefined)
      return [
        {
          code: 'no-transaction-here',
          what: `${quote(partial)} is declared as a part of a database or of a transaction, and whoever gives it commits`,
        },
      ];
    const wrap = idiomOf(effect.what)?.wrap;
    if (wrap === undefined || (wrap.join !== undefined && wrap.join(effect.at, '') === undefined))
      return [
        {
          code: 'unsupported-library',
          what: `${effect.what} (line ${lineOf(effect.at)}, ${quote(effect.at)})`,
        },
      ];
    return [{ code: 'path-without-write', what: `line ${lineOf(effect.at)}, ${quote(effect.at)}` }];
  }

  /** `tx ?? this.db`, or a parameter that gets both: what a statement is rooted in, where that may be a transaction. */
  private chosenIn(statement: ts.Node): ts.Expression | undefined {
    let found: ts.Expression | undefined;
    eachNode(statement, (n) => {
      if (found !== undefined || !(ts.isIdentifier(n) || ts.isParenthesizedExpression(n))) return;
      const choices = choicesOf(n, this.resolver);
      if (choices.some((e) => HANDLES.has(this.resolver.roleOf(e)?.what ?? '')) && choices.length > 1)
        found = choiceBehind(n, this.resolver) ?? n;
    });
    return found;
  }

  /** What a statement is rooted in, where its type leaves out what would open a transaction. */
  private partOf(statement: ts.Node): ts.Expression | undefined {
    let found: ts.Expression | undefined;
    eachNode(statement, (n) => {
      if (found !== undefined || !(ts.isIdentifier(n) || ts.isPropertyAccessExpression(n))) return;
      if (this.resolver.roleOf(n)?.what === 'part') found = n;
    });
    return found;
  }

  private names(node: ts.Node, name: ts.Identifier): boolean {
    const { checker } = this.resolver.analysis;
    const wanted = checker.getSymbolAtLocation(name);
    let found = false;
    eachNode(node, (n) => {
      if (ts.isIdentifier(n) && localSymbol(checker, n) === wanted) found = true;
    });
    return found;
  }

  /** `createOrder writes (src/repo.ts:12)`. */
  private callee(effect: Effect): string {
    const file = this.resolver.analysis.pathOf(effect.source.getSourceFile());
    const called = ts.isCallExpression(effect.at) ? effect.at.expression : effect.at.tag;
    const why = ts.isCallExpression(effect.at) ? this.whyNot(effect.at) : undefined;
    return `${quote(called)} writes at ${file}:${lineOf(effect.source)}${why === undefined ? '' : `; ${why}`}`;
  }

  /** A publish in a nested function: judge what the function around it does. */
  private around(call: ts.CallExpression, scope: Scope): Obstacle[] {
    if (ts.isSourceFile(scope)) return [];
    const callback = dispatchOf(scope, this.resolver) ?? callbackObstacle(scope);
    const outer = scopeOf(scope);
    if (callback === undefined || ts.isSourceFile(outer)) return [];
    const writes = this.effects
      .of(outer)
      .filter((e) => (isWrite(e) || e.kind === 'pg-transaction') && !contains(scope, e.at));
    return writes.length === 0 ? [] : [callback, ...enclosures(call, scope)];
  }

  /** SQL on something that could not be traced to pg: `db.query('insert …')` with an unknown `db`. */
  private unresolvedSql(scope: Scope): Obstacle[] {
    for (const call of ownCalls(scope)) {
      const callee = this.resolver.calleeOf(call);
      const [argument] = call.arguments;
      if (this.effects.mayWrite(call)) return [{ code: 'handle-unresolved', what: quote(call.expression) }];
      if (callee.kind !== 'unresolved' || callee.name !== 'query' || argument === undefined) continue;
      const text = ts.isStringLiteralLike(argument)
        ? argument.text
        : ts.isTemplateExpression(argument)
          ? argument.head.text
          : '';
      const kind = classifySql(text);
      if (kind === 'write' || kind === 'begin')
        return [{ code: 'handle-unresolved', what: quote(call.expression) }];
    }
    return [];
  }

  /** A function that takes messages out of an outbox and publishes them, whatever transaction it does that in. */
  relays(publish: ts.CallExpression): Obstacle[] {
    for (let scope = scopeOf(publish); ; scope = scopeOf(scope)) {
      const read = ownCalls(scope).find((call) => this.takesFromOutbox(call));
      if (read !== undefined) return [{ code: 'outbox-relay', what: `line ${lineOf(read)}` }];
      if (ts.isSourceFile(scope)) return [];
    }
  }

  private takesFromOutbox(call: ts.CallExpression): boolean {
    const text = this.effects.pgQuery(call)?.text;
    if (text !== undefined) return OUTBOX_TAKEN.test(text);
    const callee = this.resolver.calleeOf(call);
    if (callee.kind !== 'package' || classOf(callee.role.pkg) !== 'orm') return false;
    return READS.test(callee.method) && /outbox/i.test(call.getText());
  }
}

/** Read, or marked and given back. */
const OUTBOX_TAKEN = /\bfrom\s+["\w.]*outbox|\bupdate\s+["\w.]*outbox[\s\S]*\breturning\b/i;
const READS = /^(?:find\w*|select|from|query\w*|many|any|manyOrNone)$/;

/** A builder's write to a table for messages: `trx('domain_event').insert(…)`. */
function storedMessage(effects: readonly Effect[]): Obstacle[] {
  for (const { kind, source } of effects) {
    if (kind !== 'orm' || !ts.isCallExpression(source)) continue;
    const table = MESSAGE_TABLE.exec(source.getText())?.[1];
    if (table !== undefined && /\.insert\w*\(/.test(source.getText()))
      return [{ code: 'already-transactional', what: `insert into ${table}, line ${lineOf(source)}` }];
  }
  return [];
}

const MESSAGE_TABLE = /\(\s*['"`]([\w.]*(?:outbox|domain_?event)\w*)['"`]\s*\)/i;
