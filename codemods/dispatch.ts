/**
 * Who runs a function that nobody calls: an in-process emitter, or a hook of every commit. Proven by where the
 * emitter, the decorator or the interface comes from, never by a name alone. It gives obstacles; it knows no SQL.
 */

import { ts } from 'ts-morph';
import { importedPackage } from './origins.js';
import type { Obstacle } from './reasons.js';
import type { Resolver } from './resolve.js';
import { bare, isFn, lineOf, nameOf, quote, type Scope } from './syntax.js';

const EMITTERS = new Set(['events', 'eventemitter2', '@nestjs/event-emitter']);
const LISTENING = new Set(['on', 'once', 'addListener', 'prependListener', 'prependOnceListener', 'onAny']);

/** Calls that put a callback off until a commit: `transaction.afterCommit(…)`, `runOnTransactionCommit(…)`. */
const COMMIT_HOOKS: Readonly<Record<string, string>> = {
  afterCommit: 'sequelize',
  runOnTransactionCommit: 'typeorm-transactional',
};

/** What a subscriber of TypeORM's is told after the fact; the other events come inside the transaction. */
const COMMIT_EVENTS = new Set(['afterTransactionCommit', 'afterTransactionRollback']);

export function dispatchOf(scope: Scope, resolver: Resolver): Obstacle | undefined {
  if (ts.isSourceFile(scope)) return undefined;
  return commitHook(scope, resolver) ?? listener(scope, resolver);
}

/** Runs after a commit, for whatever was put off until then. */
function commitHook(scope: Scope, resolver: Resolver): Obstacle | undefined {
  const call = callTaking(scope);
  if (call !== undefined) {
    const target = bare(call.expression);
    const name = ts.isPropertyAccessExpression(target) ? target.name.text : target.getText();
    const pkg = COMMIT_HOOKS[name];
    if (pkg !== undefined && packageOf(call, resolver) === pkg)
      return { code: 'after-commit-hook', what: `${quote(target)} at line ${lineOf(call)}` };
  }
  const holder = scope.parent;
  if (!ts.isMethodDeclaration(scope) || !ts.isClassLike(holder)) return undefined;
  const name = nameOf(scope) ?? '';
  if (!COMMIT_EVENTS.has(scope.name.getText()) || !isSubscriber(holder, resolver)) return undefined;
  return { code: 'after-commit-hook', what: name };
}

function isSubscriber(holder: ts.ClassLikeDeclaration, resolver: Resolver): boolean {
  const decorated = (ts.getDecorators(holder) ?? []).map((d) => decoratorName(d));
  const implemented = (holder.heritageClauses ?? []).flatMap((c) => c.types.map((t) => t.expression));
  return [...decorated, ...implemented].some(
    (e) => importedPackage(resolver.analysis.checker, e) === 'typeorm',
  );
}

/** Told by an emitter: whoever emits does not see that a message goes out. */
function listener(scope: Scope, resolver: Resolver): Obstacle | undefined {
  const call = callTaking(scope);
  if (call !== undefined) {
    const target = bare(call.expression);
    if (!ts.isPropertyAccessExpression(target) || !LISTENING.has(target.name.text)) return undefined;
    const pkg = packageOf(call, resolver);
    return pkg !== undefined && EMITTERS.has(pkg)
      ? { code: 'indirect-dispatch', what: `a listener of ${quote(target.expression)}, line ${lineOf(call)}` }
      : undefined;
  }
  if (!ts.isMethodDeclaration(scope)) return undefined;
  const decorator = (ts.getDecorators(scope) ?? []).find(
    (d) => importedPackage(resolver.analysis.checker, decoratorName(d)) === '@nestjs/event-emitter',
  );
  return decorator === undefined
    ? undefined
    : { code: 'indirect-dispatch', what: `${quote(decorator)}, line ${lineOf(decorator)}` };
}

/** The call that a function is written into as an argument. */
function callTaking(scope: ts.Node): ts.CallExpression | undefined {
  const { parent } = scope;
  if (!isFn(scope) || parent === undefined || !ts.isCallExpression(parent)) return undefined;
  return parent.arguments.some((a) => a === scope) ? parent : undefined;
}

function packageOf(call: ts.CallExpression, resolver: Resolver): string | undefined {
  const callee = resolver.calleeOf(call);
  return callee.kind === 'package' ? callee.role.pkg : undefined;
}

function decoratorName(decorator: ts.Decorator): ts.Expression {
  const e = bare(decorator.expression);
  return ts.isCallExpression(e) ? bare(e.expression) : e;
}
