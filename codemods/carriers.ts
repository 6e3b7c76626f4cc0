/**
 * A function that is handed a client it did not open: whether everybody who calls it hands over the handle of an open
 * transaction. Then an enqueue on that parameter is in the caller's transaction, and nobody's signature changes. It
 * proves or refuses; a type that is only ever a transaction's needs no proof (passed-in.ts).
 */

import { ts } from 'ts-morph';
import type { Callers } from './callers.js';
import { enclosures, statementOf } from './hazards.js';
import { classOf } from './packages.js';
import type { Obstacle } from './reasons.js';
import type { Resolver } from './resolve.js';
import {
  contains,
  type Fn,
  isAsync,
  isFn,
  lineOf,
  nameOf,
  type Scope,
  scopeOf,
  unwrapped,
} from './syntax.js';
import type { Idiom } from './transactions/idiom.js';
import { idiomOf } from './transactions/idioms.js';
import type { Key, TransactionScope } from './transactions/scope.js';
import type { Writes } from './transactions/writes.js';
import { waits } from './waits.js';

/** Roles of a client or ORM that a transaction may have. */
const HANDLES = new Set(['trx', 'tx', 'manager', 'runner', 'em', 'task', 'transaction']);

/** A parameter that is the handle. */
export interface Slot {
  readonly parameter: ts.ParameterDeclaration;
  readonly name: ts.Identifier;
  readonly index: number;
  readonly library: Idiom | undefined;
}

interface Proof {
  readonly obstacles: readonly Obstacle[];
  /** The first transaction that was found above. */
  readonly from: TransactionScope | undefined;
}

export class Carriers {
  private readonly proofs = new Map<Fn, Proof | undefined>();

  constructor(
    private readonly resolver: Resolver,
    private readonly callers: Callers,
    private readonly key: Key,
    private readonly writes: Writes,
    /** The transaction that a statement of a function belongs to. */
    private readonly transactionOf: (scope: Scope, statement: ts.Statement) => TransactionScope | undefined,
    private readonly databaseObstacles: (found: TransactionScope) => readonly Obstacle[],
  ) {}

  /** The caller's transaction, as it is seen from the function; undefined when nobody hands one over. */
  scopeOf(scope: Scope, publish: ts.Statement): TransactionScope | undefined {
    if (ts.isSourceFile(scope) || scope.body === undefined || !ts.isBlock(scope.body)) return undefined;
    const slot = this.slotOf(scope);
    const proof = slot === undefined ? undefined : this.prove(scope, slot);
    if (slot === undefined || proof === undefined) return undefined;
    const obstacles: Obstacle[] = [...proof.obstacles];
    obstacles.push(
      ...enclosures(publish, scope.body).filter((o) => o.code !== 'loop' && o.code !== 'conditional-path'),
    );
    if (!isAsync(scope)) obstacles.push({ code: 'not-async', what: `line ${lineOf(scope)}` });
    const written = this.writes.through(scope.body, [slot.name]);
    if (!written.writes) obstacles.push(...written.obstacles);
    return {
      idiom: proof.from?.idiom ?? slot.library?.name ?? 'pg-client',
      handle: slot.name.text,
      handleNode: slot.name,
      library: slot.library,
      begin: proof.from?.begin,
      end: proof.from?.end ?? scope.body,
      position: 'inside',
      target: { before: publish },
      between: [],
      inner: undefined,
      rollbackCatch: undefined,
      writes: true,
      obstacles,
      passed: true,
    };
  }

  slotOf(fn: Fn): Slot | undefined {
    const slots = fn.parameters.flatMap((parameter, index) => {
      if (!ts.isIdentifier(parameter.name) || parameter.dotDotDotToken !== undefined) return [];
      const role =
        this.resolver.roleOf(parameter.name) ??
        (parameter.type === undefined ? undefined : this.resolver.roleOfAnnotation(parameter.type));
      if (role === undefined) return [];
      const pg = classOf(role.pkg) === 'pg' && role.what === 'client';
      const library = HANDLES.has(role.what) ? idiomOf(role.pkg) : undefined;
      return pg || library !== undefined ? [{ parameter, name: parameter.name, index, library }] : [];
    });
    return slots.length === 1 ? slots[0] : undefined;
  }

  /** Undefined when the function is called by nobody, so that nothing can be said. */
  private prove(fn: Fn, slot: Slot): Proof | undefined {
    if (this.proofs.has(fn)) return this.proofs.get(fn);
    // A function that calls itself hands on what it was handed.
    this.proofs.set(fn, { obstacles: [], from: undefined });
    const proof = this.judge(fn, slot);
    this.proofs.set(fn, proof);
    return proof;
  }

  private judge(fn: Fn, slot: Slot): Proof | undefined {
    const family = nameOf(fn) === undefined ? undefined : this.callers.familyOf(fn);
    if (family === undefined || family.calls.length === 0) return undefined;
    const obstacles: Obstacle[] = [...family.obstacles];
    const { parameter } = slot;
    if (
      parameter.questionToken !== undefined ||
      parameter.initializer !== undefined ||
      mayBeNothing(parameter)
    )
      obstacles.push({ code: 'handle-may-be-missing', what: parameter.getText() });
    let from: TransactionScope | undefined;
    let seen = false;
    for (const call of family.calls) {
      if (family.bodies.some((b) => contains(b, call)) && this.handsOnItself(call, slot)) continue;
      const found = this.transactionAt(call);
      if (found !== undefined) seen = true;
      const obstacle = this.handedOver(call, slot, found);
      if (obstacle !== undefined) obstacles.push(obstacle);
      else from ??= found;
    }
    // Nobody hands over a transaction: then this is no question of callers.
    return seen || family.obstacles.length > 0 ? { obstacles, from } : undefined;
  }

  private handsOnItself(call: ts.CallExpression, slot: Slot): boolean {
    const argument = call.arguments[slot.index];
    return argument !== undefined && this.key(argument) === this.key(slot.name);
  }

  private transactionAt(call: ts.CallExpression): TransactionScope | undefined {
    const statement = statementOf(call);
    return statement === undefined ? undefined : this.transactionOf(scopeOf(call), statement);
  }

  /** What is wrong with what a call hands over; undefined: it is the handle of its open transaction. */
  private handedOver(
    call: ts.CallExpression,
    slot: Slot,
    found: TransactionScope | undefined,
  ): Obstacle | undefined {
    const place = `${this.resolver.analysis.pathOf(call.getSourceFile())}:${lineOf(call)}`;
    const none = (what: string): Obstacle => ({
      code: 'caller-without-transaction',
      what: `${place}${what}`,
    });
    const argument = call.arguments[slot.index];
    if (found === undefined || argument === undefined || call.arguments.some(ts.isSpreadElement))
      return none('');
    if (found.position === 'after') return none(' calls it behind its commit');
    if (found.library?.name !== slot.library?.name)
      return { code: 'handle-types-differ', what: `${place} has one of ${found.library?.name ?? 'pg'}` };
    if (!isHandle(argument, found.handleNode, this.key)) return none(` hands over ${argument.getText()}`);
    const [obstacle] = [...found.obstacles, ...this.databaseObstacles(found)];
    if (obstacle !== undefined) return none(` (${obstacle.code}: ${obstacle.what})`);
    return waits(call) ? undefined : none(' does not wait for it');
  }

  /** Names of functions that have a handle and publish, or call one that does: who calls them has to be read. */
  names(calls: readonly ts.CallExpression[]): string[] {
    return calls.flatMap((call) => {
      const scope = scopeOf(call);
      if (ts.isSourceFile(scope) || !isFn(scope) || this.slotOf(scope) === undefined) return [];
      const name = nameOf(scope);
      return name === undefined ? [] : [name];
    });
  }
}

/** The handle itself, or the manager of a query runner. */
export function isHandle(argument: ts.Expression, handle: ts.Expression, key: Key): boolean {
  if (key(argument) === key(handle)) return true;
  const e = unwrapped(argument);
  return ts.isPropertyAccessExpression(e) && e.name.text === 'manager' && key(e.expression) === key(handle);
}

/** `PoolClient | undefined`: an enqueue on it would not type-check, and rightly so. */
function mayBeNothing(parameter: ts.ParameterDeclaration): boolean {
  const { type } = parameter;
  return (
    type !== undefined &&
    ts.isUnionTypeNode(type) &&
    type.types.some(
      (t) =>
        t.kind === ts.SyntaxKind.UndefinedKeyword ||
        (ts.isLiteralTypeNode(t) && t.literal.kind === ts.SyntaxKind.NullKeyword),
    )
  );
}
