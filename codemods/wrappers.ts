/**
 * The repository's own functions that publish: discovery starts at calls of broker libraries and walks outwards,
 * through functions, methods, object members and factories, as long as a function does nothing but publish. It
 * refuses to call anything a wrapper by its name.
 */

import { ts } from 'ts-morph';
import { type CodemodConfig, checkWrappers, type WrapperOverride } from './config.js';
import { dispatchOf } from './dispatch.js';
import type { Effect, Effects } from './effects.js';
import { calledName, localSymbol } from './origins.js';
import { BROKER_SENDS, classOf } from './packages.js';
import type { Obstacle } from './reasons.js';
import type { Resolver } from './resolve.js';
import {
  contains,
  eachNode,
  type Fn,
  inOrder,
  isFn,
  lineOf,
  nameOf,
  ownCalls,
  quote,
  type Scope,
  scopeOf,
} from './syntax.js';

export interface Wrapper {
  /** `src/bus.ts#Bus.publish`: what unbroker.codemod.json calls it. */
  readonly id: string;
  readonly name: string;
  readonly file: string;
  readonly line: number;
  readonly fn: Fn;
  /** The one call inside that publishes: a broker call or another wrapper's. */
  readonly inner: ts.CallExpression | undefined;
  /** The mapping given in unbroker.codemod.json. */
  readonly override: WrapperOverride | undefined;
  /** Why calls of it cannot be rewritten. */
  readonly obstacles: readonly Obstacle[];
  /** What a rewrite of its calls changes besides: lost logs, messages it drops without a word. */
  readonly notes: readonly string[];
}

export interface Discovery {
  readonly wrappers: ReadonlyMap<Fn, Wrapper>;
  /** Every call that publishes, wrappers' own inner calls included. */
  readonly publishes: readonly ts.CallExpression[];
  /** Functions declared to be no publishers. */
  readonly denied: ReadonlySet<Fn>;
}

/** A chain of wrappers longer than this is followed no further. */
const MAX_ROUNDS = 10;

export function discoverWrappers(resolver: Resolver, effects: Effects, config: CodemodConfig): Discovery {
  const search = new Search(resolver, effects, config);
  return search.run();
}

export function wrapperId(resolver: Resolver, fn: Fn): string | undefined {
  const name = nameOf(fn);
  return name === undefined ? undefined : `${resolver.analysis.pathOf(fn.getSourceFile())}#${name}`;
}

class Search {
  private readonly callers = new Map<Fn, readonly ts.CallExpression[]>();
  private readonly overrides = new Map<Fn, WrapperOverride>();
  private readonly denied = new Set<Fn>();

  constructor(
    private readonly resolver: Resolver,
    private readonly effects: Effects,
    private readonly config: CodemodConfig,
  ) {}

  run(): Discovery {
    this.readConfig();
    const named = this.resolver.callNames.named([...new Set(Object.values(BROKER_SENDS).flat())]);
    const direct = named.filter((call) => this.effects.sendOf(call) === 'broker').sort(inOrder);
    let publishes: ReadonlySet<ts.CallExpression> = new Set([
      ...direct,
      ...this.callsOf(this.overrides.keys()),
    ]);
    let wrappers = new Map<Fn, Wrapper>();
    for (let round = 0; round < MAX_ROUNDS; round++) {
      wrappers = this.judgeAll(publishes);
      const next = new Set([...direct, ...this.callsOf(wrappers.keys())]);
      const stable = next.size === publishes.size;
      publishes = next;
      if (stable) break;
    }
    return { wrappers, publishes: [...publishes], denied: this.denied };
  }

  private readConfig(): void {
    if (this.config.wrappers.size === 0) return;
    const functions = new Map<string, number>();
    for (const file of this.resolver.analysis.own) {
      eachNode(file, (node) => {
        if (!isFn(node)) return;
        const id = wrapperId(this.resolver, node);
        if (id === undefined) return;
        functions.set(id, Math.max(parameterCount(node), functions.get(id) ?? 0));
        const given = this.config.wrappers.get(id);
        if (given === false) this.denied.add(node);
        else if (given !== undefined) this.overrides.set(node, given);
      });
    }
    checkWrappers(this.config, functions);
  }

  /** Calls of these functions from elsewhere: a function that calls itself again is still one wrapper. */
  private callsOf(fns: Iterable<Fn>): ts.CallExpression[] {
    return [...fns].flatMap((fn) => this.callersOf(fn).filter((call) => !contains(fn, call)));
  }

  private callersOf(fn: Fn): readonly ts.CallExpression[] {
    let found = this.callers.get(fn);
    if (found === undefined) {
      const reaches = (call: ts.CallExpression | ts.NewExpression): call is ts.CallExpression => {
        if (!ts.isCallExpression(call)) return false;
        const callee = this.resolver.calleeOf(call);
        return callee.kind === 'own' && callee.fns.includes(fn);
      };
      found = this.resolver.callNames.of(fn).filter(reaches).sort(inOrder);
      this.callers.set(fn, found);
    }
    return found;
  }

  private judgeAll(publishes: ReadonlySet<ts.CallExpression>): Map<Fn, Wrapper> {
    const byScope = new Map<Scope, ts.CallExpression[]>();
    for (const call of publishes) {
      const scope = namedScopeOf(call);
      byScope.set(scope, [...(byScope.get(scope) ?? []), call]);
    }
    const wrappers = new Map<Fn, Wrapper>();
    for (const [fn, override] of this.overrides) {
      const wrapper = this.wrapper(fn, undefined, override, [], []);
      if (wrapper !== undefined) wrappers.set(fn, wrapper);
    }
    for (const [scope, inner] of byScope) {
      if (ts.isSourceFile(scope) || this.denied.has(scope) || wrappers.has(scope)) continue;
      const wrapper = this.judge(scope, inner);
      if (wrapper !== undefined) wrappers.set(scope, wrapper);
    }
    return wrappers;
  }

  private wrapper(
    fn: Fn,
    inner: ts.CallExpression | undefined,
    override: WrapperOverride | undefined,
    obstacles: readonly Obstacle[],
    notes: readonly string[],
  ): Wrapper | undefined {
    const id = wrapperId(this.resolver, fn);
    const name = nameOf(fn);
    if (id === undefined || name === undefined) return undefined;
    const file = this.resolver.analysis.pathOf(fn.getSourceFile());
    return { id, name, file, line: lineOf(fn), fn, inner, override, obstacles, notes };
  }

  /** Undefined: this function does business of its own (it touches a database), so its publishes are call sites. */
  private judge(fn: Fn, publishes: readonly ts.CallExpression[]): Wrapper | undefined {
    if (fn.body === undefined || nameOf(fn) === undefined) return undefined;
    // Run by an emitter or a hook and called by nobody: the publish inside is a call site that has to be told of.
    if (dispatchOf(fn, this.resolver) !== undefined && this.callsOf([fn]).length === 0) return undefined;
    const found = this.effects.of(fn.body);
    if (found.some((e) => e.kind !== 'transport' && e.kind !== 'broker')) return undefined;
    if (ownCalls(fn.body).some((call) => this.effects.mayWrite(call))) return undefined;
    const [inner] = publishes;
    if (inner === undefined) return undefined;
    const obstacles: Obstacle[] = [];
    const notes: string[] = [];
    if (publishes.length > 1)
      obstacles.push({ code: 'wrapper-unclear', what: `it publishes at ${publishes.length} places` });
    obstacles.push(...transports(found));
    const again = this.callersOf(fn).find((call) => contains(fn, call) && this.sendsAnother(fn, call, inner));
    if (again !== undefined)
      obstacles.push({ code: 'wrapper-unclear', what: `it calls itself (line ${lineOf(again)})` });
    const later = laterIn(fn, inner);
    if (later !== undefined) obstacles.push({ code: 'wrapper-unclear', what: `it publishes in ${later}` });
    this.surroundings(fn, inner, obstacles, notes);
    for (const call of ownCalls(fn.body)) {
      if (call !== inner && !publishes.includes(call)) this.sideCall(call, inner, obstacles, notes);
    }
    return this.wrapper(fn, inner, undefined, obstacles, notes);
  }

  /** Another call in a wrapper: broker set-up and plain functions are fine, an awaited unknown is not. */
  private sideCall(
    call: ts.CallExpression,
    inner: ts.CallExpression,
    obstacles: Obstacle[],
    notes: string[],
  ): void {
    const callee = this.resolver.calleeOf(call);
    if (callee.kind === 'builtin' || contains(inner, call) || contains(call, inner)) return;
    if (callee.kind === 'package' && classOf(callee.role.pkg) === 'broker') return;
    if (callee.kind === 'package' && classOf(callee.role.pkg) === 'transport') return;
    if (ts.isExpressionStatement(call.parent)) notes.push(`no longer calls ${quote(call.expression)}`);
    else if (callee.kind !== 'own' && ts.isAwaitExpression(call.parent)) {
      obstacles.push({ code: 'wrapper-does-more', what: quote(call) });
    }
  }

  /** What stands around the inner call: loops, conditions, early returns, catches. */
  private surroundings(fn: Fn, inner: ts.CallExpression, obstacles: Obstacle[], notes: string[]): void {
    for (let node: ts.Node = inner; node !== fn; node = node.parent) {
      const parent = node.parent;
      if (ts.isIterationStatement(parent, false) && node === parent.statement && !leavesAfter(node, inner)) {
        obstacles.push({ code: 'wrapper-unclear', what: `it publishes in a loop (line ${lineOf(parent)})` });
      }
      if (ts.isIfStatement(parent) && node !== parent.expression)
        this.condition(fn, parent.expression, obstacles, notes);
      if (ts.isConditionalExpression(parent) && node !== parent.condition) {
        this.condition(fn, parent.condition, obstacles, notes);
      }
      if (ts.isTryStatement(parent) && node === parent.tryBlock && parent.catchClause !== undefined) {
        if (!hasThrow(parent.catchClause.block))
          notes.push(`no longer hides publish errors (${calledName(inner)} in a catch)`);
      }
      if (ts.isBlock(parent) && ts.isStatement(node)) this.guards(fn, parent, node, obstacles, notes);
    }
  }

  /** `if (!channel) return` before the publish. */
  private guards(fn: Fn, block: ts.Block, until: ts.Statement, obstacles: Obstacle[], notes: string[]): void {
    for (const statement of block.statements.slice(0, block.statements.indexOf(until))) {
      if (!ts.isIfStatement(statement) || !hasReturn(statement.thenStatement)) continue;
      this.condition(fn, statement.expression, obstacles, notes);
    }
  }

  private condition(fn: Fn, condition: ts.Expression, obstacles: Obstacle[], notes: string[]): void {
    if (this.mentionsParameter(fn, condition)) {
      obstacles.push({
        code: 'wrapper-unclear',
        what: `it publishes only on a condition (${quote(condition)})`,
      });
    } else notes.push(`no longer drops the message without a word (${quote(condition)})`);
  }

  /** A retry is in a catch, or hands on what it was handed; whoever hands on something else that is published tells of that, too. */
  private sendsAnother(fn: Fn, call: ts.CallExpression, inner: ts.CallExpression): boolean {
    for (let n: ts.Node = call; n !== fn; n = n.parent) if (ts.isCatchClause(n)) return false;
    const read = this.parametersIn(fn, inner);
    return fn.parameters.some((p, at) => read.has(p) && call.arguments[at]?.getText() !== p.name.getText());
  }

  private mentionsParameter(fn: Fn, node: ts.Node): boolean {
    return this.parametersIn(fn, node).size > 0;
  }

  /** Also through a local that is part of one: `const order = orders[at]`. */
  private parametersIn(
    fn: Fn,
    node: ts.Node,
    seen = new Set<ts.Node>(),
  ): ReadonlySet<ts.ParameterDeclaration> {
    const found = new Set<ts.ParameterDeclaration>();
    eachNode(node, (n) => {
      if (!ts.isIdentifier(n)) return;
      const declaration = localSymbol(this.resolver.analysis.checker, n)?.valueDeclaration;
      // A channel that is passed in is part of the broker, not of the message.
      if (declaration === undefined || this.resolver.roleOf(n)?.what === 'channel') return;
      const parameter = fn.parameters.find((p) => contains(p, declaration));
      if (parameter !== undefined) found.add(parameter);
      const part = contains(fn, declaration) ? partOf(declaration) : undefined;
      if (part === undefined || seen.has(part)) return;
      seen.add(part);
      for (const p of this.parametersIn(fn, part, seen)) found.add(p);
    });
    return found;
  }
}

/** `orders[at]` of `const order = orders[at]`, `order` of `const { id } = order`; undefined for what a call gives. */
function partOf(declaration: ts.Node): ts.Expression | undefined {
  let holder = declaration;
  while (ts.isBindingElement(holder)) holder = holder.parent.parent;
  const made = ts.isVariableDeclaration(holder) ? holder.initializer : undefined;
  return made !== undefined &&
    (ts.isIdentifier(made) || ts.isPropertyAccessExpression(made) || ts.isElementAccessExpression(made))
    ? made
    : undefined;
}

/** How many arguments a function can read; an overload's body may take more than is written there. */
function parameterCount(fn: Fn): number {
  const open =
    fn.parameters.some((p) => p.dotDotDotToken !== undefined) || /\barguments\b/.test(fn.getText());
  return open ? Number.POSITIVE_INFINITY : fn.parameters.length;
}

/** The named function that a publish belongs to: a callback without a name is part of the one around it. */
export function namedScopeOf(call: ts.CallExpression): Scope {
  let scope = scopeOf(call);
  while (!ts.isSourceFile(scope) && nameOf(scope) === undefined && ts.isCallExpression(scope.parent))
    scope = scopeOf(scope);
  return scope;
}

/** `retry(async () => …)`: the callback's call, when the publish stands in one. */
function laterIn(fn: Fn, inner: ts.CallExpression): string | undefined {
  const scope = scopeOf(inner);
  if (scope === fn || ts.isSourceFile(scope) || !ts.isCallExpression(scope.parent)) return undefined;
  return `a callback of ${quote(scope.parent.expression)}`;
}

function transports(effects: readonly Effect[]): Obstacle[] {
  return effects
    .filter((e) => e.kind === 'transport')
    .map((e) => ({ code: 'multi-transport', what: `${e.what}, ${quote(e.at)}` }));
}

/** A retry loop leaves once it has published; a loop over recipients goes on. */
function leavesAfter(body: ts.Node, inner: ts.CallExpression): boolean {
  let leaves = false;
  eachNode(body, (n) => {
    if ((ts.isReturnStatement(n) || ts.isBreakStatement(n)) && (n.pos >= inner.end || contains(n, inner)))
      leaves = true;
  });
  return leaves;
}

function hasThrow(node: ts.Node): boolean {
  return some(node, ts.isThrowStatement);
}

function hasReturn(node: ts.Node): boolean {
  return some(node, ts.isReturnStatement);
}

function some(node: ts.Node, test: (n: ts.Node) => boolean): boolean {
  let found = false;
  eachNode(node, (n) => {
    if (test(n)) found = true;
  });
  return found;
}
