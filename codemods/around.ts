/**
 * The larger statement that is a publish and nothing else of weight: a try whose catch only reports a failed publish, and
 * a `Promise.all` that it is one element of. A new transaction takes the place of the whole. Places only; no edits.
 */

import { ts } from 'ts-morph';
import type { Between } from './between.js';
import type { Effects } from './effects.js';
import { REPORTS } from './rethrow.js';
import { bare, ownCalls, scopeOf } from './syntax.js';

export interface Around {
  readonly statement: ts.Statement;
  /** The catch that only reports. */
  readonly reported: ts.CatchClause | undefined;
  /** The list that it is an element of. */
  readonly list: ts.ArrayLiteralExpression | undefined;
}

export class Arounds {
  constructor(
    private readonly effects: Effects,
    private readonly between: Between,
  ) {}

  /** Undefined when the publish is a statement of its own, or part of something that has to stay. */
  of(call: ts.CallExpression, isSite: (call: ts.CallExpression) => boolean): Around | undefined {
    return this.reporting(call) ?? this.beside(call, isSite);
  }

  /** `try { await publish(…) } catch (error) { console.error(error) }`. */
  private reporting(call: ts.CallExpression): Around | undefined {
    const e = ts.isAwaitExpression(call.parent) ? call.parent : call;
    const statement = e.parent;
    const block = statement.parent;
    if (!ts.isExpressionStatement(statement) || !ts.isBlock(block) || block.statements.length !== 1)
      return undefined;
    const outer = block.parent;
    if (!ts.isTryStatement(outer) || outer.tryBlock !== block || outer.finallyBlock !== undefined)
      return undefined;
    const handler = outer.catchClause;
    if (handler === undefined || !handler.block.statements.every((s) => this.onlyReports(s)))
      return undefined;
    return { statement: outer, reported: handler, list: undefined };
  }

  /** A call for its own sake that reaches no database, broker or other service, and that nobody waits for. */
  private onlyReports(statement: ts.Statement): boolean {
    if (!ts.isExpressionStatement(statement) || !ts.isCallExpression(statement.expression)) return false;
    return ownCalls(statement).every(
      (call) =>
        this.effects.ofCall(call).length === 0 &&
        !this.effects.mayWrite(call) &&
        REPORTS.test(call.expression.getText()),
    );
  }

  /** `await Promise.all([publish(…), other()])`, where what else is in it can do without the publish. */
  private beside(call: ts.CallExpression, isSite: (call: ts.CallExpression) => boolean): Around | undefined {
    const list = call.parent;
    if (!ts.isArrayLiteralExpression(list) || list.elements.some(ts.isSpreadElement)) return undefined;
    const all = list.parent;
    if (!ts.isCallExpression(all) || all.arguments.length !== 1) return undefined;
    if (all.expression.getText() !== 'Promise.all' || !ts.isAwaitExpression(all.parent)) return undefined;
    const statement = all.parent.parent;
    if (!ts.isExpressionStatement(statement)) return undefined;
    const isOurs = (e: ts.Expression): boolean => ts.isCallExpression(e) && isSite(e);
    const others = list.elements.filter((e) => !isOurs(e));
    const ours = list.elements.filter(isOurs);
    const free = others.every((e) => this.between.mayFollow(e, ours, scopeOf(call)));
    return free ? { statement, reported: undefined, list } : undefined;
  }

  /** Whether a statement is such a try around one of the sites. */
  isReportingTry(statement: ts.Statement, isSite: (call: ts.CallExpression) => boolean): boolean {
    if (!ts.isTryStatement(statement)) return false;
    const [only] = statement.tryBlock.statements;
    const e = only !== undefined && ts.isExpressionStatement(only) ? bare(only.expression) : undefined;
    const call = e !== undefined && ts.isAwaitExpression(e) ? bare(e.expression) : e;
    return (
      call !== undefined &&
      ts.isCallExpression(call) &&
      isSite(call) &&
      this.reporting(call)?.statement === statement
    );
  }
}
