/**
 * An error handler behind which nobody goes on: `.catch((error) => { console.error(error); throw error; })`. Whoever waits for
 * the statement fails with its handler as without one, so a transaction around it is rolled back all the same. It proves
 * that; a handler that may end well, waits, or asks a database while the failed transaction is open, is none.
 */

import { ts } from 'ts-morph';
import type { CallLike, Effects } from './effects.js';
import { bare, type Fn, ownCalls } from './syntax.js';
import { handlesError } from './waits.js';

/** Calls of these that reach nothing else report. */
export const REPORTS =
  /(?:^console\.\w+|\.(?:error|warn|info|debug|log|trace|fatal|reportError|captureException))$/;

export class Rethrows {
  constructor(
    private readonly effects: Effects,
    private readonly isPlain: (node: ts.Node) => boolean,
  ) {}

  /** A handler of errors that lets somebody go on. */
  swallows(node: ts.Node): boolean {
    return handlesError(node) && !this.isRethrow(node);
  }

  /** The call itself, or the last `.catch(…)` behind it that only rethrows: what whoever waits for it waits for. */
  outer(call: CallLike): CallLike {
    const access = call.parent;
    const handled =
      ts.isPropertyAccessExpression(access) && access.expression === call ? access.parent : call;
    return handled !== call && this.isRethrow(handled) ? this.outer(handled) : call;
  }

  /** The way back: the statement in `statement.catch(…)`. */
  inner(e: ts.Expression): ts.Expression {
    return this.isRethrow(e) ? this.inner(bare(e.expression.expression)) : e;
  }

  private isRethrow(
    node: ts.Node,
  ): node is ts.CallExpression & { readonly expression: ts.PropertyAccessExpression } {
    if (!ts.isCallExpression(node) || !ts.isPropertyAccessExpression(node.expression)) return false;
    const [handler, ...more] = node.arguments;
    if (node.expression.name.text !== 'catch' || handler === undefined || more.length > 0) return false;
    const fn = bare(handler);
    if (!ts.isArrowFunction(fn) && !ts.isFunctionExpression(fn)) return false;
    return fn.asteriskToken === undefined && this.alwaysThrows(fn);
  }

  private alwaysThrows({ parameters, body }: Fn): boolean {
    if (body === undefined || !parameters.every((p) => this.isPlain(p))) return false;
    return ts.isBlock(body) ? this.ends(body) : this.isRejection(body);
  }

  /** Whether every way through a statement ends in a throw, and nothing on the way does more than report. */
  private ends(statement: ts.Statement): boolean {
    if (ts.isThrowStatement(statement)) return this.isPlain(statement.expression);
    if (ts.isReturnStatement(statement))
      return statement.expression !== undefined && this.isRejection(statement.expression);
    if (ts.isIfStatement(statement))
      return (
        this.isPlain(statement.expression) &&
        statement.elseStatement !== undefined &&
        this.ends(statement.thenStatement) &&
        this.ends(statement.elseStatement)
      );
    if (!ts.isBlock(statement)) return false;
    const last = statement.statements.at(-1);
    return (
      last !== undefined && this.ends(last) && statement.statements.slice(0, -1).every((s) => this.passes(s))
    );
  }

  /** In front of the throw: a report, a constant, a branch of these that may also throw. */
  private passes(statement: ts.Statement): boolean {
    if (ts.isBlock(statement)) return statement.statements.every((s) => this.passes(s));
    if (ts.isIfStatement(statement))
      return (
        [statement.thenStatement, statement.elseStatement].every(
          (s) => s === undefined || this.passes(s) || this.ends(s),
        ) && this.isPlain(statement.expression)
      );
    if (ts.isVariableStatement(statement)) return this.isPlain(statement);
    if (ts.isThrowStatement(statement) || ts.isReturnStatement(statement)) return this.ends(statement);
    return this.reports(statement);
  }

  /** `console.error(…)`, `this.logger.warn(…)`: a call for its own sake that reaches no database, broker or other service. */
  reports(statement: ts.Statement): boolean {
    if (!ts.isExpressionStatement(statement) || !ts.isCallExpression(statement.expression)) return false;
    return ownCalls(statement).every((call) => {
      const isQuiet = this.effects.ofCall(call).length === 0 && !this.effects.mayWrite(call);
      const isReport = call === statement.expression && REPORTS.test(call.expression.getText());
      return isQuiet && (isReport || this.isPlain(call));
    });
  }

  /** `Promise.reject(error)`. */
  private isRejection(e: ts.Expression): boolean {
    const call = bare(e);
    return (
      ts.isCallExpression(call) &&
      call.expression.getText() === 'Promise.reject' &&
      call.arguments.every((a) => this.isPlain(a))
    );
  }
}
