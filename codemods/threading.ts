/**
 * A function that builds its own messages cannot be written out where it is called; it can be handed the transaction's
 * handle instead. This finds everything that has to change together: the functions between the transactions and the
 * publishes, their other declarations, every call on the way. All of it can be changed, or none is.
 */

import { ts } from 'ts-morph';
import { isAssignment } from './availability.js';
import type { Callers, Family } from './callers.js';
import { type Carriers, isHandle } from './carriers.js';
import { type HandleType, libraryType, pgType } from './handle-types.js';
import { callbackObstacle, enclosures, statementOf, useOf } from './hazards.js';
import { BROKERS, classOf } from './packages.js';
import type { PublishFacts } from './publish.js';
import type { Obstacle } from './reasons.js';
import type { Resolver } from './resolve.js';
import {
  contains,
  eachNode,
  eachOwnNode,
  type Fn,
  isAsync,
  lineOf,
  ownCalls,
  quote,
  type Scope,
  scopeOf,
} from './syntax.js';
import type { InnerPublish, NewArgument, NewParameter, Threading } from './thread-shapes.js';
import type { Idiom } from './transactions/idiom.js';
import type { PoolScope } from './transactions/pool-query.js';
import type { Key, TransactionScope } from './transactions/scope.js';
import { waiting } from './waits.js';
import { type Discovery, namedScopeOf } from './wrappers.js';

/** What a call's transaction is. */
export interface Reached {
  readonly found: TransactionScope | undefined;
  readonly pool: PoolScope | undefined;
}

interface Part {
  readonly family: Family;
  readonly index: number;
  /** Whether the parameter is new; one that is there has to be handed the transaction's handle. */
  readonly added: boolean;
  readonly publishes: readonly { call: ts.CallExpression; facts: PublishFacts; body: Fn }[];
  /** Calls of other threaded functions, and of itself. */
  readonly hops: { readonly call: ts.CallExpression; readonly body: Fn }[];
}

interface Root {
  readonly call: ts.CallExpression;
  /** Undefined: a new transaction will be made around the call. */
  readonly handle: ts.Expression | undefined;
  readonly library: Idiom | undefined;
}

const MAX_FAMILIES = 30;

export class Threadings {
  private readonly known = new Map<Family, Threading | undefined>();
  private byScope: Map<Scope, readonly ts.CallExpression[]> | undefined;

  constructor(
    private readonly resolver: Resolver,
    private readonly callers: Callers,
    private readonly carriers: Carriers,
    private readonly discovery: Discovery,
    private readonly key: Key,
    private readonly read: (call: ts.CallExpression) => PublishFacts,
    private readonly reach: (call: ts.CallExpression, statement: ts.Statement) => Reached,
    private readonly isPlain: (node: ts.Node) => boolean,
    /** Whether a file is among those that may be edited. */
    private readonly isSelected: (file: ts.SourceFile) => boolean,
  ) {}

  /** Undefined when what a call calls does not build its messages itself: a handle would not help. */
  of(call: ts.CallExpression): Threading | undefined {
    const family = this.familyOf(call);
    if (family === undefined) return undefined;
    if (!this.known.has(family)) {
      this.known.set(family, undefined);
      const built = this.build(family);
      // Whoever asks for another function of the same web gets the same answer.
      for (const one of [family, ...(built?.families ?? [])]) this.known.set(one, built);
    }
    return this.known.get(family);
  }

  /** Where a call of a threaded function gets the handle; undefined when the parameter was there. */
  indexFor(call: ts.CallExpression, threading: Threading): number | undefined {
    const family = this.familyOf(call);
    const declared = [...(family?.bodies ?? []), ...(family?.declarations ?? [])];
    return threading.parameters.find((p) => declared.some((d) => d === p.signature))?.index;
  }

  private familyOf(call: ts.CallExpression): Family | undefined {
    const callee = this.resolver.calleeOf(call);
    // A container puts a class there that is not in the repository: its method would keep its parameters.
    if (callee.kind === 'own' && callee.foreign) return undefined;
    const [fn] = callee.kind === 'own' ? callee.fns.filter((f) => this.isPublisher(f)) : [];
    return fn === undefined ? undefined : this.callers.familyOf(fn);
  }

  private isPublisher(fn: Fn): boolean {
    return this.discovery.wrappers.has(fn) && this.discovery.wrappers.get(fn)?.override === undefined;
  }

  private build(first: Family): Threading | undefined {
    const parts = new Map<Family, Part>();
    const roots: Root[] = [];
    const obstacles: Obstacle[] = [];
    const queue = [first];
    for (let family = queue.shift(); family !== undefined; family = queue.shift()) {
      if (parts.has(family)) continue;
      const part = this.part(family, obstacles);
      if (part === undefined || parts.size > MAX_FAMILIES) return undefined;
      parts.set(family, part);
      queue.push(...part.hops.flatMap((hop) => this.familyOf(hop.call) ?? []));
      for (const call of family.calls) {
        const above = this.above(call, part, roots, obstacles);
        if (above !== undefined) queue.push(above);
      }
      if (part.added) for (const call of family.testCalls.slice(0, 1)) obstacles.push(this.without(call));
    }
    const all = [...parts.values()];
    if (roots.length === 0 && obstacles.length === 0) return undefined;
    const type = this.typeOf(roots, obstacles);
    return {
      ...this.changes(all, roots, type, obstacles),
      replacements: [],
      additions: [],
      needs: roots.map((r) => r.call),
      families: all.map((p) => p.family),
      obstacles,
      noise: all.flatMap((p) => this.noiseOf(p)),
    };
  }

  // ── downwards ──

  /** Undefined: some publish of it cannot be read even here. */
  private part(family: Family, obstacles: Obstacle[]): Part | undefined {
    const publishes: { call: ts.CallExpression; facts: PublishFacts; body: Fn }[] = [];
    const hops: { call: ts.CallExpression; body: Fn }[] = [];
    for (const body of family.bodies) {
      for (const call of this.publishesIn(body)) {
        const facts = this.read(call);
        if (facts.obstacles.length === 0 && facts.kind !== null) {
          obstacles.push(...this.misplaced(call, body));
          publishes.push({ call, facts, body });
        } else if (this.familyOf(call) !== undefined) hops.push({ call, body });
        else return undefined;
      }
    }
    if (publishes.length + hops.length === 0) return undefined;
    obstacles.push(...family.obstacles);
    const slots = family.bodies.map((b) => this.carriers.slotOf(b)?.index);
    const [slot] = slots;
    const added = slot === undefined || slots.some((s) => s !== slot);
    const signatures = [...family.bodies, ...family.declarations];
    const index = added ? Math.min(...longest(signatures).map(requiredOf)) : slot;
    const uses = new Set([...publishes, ...hops].map(({ body }) => body));
    const short = [...uses, ...family.declarations].find((s) => s.parameters.length < index);
    if (short !== undefined)
      obstacles.push({
        code: 'arguments-not-plain',
        what: `${family.name} with fewer parameters, line ${lineOf(short)}`,
      });
    const outside = [...uses, ...family.declarations].find((s) => !this.isSelected(s.getSourceFile()));
    if (outside !== undefined)
      obstacles.push({
        code: 'caller-without-transaction',
        what: `${this.placeOf(outside)} is not among the paths`,
      });
    return { family, index, added, publishes, hops };
  }

  private publishesIn(body: Fn): readonly ts.CallExpression[] {
    if (this.byScope === undefined) {
      this.byScope = new Map();
      for (const call of this.discovery.publishes) {
        const scope = namedScopeOf(call);
        this.byScope.set(scope, [...(this.byScope.get(scope) ?? []), call]);
      }
    }
    return this.byScope.get(body) ?? [];
  }

  /** What a publish's place in the function means once it is a statement of the transaction. */
  private misplaced(call: ts.CallExpression, body: Fn): Obstacle[] {
    const { statement, obstacle } = useOf(call);
    if (obstacle !== undefined) return [obstacle];
    if (scopeOf(call) !== body || statement === undefined || body.body === undefined)
      return [callbackObstacle(scopeOf(call)) ?? { code: 'in-callback', what: quote(call) }];
    const found = enclosures(statement, body.body).filter(
      (o) => o.code !== 'loop' && o.code !== 'conditional-path',
    );
    if (!isAsync(body)) found.push({ code: 'not-async', what: `line ${lineOf(body)}` });
    const condition = this.brokerCondition(body);
    if (condition !== undefined)
      found.push({ code: 'wrapper-unclear', what: `it asks the broker first (${quote(condition)})` });
    return found;
  }

  /** `if (!channel) return`: an enqueue that waits for a connection to the broker makes no sense. */
  private brokerCondition(body: Fn): ts.Expression | undefined {
    let found: ts.Expression | undefined;
    eachOwnNode(body, (n) => {
      if (!ts.isIfStatement(n) || found !== undefined) return;
      eachNode(n.expression, (e) => {
        const named = ts.isIdentifier(e) || ts.isPropertyAccessExpression(e);
        if (named && BROKERS.includes(this.resolver.roleOf(e)?.pkg ?? '')) found = n.expression;
      });
    });
    return found;
  }

  // ── upwards ──

  /** The next function that has to be threaded, when the call is in no transaction itself. */
  private above(
    call: ts.CallExpression,
    part: Part,
    roots: Root[],
    obstacles: Obstacle[],
  ): Family | undefined {
    const place = this.placeOf(call);
    if (
      call.arguments.some(ts.isSpreadElement) ||
      call.arguments.length < (part.added ? part.index : part.index + 1)
    ) {
      obstacles.push({ code: 'arguments-not-plain', what: `${quote(call)} (${place})` });
      return undefined;
    }
    const scope = scopeOf(call);
    const named = namedScopeOf(call);
    if (!ts.isSourceFile(named) && this.isPublisher(named)) {
      if (scope !== named)
        obstacles.push(callbackObstacle(scope) ?? { code: 'in-callback', what: quote(call) });
      obstacles.push(...this.unawaited(call, named));
      // A call of itself is no publish of its own.
      if (part.family.bodies.includes(named) && !part.hops.some((h) => h.call === call))
        part.hops.push({ call, body: named });
      if (!part.added) obstacles.push({ code: 'handle-in-parts', what: `${quote(call)} (${place})` });
      const above = this.callers.familyOf(named);
      // Nobody calls it, so nothing says that it has a transaction.
      if (above === undefined || above.calls.length === 0) obstacles.push(this.without(call));
      return above;
    }
    const statement = statementOf(call);
    const reached = statement === undefined ? undefined : this.reach(call, statement);
    const handle = reached?.found?.handleNode ?? reached?.pool?.handleNode;
    if (reached === undefined || handle === undefined) {
      obstacles.push(this.without(call));
      return undefined;
    }
    const library = reached.found?.library ?? reached.pool?.library;
    const text = reached.found?.handle ?? '';
    if (library?.transactionAsOption === true || text.includes(','))
      obstacles.push({
        code: 'handle-in-parts',
        what: `${text === '' ? (library?.name ?? '') : text} (${place})`,
      });
    const passed = part.added ? undefined : call.arguments[part.index];
    if (passed !== undefined && !isHandle(passed, handle, this.key))
      obstacles.push({ code: 'caller-without-transaction', what: `${place} hands over ${passed.getText()}` });
    roots.push({ call, handle: reached.found?.handleNode, library });
    return undefined;
  }

  private unawaited(call: ts.CallExpression, body: Fn): Obstacle[] {
    const found = body.body === undefined ? [] : enclosures(call, body.body);
    const hard = found.filter((o) => o.code !== 'loop' && o.code !== 'conditional-path');
    const state = waiting(call);
    if (state === 'could' && !isAsync(body)) hard.push({ code: 'not-async', what: `line ${lineOf(body)}` });
    if (state === 'no') hard.push(useOf(call).obstacle ?? { code: 'in-callback', what: quote(call) });
    return hard;
  }

  private without(call: ts.CallExpression): Obstacle {
    const crosses = /\bparentPort\b|\bprocess\.on\(\s*['"]message['"]/.test(call.getSourceFile().text);
    const code = crosses ? 'process-boundary' : 'caller-without-transaction';
    return { code, what: `${this.placeOf(call)}, ${quote(call)}` };
  }

  private typeOf(roots: readonly Root[], obstacles: Obstacle[]): HandleType | undefined {
    const names = new Set(roots.map((r) => r.library?.name ?? 'pg'));
    if (names.size > 1) obstacles.push({ code: 'handle-types-differ', what: [...names].sort().join(', ') });
    const library = roots[0]?.library;
    if (library !== undefined) return libraryType(library);
    return pgType(
      roots.map((r) => r.handle),
      this.resolver.analysis.checker,
    );
  }

  // ── what changes ──

  private changes(
    parts: readonly Part[],
    roots: readonly Root[],
    type: HandleType | undefined,
    obstacles: Obstacle[],
  ): Pick<Threading, 'publishes' | 'parameters' | 'arguments'> {
    const nothing = { publishes: [], parameters: [], arguments: [] };
    const library = roots[0]?.library;
    if (type === undefined || obstacles.length > 0) return nothing;
    const names = new Map<Fn, string>();
    const parameters: NewParameter[] = [];
    for (const part of parts) {
      for (const body of part.family.bodies) names.set(body, this.nameIn(body, part, type, roots));
      if (part.added) parameters.push(...this.parametersOf(part, type, names));
    }
    const added = new Map(parts.map((p) => [p.family, p]));
    const hops = parts.flatMap((part) =>
      part.hops.flatMap(({ call, body }): NewArgument[] => {
        const family = this.familyOf(call);
        const callee = family === undefined ? undefined : added.get(family);
        const text = names.get(body);
        if (callee === undefined || text === undefined || !callee.added) return [];
        return [{ call, index: callee.index, text, awaits: waiting(call) === 'could' }];
      }),
    );
    const publishes = parts.flatMap((part) =>
      part.publishes.flatMap(({ call, facts, body }): InnerPublish[] => {
        const { statement } = useOf(call);
        const handle = names.get(body);
        return statement === undefined || handle === undefined
          ? []
          : [{ call, statement, facts, handle, library }];
      }),
    );
    return { publishes, parameters, arguments: hops };
  }

  private nameIn(body: Fn, part: Part, type: HandleType, roots: readonly Root[]): string {
    const slot = part.added ? undefined : this.carriers.slotOf(body);
    if (slot !== undefined) return slot.name.text;
    const taken = new Set<string>();
    eachNode(body, (n) => {
      if (ts.isIdentifier(n)) taken.add(n.text);
    });
    const handle = roots[0]?.handle;
    const isRunner = handle !== undefined && this.resolver.roleOf(handle)?.what === 'runner';
    // Of a query runner its manager is handed on.
    const wanted = handle !== undefined && ts.isIdentifier(handle) && !isRunner ? [handle.text] : [];
    const names = [...wanted.filter((n) => !/^(?:this|transaction)$/.test(n)), ...type.names];
    return names.find((n) => !taken.has(n)) ?? `${type.names[0]}${taken.size}`;
  }

  /** Bodies that do not publish get the parameter only where it would shift the others. */
  private parametersOf(part: Part, type: HandleType, names: ReadonlyMap<Fn, string>): NewParameter[] {
    const { family, index } = part;
    const uses = new Set([...part.publishes, ...part.hops].map(({ body }) => body));
    const preferred =
      family.bodies.flatMap((b) => (uses.has(b) ? [names.get(b) ?? ''] : []))[0] ?? type.names[0];
    const bodies = family.bodies.flatMap((signature): NewParameter[] => {
      const name = names.get(signature) ?? '';
      if (uses.has(signature)) return [{ signature, index, name, type }];
      return signature.parameters.length > index ? [{ signature, index, name: `_${name}`, type }] : [];
    });
    const bare = family.declarations.map((signature) => ({ signature, index, name: preferred ?? '', type }));
    return [...bodies, ...bare];
  }

  /** Whatever would run before the commit, and on another connection, if a call were moved in front of it. */
  private noiseOf(part: Part): Obstacle[] {
    const mine = new Set<ts.Node>([...part.publishes, ...part.hops].map(({ call }) => call));
    const noise: Obstacle[] = [];
    const does = (node: ts.Node): void => {
      noise.push({ code: 'wrapper-does-more', what: `${quote(node)} (${this.placeOf(node)})` });
    };
    for (const body of new Set([...part.publishes, ...part.hops].map((p) => p.body))) {
      if (body.body === undefined) continue;
      for (const call of ownCalls(body.body)) {
        if (mine.has(call) || isConsole(call) || [...mine].some((m) => contains(call, m))) continue;
        const callee = this.resolver.calleeOf(call);
        if (callee.kind === 'package' && classOf(callee.role.pkg) === 'broker') continue;
        // A call for its own sake changes something, however plain it looks: a list of what is to be sent.
        if (ts.isExpressionStatement(call.parent) || !this.isPlain(call)) does(call);
      }
      eachOwnNode(body.body, (n) => {
        if (ts.isBinaryExpression(n) && isAssignment(n) && !ts.isIdentifier(n.left)) does(n);
      });
    }
    return noise;
  }

  private placeOf(node: ts.Node): string {
    return `${this.resolver.analysis.pathOf(node.getSourceFile())}:${lineOf(node)}`;
  }
}

function isConsole(call: ts.CallExpression): boolean {
  return /^console\./.test(call.expression.getText());
}

/** An implementation may have fewer parameters than what declares it: those with the most say where the handle goes. */
function longest(signatures: readonly ts.SignatureDeclaration[]): readonly ts.SignatureDeclaration[] {
  const most = Math.max(...signatures.map((s) => s.parameters.length));
  return signatures.filter((s) => s.parameters.length === most);
}

/** How many parameters stand in front of the first that may be left out. */
function requiredOf(signature: ts.SignatureDeclaration): number {
  const first = signature.parameters.findIndex(
    (p) =>
      p.questionToken !== undefined ||
      ('initializer' in p && p.initializer !== undefined) ||
      p.dotDotDotToken !== undefined,
  );
  return first < 0 ? signature.parameters.length : first;
}
