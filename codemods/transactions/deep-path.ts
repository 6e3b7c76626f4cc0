/**
 * The way from a call down to the statements that it makes: the functions between, each of which gets a transaction handed
 * or takes one already, and the statements at the end. Whatever could not run on that transaction is a reason against.
 */

import { ts } from 'ts-morph';
import type { Callers, Family } from '../callers.js';
import type { Effects } from '../effects.js';
import type { Resolver } from '../resolve.js';
import type { Rethrows } from '../rethrow.js';
import type { Role } from '../role-types.js';
import { bare, type Fn, ownCalls } from '../syntax.js';
import { waits } from '../waits.js';
import { autocommits } from './autocommit.js';
import type { DeepBodies } from './deep-body.js';
import { isRefusal, type Refusal, refuse } from './deep-opener.js';
import { isFitting, type Slot, type TakenHandles } from './deep-taken.js';
import { idiomOf } from './idioms.js';
import type { PoolQuery } from './pool-query.js';

const MAX_DEPTH = 4;
const HANDLES = new Set(['trx', 'tx', 'part', 'runner', 'manager', 'transaction', 'em', 'task', 'client']);

/** One function on the way. */
export interface Path {
  readonly family: Family;
  readonly fn: Fn;
  /** The calls that go deeper, all of them of the same function; none where the queries are. */
  readonly nexts: readonly ts.CallExpression[];
  readonly queries: readonly PoolQuery[];
  /** The parameter that takes a transaction already; undefined: it gets one. */
  readonly taken: Slot | undefined;
}

export class DeepPaths {
  constructor(
    private readonly resolver: Resolver,
    private readonly callers: Callers,
    private readonly effects: Effects,
    private readonly bodies: DeepBodies,
    private readonly taken: TakenHandles,
    private readonly rethrows: Rethrows,
    private readonly isSelected: (file: ts.SourceFile) => boolean,
  ) {}

  /** `given`: the number of the argument that is the transaction of who calls. */
  of(call: ts.CallExpression, depth = 0, given?: number): Path[] | Refusal {
    const callee = this.resolver.calleeOf(call);
    if (callee.kind !== 'own') return refuse(`${call.getText().slice(0, 60)} cannot be handed a transaction`);
    if (depth > MAX_DEPTH) return refuse('it is too far away');
    if (callee.foreign === true) return refuse('a container may put another class there');
    const writing = callee.fns.filter((fn) => fn.body !== undefined && this.effects.of(fn.body).length > 0);
    const [fn] = writing;
    const family = fn === undefined ? undefined : this.callers.familyOf(fn);
    if (fn?.body === undefined || family === undefined) return refuse('it has no name');
    if (writing.length > 1 || family.bodies.length > 1)
      return refuse(`${family.name} has several implementations`);
    const slot = this.slotOf(fn);
    if (slot !== undefined) return this.throughSlot(call, fn, family, slot, depth, given);
    if (given !== undefined) return refuse(`${family.name} may not take a transaction`);
    const member = this.memberHandle(fn);
    if (member !== undefined) return refuse(takes(family, member));
    return this.throughNew(fn, family, depth);
  }

  // ── a function that gets a parameter ──

  private throughNew(fn: Fn, family: Family, depth: number): Path[] | Refusal {
    const fixed = this.fixedBy(fn, family);
    if (fixed !== undefined || fn.body === undefined) return refuse(fixed ?? 'it has no body');
    const queries = this.queriesIn(fn);
    const spine = new Set<ts.Node>(queries.flatMap((q) => [q.call, ...(q.spine ?? [])]));
    const writes = ownCalls(fn.body).filter((c) => !spine.has(c) && this.effects.ofCall(c).length > 0);
    const target = writes[0] === undefined ? undefined : this.targetOf(writes[0]);
    // What the same function reads belongs to the same transaction.
    const nexts = ownCalls(fn.body).filter(
      (c) => writes.includes(c) || (target !== undefined && this.targetOf(c) === target),
    );
    const found = this.ended(fn, family, queries, nexts);
    if (found !== undefined) return isRefusal(found) ? found : [{ ...found, taken: undefined }];
    const rest = this.of(nexts[0] as ts.CallExpression, depth + 1);
    return isRefusal(rest) ? rest : [{ family, fn, nexts, queries: [], taken: undefined }, ...rest];
  }

  /** The end of the way, why there is none, or undefined: it goes on through `nexts`. */
  private ended(
    fn: Fn,
    family: Family,
    queries: readonly PoolQuery[],
    nexts: readonly ts.CallExpression[],
  ): Omit<Path, 'taken'> | Refusal | undefined {
    const spine = new Set<ts.Node>(queries.flatMap((q) => [q.call, ...(q.spine ?? [])]));
    const other = this.bodies.otherIn(fn, queries, spine, nexts);
    if (other !== undefined) return refuse(other);
    const [next] = nexts;
    if (next === undefined) {
      const apart = this.bodies.apart(queries);
      return apart === undefined ? { family, fn, nexts: [], queries } : refuse(apart);
    }
    const target = this.targetOf(next);
    const differs = (c: ts.CallExpression): boolean =>
      this.targetOf(c) !== target || receiverOf(c) !== receiverOf(next);
    if (queries.length > 0 || nexts.some(differs))
      return refuse(`${family.name} writes in more than one way`);
    for (const c of nexts) {
      if (!waits(this.rethrows.outer(c)))
        return refuse(`${family.name} does not wait for ${c.expression.getText()}`);
      if (c.arguments.some(ts.isSpreadElement) || isOptionalChain(c))
        return refuse(`${c.getText().slice(0, 60)} cannot be handed anything`);
    }
    return undefined;
  }

  // ── a function that takes a transaction already ──

  private throughSlot(
    call: ts.CallExpression,
    fn: Fn,
    family: Family,
    slot: Slot,
    depth: number,
    given: number | undefined,
  ): Path[] | Refusal {
    const { index, parameter } = slot;
    const name = parameter.name.getText();
    const against = (why: string): Refusal => refuse(`${takes(family, name)} (${why})`);
    if (given === undefined ? call.arguments.length > index : given !== index)
      return against(`it is handed ${call.arguments[given ?? index]?.getText() ?? 'another'} there`);
    const declared = [...family.bodies, ...family.declarations];
    if (declared.some((s) => s.parameters.length <= index)) return against('not all that declares it does');
    const decorated = family.obstacles.find((o) => o.code === 'framework-signature');
    if (decorated !== undefined) return against(decorated.what);
    const found = this.taken.of(fn, slot);
    if (isRefusal(found)) return against(found.why);
    const { queries, handedOn } = found;
    const end = this.ended(fn, family, queries, handedOn);
    if (end !== undefined && isRefusal(end)) return against(end.why);
    const rest = end === undefined ? this.handedOn(handedOn, name, depth) : [];
    if (isRefusal(rest)) return rest;
    const [first] = [...queries, ...(rest.at(-1)?.queries ?? [])];
    const fits = first !== undefined && this.fits(parameter, first);
    if (!fits) return against(`${parameter.getText()} may not take what is opened`);
    return [{ family, fn, nexts: handedOn, queries, taken: slot }, ...rest];
  }

  private handedOn(calls: readonly ts.CallExpression[], name: string, depth: number): Path[] | Refusal {
    const at = new Set(calls.map((c) => c.arguments.findIndex((a) => ts.isIdentifier(a) && a.text === name)));
    const [index] = at;
    const [next] = calls;
    if (next === undefined || index === undefined || at.size > 1)
      return refuse('it is handed on in two ways');
    return this.of(next, depth + 1, index);
  }

  private fits({ name, type, initializer }: ts.ParameterDeclaration, query: PoolQuery): boolean {
    const role = this.roleOfParameter(name, type);
    const isScript = /\.[cm]?jsx?$/.test(name.getSourceFile().fileName);
    if (role === undefined) return isScript;
    if (isScript && type === undefined && initializer !== undefined) return true;
    // A client that is opened by itself has more than a pool's.
    if (query.library === undefined && /\bClient$/.test(type?.getText() ?? '')) return false;
    return isFitting(query.library?.name, role, type?.getText() ?? '');
  }

  /** `t?: QueryRunner`, `db = knex`. */
  private slotOf(fn: Fn): Slot | undefined {
    const slots = fn.parameters.flatMap((parameter, index): Slot[] => {
      const { type, name, questionToken, initializer } = parameter;
      // `@param {PoolClient} [client]`
      const isBracketed = ts.getJSDocParameterTags(parameter).some((tag) => tag.isBracketed);
      if ((questionToken ?? initializer) === undefined && !isBracketed) return [];
      const role = this.roleOfParameter(name, type);
      const root = initializer === undefined ? undefined : this.resolver.roleOf(initializer);
      const isDefault =
        role !== undefined &&
        root?.pkg === role.pkg &&
        idiomOf(role.pkg)?.wrap?.roots.has(root.what) === true;
      const isPool = root?.pkg === 'pg' && root.what === 'pool';
      return (role !== undefined && isHandleRole(role)) || isDefault || isPool ? [{ index, parameter }] : [];
    });
    return slots[0];
  }

  private roleOfParameter(name: ts.BindingName, type: ts.TypeNode | undefined): Role | undefined {
    const named = type === undefined ? undefined : this.resolver.roleOfAnnotation(type);
    return named ?? (ts.isIdentifier(name) ? this.resolver.roleOf(name) : undefined);
  }

  /** A transaction that may be left out of an object: `options: { tx?: Transaction }`. */
  private memberHandle(fn: Fn): string | undefined {
    for (const { type } of fn.parameters) {
      const members = type !== undefined && ts.isTypeLiteralNode(type) ? type.members : [];
      for (const member of members) {
        if (!ts.isPropertySignature(member) || member.questionToken === undefined) continue;
        const named = member.type === undefined ? undefined : this.resolver.roleOfAnnotation(member.type);
        const role = named ?? (ts.isIdentifier(member.name) ? this.resolver.roleOf(member.name) : undefined);
        if (role !== undefined && isHandleRole(role)) return member.name.getText();
      }
    }
    return undefined;
  }

  // ── the rest ──

  private targetOf(call: ts.CallExpression): Fn | undefined {
    const callee = this.resolver.calleeOf(call);
    return callee.kind === 'own' && callee.fns.length === 1 ? callee.fns[0] : undefined;
  }

  /** An optional parameter suits callers that do not know it, not those that hand on what they have by position. */
  private fixedBy(fn: Fn, family: Family): string | undefined {
    const [hard] = family.obstacles.filter((o) => o.code !== 'public-export' && !family.unseen.has(o));
    if (hard !== undefined) return `${hard.code}: ${hard.what}`;
    const list = [...family.bodies, ...family.declarations];
    if (list.some((s) => s.parameters.some((p) => p.dotDotDotToken !== undefined)))
      return `${family.name} takes any number of arguments`;
    if (list.some((s) => s.parameters[0]?.name.getText() === 'this')) return `${family.name} names its this`;
    if (new Set(list.map((s) => s.parameters.length)).size > 1)
      return `${family.name} is declared with other parameters, too`;
    if (fn.asteriskToken !== undefined) return `${family.name} is a generator`;
    const outside = list.find((s) => !this.isSelected(s.getSourceFile()));
    return outside === undefined
      ? undefined
      : `${this.resolver.analysis.pathOf(outside.getSourceFile())} is not among the paths`;
  }

  private queriesIn(fn: Fn): PoolQuery[] {
    const queries: PoolQuery[] = ownCalls(fn)
      .flatMap((c) => this.effects.pgQuery(c) ?? [])
      .filter((q) => q.helper === undefined);
    return queries.length > 0 ? queries : autocommits(fn, this.resolver, this.effects);
  }
}

function takes(family: Family, name: string): string {
  return `${family.name} takes a transaction already (${name}): open one, and hand it over`;
}

/** Of a transaction, or of what one is open on. */
function isHandleRole({ pkg, what }: Role): boolean {
  return HANDLES.has(what) && (what !== 'client' || pkg === 'pg');
}

function receiverOf(call: ts.CallExpression): string {
  const target = bare(call.expression);
  return ts.isPropertyAccessExpression(target) ? target.expression.getText() : '';
}

export function isOptionalChain(call: ts.CallExpression): boolean {
  for (let e: ts.Expression = call; ; ) {
    if ((ts.isCallExpression(e) || ts.isPropertyAccessExpression(e)) && e.questionDotToken !== undefined)
      return true;
    if (!ts.isCallExpression(e) && !ts.isPropertyAccessExpression(e)) return false;
    e = bare(e.expression);
  }
}
