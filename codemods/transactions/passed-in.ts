/**
 * A transaction that is passed in under a type of its own: `trx: Knex.Transaction`, `tx: Prisma.TransactionClient`. Who
 * passes it commits later, so a publish in the function is replaced where it stands. A type that may also be the pool
 * or a plain connection (pg's client, TypeORM's EntityManager) proves nothing.
 */

import { ts } from 'ts-morph';
import { type Effects, isWrite } from '../effects.js';
import { enclosures } from '../hazards.js';
import type { Obstacle } from '../reasons.js';
import type { Resolver } from '../resolve.js';
import { isAsync, lineOf, type Scope } from '../syntax.js';
import type { Idiom } from './idiom.js';
import { idiomOf } from './idioms.js';
import type { TransactionScope } from './scope.js';
import type { Writes } from './writes.js';

/** Roles that only a transaction has. */
const TRANSACTIONS = new Set(['trx', 'tx']);

export function findPassedIn(
  scope: Scope,
  publish: ts.Statement,
  resolver: Resolver,
  effects: Effects,
  proof: Writes,
): TransactionScope | undefined {
  if (ts.isSourceFile(scope) || scope.body === undefined || !ts.isBlock(scope.body)) return undefined;
  const before = effects.of(scope).filter((e) => isWrite(e) && e.at.end <= publish.pos);
  if (before.length === 0) return undefined;
  for (const parameter of scope.parameters) {
    const library = libraryOf(parameter, resolver);
    if (library === undefined || !ts.isIdentifier(parameter.name)) continue;
    const written = proof.through(scope.body, [parameter.name]);
    if (!written.writes) continue;
    const obstacles: Obstacle[] = enclosures(publish, scope.body).filter(
      (o) => o.code !== 'loop' && o.code !== 'conditional-path',
    );
    if (!isAsync(scope)) obstacles.push({ code: 'not-async', what: `line ${lineOf(scope)}` });
    return {
      idiom: library.name,
      handle: parameter.name.text,
      handleNode: parameter.name,
      library,
      begin: parameter,
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
  return undefined;
}

function libraryOf(parameter: ts.ParameterDeclaration, resolver: Resolver): Idiom | undefined {
  const { type, questionToken, initializer, dotDotDotToken } = parameter;
  if (
    type === undefined ||
    questionToken !== undefined ||
    initializer !== undefined ||
    dotDotDotToken !== undefined
  )
    return undefined;
  // The role looks through null and undefined; a transaction that may be missing is none.
  if (!ts.isTypeReferenceNode(type) || !ts.isIdentifier(parameter.name)) return undefined;
  const role = resolver.roleOf(parameter.name) ?? resolver.roleOfAnnotation(type);
  const library = role === undefined ? undefined : idiomOf(role.pkg);
  return role !== undefined && TRANSACTIONS.has(role.what) ? library : undefined;
}
