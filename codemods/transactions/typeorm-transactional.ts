/**
 * A method under `@Transactional()` of typeorm-transactional: its repositories' statements join one transaction by
 * themselves, and the manager of each is that transaction's. A publish in the method is replaced where it stands.
 */

import { ts } from 'ts-morph';
import type { Effects } from '../effects.js';
import { enclosures } from '../hazards.js';
import { importedPackage } from '../origins.js';
import type { Obstacle } from '../reasons.js';
import type { Resolver } from '../resolve.js';
import { lineOf, type Scope } from '../syntax.js';
import { autocommits } from './autocommit.js';
import type { TransactionScope } from './scope.js';

export const name = 'typeorm-transactional';

const PACKAGES = new Set(['typeorm-transactional', 'typeorm-transactional-cls-hooked']);
/** Propagations that may leave the method without a transaction. */
const LEAVES = /NOT_SUPPORTED|NEVER|SUPPORTS/;

export function findTransactional(
  scope: Scope,
  publish: ts.Statement,
  resolver: Resolver,
  effects: Effects,
): TransactionScope | undefined {
  if (!ts.isMethodDeclaration(scope) || scope.body === undefined) return undefined;
  const decorator = ts.getDecorators(scope)?.find((d) => isTransactional(d, resolver));
  if (decorator === undefined) return undefined;
  const query = autocommits(scope, resolver, effects)
    .filter((q) => q.library?.name === 'typeorm' && q.sql === 'write' && q.call.end <= publish.end)
    .at(-1);
  if (query?.library === undefined) return undefined;
  const root = query.handle.getText();
  const obstacles: Obstacle[] = enclosures(publish, scope.body).filter(
    (o) => o.code !== 'loop' && o.code !== 'conditional-path',
  );
  if (LEAVES.test(decorator.getText())) {
    obstacles.push({
      code: 'transaction-unclear',
      what: `${decorator.getText()}, line ${lineOf(decorator)}`,
    });
  }
  return {
    idiom: name,
    handle: query.what === 'manager' ? root : `${root}.manager`,
    handleNode: query.handle,
    library: query.library,
    begin: decorator,
    end: scope.body,
    position: 'inside',
    target: { before: publish },
    between: [],
    inner: undefined,
    rollbackCatch: undefined,
    writes: true,
    obstacles,
  };
}

function isTransactional(decorator: ts.Decorator, resolver: Resolver): boolean {
  const called = ts.isCallExpression(decorator.expression)
    ? decorator.expression.expression
    : decorator.expression;
  if (!ts.isIdentifier(called)) return false;
  const pkg = importedPackage(resolver.analysis.checker, called);
  return pkg !== undefined && PACKAGES.has(pkg);
}
