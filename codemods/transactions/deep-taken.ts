/**
 * A function that may be handed a transaction already and goes without it otherwise: `save(order, tx?)` that runs on
 * `tx ?? this.db`, `save(order, db = pool)`. Whether all that it asks of the database follows that parameter, and what it
 * runs on where nobody gives it. Then a call of it can be handed one as it is; it proves or says why not, and edits nothing.
 */

import { ts } from 'ts-morph';
import type { CallLike, Effects } from '../effects.js';
import { isWrite } from '../effects.js';
import { isConst, isFallback, localSymbol } from '../origins.js';
import type { Resolver } from '../resolve.js';
import type { Role } from '../role-types.js';
import { usesArguments } from '../signatures.js';
import { bare, eachNode, type Fn, isReference, quote } from '../syntax.js';
import { type Refusal, refuse } from './deep-opener.js';
import { idiomOf } from './idioms.js';
import type { PoolQuery } from './pool-query.js';

/** The parameter, by number. */
export interface Slot {
  readonly index: number;
  readonly parameter: ts.ParameterDeclaration;
}

export interface Taken {
  /** Its statements; their handles are what they run on where nobody gives a transaction. */
  readonly queries: readonly PoolQuery[];
  /** Calls that it hands the parameter on to. */
  readonly handedOn: readonly ts.CallExpression[];
}

/** Roles of a parameter that a new transaction's handle fits, by library; a query runner is more than a manager. */
const FITTING: Readonly<Record<string, RegExp>> = {
  pg: /^client$/,
  knex: /^(?:trx|db|part)$/,
  kysely: /^(?:trx|db|part)$/,
  drizzle: /^(?:tx|part)$/,
  prisma: /^(?:tx|part)$/,
  'pg-promise': /^(?:task|part)$/,
  'postgres-js': /^(?:tx|part)$/,
  typeorm: /^manager$/,
  objection: /^trx$/,
  sequelize: /^transaction$/,
};

export class TakenHandles {
  constructor(
    private readonly resolver: Resolver,
    private readonly effects: Effects,
  ) {}

  of(fn: Fn, slot: Slot): Taken | Refusal {
    const { name } = slot.parameter;
    if (!ts.isIdentifier(name) || fn.body === undefined) return refuse(`${name.getText()} is no plain name`);
    if (usesArguments(fn)) return refuse('it counts its arguments');
    const symbol = this.symbol(name);
    const queries: PoolQuery[] = [];
    const handedOn: ts.CallExpression[] = [];
    let other: ts.Node | undefined;
    eachNode(fn.body, (n) => {
      if (!ts.isIdentifier(n) || !isReference(n) || this.symbol(n) !== symbol) return;
      const call = argumentOf(n);
      if (call !== undefined && this.resolver.calleeOf(call).kind === 'own') handedOn.push(call);
      else {
        const told = this.toldOf(n);
        const found = told === undefined ? this.statementsOn(n, slot, fn) : [told];
        if (found === undefined) other ??= n;
        else queries.push(...found);
      }
    });
    if (other !== undefined)
      return refuse(
        `it does more with ${name.text} than to run its statements on it (${quote(other.parent)})`,
      );
    return { queries: [...new Map(queries.map((q) => [q.call, q])).values()], handedOn };
  }

  private symbol(id: ts.Node): ts.Symbol | undefined {
    return localSymbol(this.resolver.analysis.checker, id);
  }

  /** A statement that names its root and is told of the transaction: `Order.query(trx)`, `Order.create(order, { transaction })`. */
  private toldOf(id: ts.Identifier): PoolQuery | undefined {
    const call = argumentOf(id) ?? optionOf(id);
    const callee = call === undefined ? undefined : this.resolver.calleeOf(call);
    const library = callee?.kind === 'package' ? idiomOf(callee.role.pkg) : undefined;
    if (call === undefined || library?.wrap?.join === undefined) return undefined;
    const isOption = argumentOf(id) === undefined;
    if (isOption !== (library.transactionAsOption === true)) return undefined;
    const target = bare(call.expression);
    if (!ts.isPropertyAccessExpression(target) || (!isOption && target.name.text !== 'query'))
      return undefined;
    const root = target.expression;
    const cls = this.resolver.roleOfInstances(root);
    const role = cls ?? this.resolver.roleOf(root);
    const what = role === undefined ? '' : cls === undefined ? role.what : `${role.what} class`;
    if (role === undefined || !library.wrap.roots.has(what)) return undefined;
    const chain = chainFrom(call);
    return this.made(chain.call ?? call, new Set([call, ...chain.spine]), root, { ...role, what });
  }

  /** Undefined: it is read for something else. */
  private statementsOn(id: ts.Identifier, { parameter }: Slot, fn: Fn): readonly PoolQuery[] | undefined {
    const own = parameter.initializer;
    if (own !== undefined) {
      const query = this.queryOn(id, bare(own));
      return query === undefined ? undefined : [query];
    }
    const chosen = choiceOf(id);
    if (chosen === undefined) return undefined;
    const holder = outermost(chosen.whole).parent;
    if (ts.isVariableDeclaration(holder) && ts.isIdentifier(holder.name) && isConst(holder))
      return this.statementsOf(holder.name, chosen.otherwise, fn);
    const query = this.queryOn(chosen.whole, chosen.otherwise);
    return query === undefined ? undefined : [query];
  }

  /** All that is made of `const db = tx ?? pool`. */
  private statementsOf(name: ts.Identifier, root: ts.Expression, fn: Fn): readonly PoolQuery[] | undefined {
    const symbol = this.symbol(name);
    let all: PoolQuery[] | undefined = [];
    eachNode(fn, (n) => {
      if (!ts.isIdentifier(n) || n === name || !isReference(n) || this.symbol(n) !== symbol) return;
      const query = this.queryOn(n, root);
      if (query === undefined) all = undefined;
      else all?.push(query);
    });
    return all;
  }

  /** The statement that starts at `start`, as one on `root`; ``sql`…`.execute(db)`` is handed it. */
  private queryOn(start: ts.Expression, given: ts.Expression): PoolQuery | undefined {
    const root = this.rootOf(given);
    const role = this.resolver.roleOf(root);
    if (role === undefined) return undefined;
    const from = outermost(start);
    const handed = ts.isIdentifier(from) ? argumentOf(from) : undefined;
    if (handed !== undefined) return this.handedRoot(handed, from, root, role);
    const { call, spine } = chainFrom(from);
    if (call === undefined || [...spine].some((s) => ts.isCallExpression(s) && this.opens(s)))
      return undefined;
    const first = from.parent;
    const member = ts.isPropertyAccessExpression(first) ? first.name.text : undefined;
    return isRootOf(role, member) ? this.made(call, spine, root, role) : undefined;
  }

  private handedRoot(
    call: ts.CallExpression,
    at: ts.Node,
    root: ts.Expression,
    role: Role,
  ): PoolQuery | undefined {
    const callee = this.resolver.calleeOf(call);
    const library = callee.kind === 'package' ? idiomOf(callee.role.pkg) : undefined;
    if (callee.kind !== 'package' || library === undefined || !isRootOf(role, undefined)) return undefined;
    const index = library.wrap?.handed?.[`${callee.role.what}.${callee.method}`];
    const isIt = index !== undefined && call.arguments[index] === at;
    return isIt ? this.made(call, new Set([call]), root, role) : undefined;
  }

  /** `dataSource` of `dataSource.manager`: that is what opens one. */
  private rootOf(given: ts.Expression): ts.Expression {
    const e = bare(given);
    if (!ts.isPropertyAccessExpression(e) || e.name.text !== 'manager') return e;
    const owner = this.resolver.roleOf(e.expression);
    return owner !== undefined && idiomOf(owner.pkg)?.wrap?.roots.has(owner.what) === true ? e.expression : e;
  }

  private opens(call: ts.CallExpression): boolean {
    return this.effects.transactionWord(call) !== undefined;
  }

  private made(call: CallLike, spine: ReadonlySet<ts.Node>, handle: ts.Expression, role: Role): PoolQuery {
    const library = idiomOf(role.pkg);
    const writes = this.effects.of(call).some(isWrite);
    const told = library === undefined ? {} : { library, pkg: role.pkg, what: role.what };
    const common = { call, on: 'pool', handle, text: '', helper: undefined, spine } as const;
    return { ...common, sql: writes ? 'write' : 'read', ...told };
  }
}

/** The whole of a builder, and its calls. */
function chainFrom(start: ts.Node): {
  readonly call: CallLike | undefined;
  readonly spine: ReadonlySet<ts.Node>;
} {
  const spine = new Set<ts.Node>();
  let n = start;
  let call: CallLike | undefined;
  for (;;) {
    const { parent } = n;
    const goesOn =
      (ts.isPropertyAccessExpression(parent) && parent.expression === n) ||
      (ts.isCallExpression(parent) && parent.expression === n) ||
      (ts.isTaggedTemplateExpression(parent) && parent.tag === n);
    if (!goesOn) return { call: call === n ? call : undefined, spine };
    if (ts.isCallExpression(parent) || ts.isTaggedTemplateExpression(parent)) {
      call = parent;
      spine.add(parent);
    }
    n = parent;
  }
}

/** Whether a transaction of what it is would have this member, too, and whether it can be opened on it. */
function isRootOf({ pkg, what }: Role, member: string | undefined): boolean {
  const library = idiomOf(pkg);
  if (library === undefined) return what === 'pool' && member === 'query';
  if (library.wrap?.roots.has(what) !== true || library.wrap.join !== undefined) return false;
  return member === undefined || library.wrap.members?.[what]?.test(member) !== false;
}

/** Whether the handle of a new transaction may be given to a parameter of this role. */
export function isFitting(library: string | undefined, { what }: Role, type: string): boolean {
  const isWide = library === 'postgres-js' && /\bISql\b/.test(type);
  return isWide || FITTING[library ?? 'pg']?.test(what) === true;
}

/** What a manager makes of itself. */
const REPOSITORY = /^(?:getRepository|withRepository)$/;

/** The call that gets a name as an argument of its own. */
function argumentOf(id: ts.Identifier): ts.CallExpression | undefined {
  const { parent } = id;
  return ts.isCallExpression(parent) && parent.arguments.includes(id) ? parent : undefined;
}

/** `transaction` in `Order.create(order, { transaction })`. */
function optionOf(id: ts.Identifier): ts.CallExpression | undefined {
  const entry = id.parent;
  const isEntry =
    (ts.isShorthandPropertyAssignment(entry) || ts.isPropertyAssignment(entry)) &&
    entry.name.getText() === 'transaction';
  const call = isEntry ? entry.parent.parent : undefined;
  return call !== undefined && ts.isCallExpression(call) && call.arguments.some((a) => a === entry.parent)
    ? call
    : undefined;
}

interface Choice {
  readonly whole: ts.Expression;
  readonly otherwise: ts.Expression;
}

/** `tx ?? pool`, `tx ? tx : pool`, `manager?.withRepository(this.orders) ?? this.orders`, `manager ? manager.getRepository(Order) : this.orders`. */
function choiceOf(id: ts.Identifier): Choice | undefined {
  let n: ts.Node = id;
  // What the transaction makes of itself.
  const access = n.parent;
  if (ts.isPropertyAccessExpression(access) && REPOSITORY.test(access.name.text))
    n = ts.isCallExpression(access.parent) ? access.parent : n;
  n = outermost(n);
  const { parent } = n;
  if (ts.isBinaryExpression(parent) && isFallback(parent.operatorToken.kind) && parent.left === n)
    return { whole: parent, otherwise: bare(parent.right) };
  if (!ts.isConditionalExpression(parent)) return undefined;
  const isMine = (e: ts.Expression): boolean => ts.isIdentifier(e) && e.text === id.text;
  return isMine(bare(parent.condition)) && isMine(madeOf(bare(parent.whenTrue)))
    ? { whole: parent, otherwise: bare(parent.whenFalse) }
    : undefined;
}

/** `manager` in `manager.getRepository(Order)`; anything else is itself. */
function madeOf(e: ts.Expression): ts.Expression {
  if (!ts.isCallExpression(e) || !ts.isPropertyAccessExpression(e.expression)) return e;
  return REPOSITORY.test(e.expression.name.text) ? bare(e.expression.expression) : e;
}

function outermost(node: ts.Node): ts.Node {
  let n = node;
  while (
    ts.isParenthesizedExpression(n.parent) ||
    ts.isAsExpression(n.parent) ||
    ts.isNonNullExpression(n.parent)
  )
    n = n.parent;
  return n;
}
