/**
 * A function that builds its own messages cannot be written out where it is called; it can be handed the transaction's
 * handle instead. This finds everything that has to change together: the functions between the transactions and the
 * publishes, their other declarations, every call on the way. All of it can be changed, or none is.
 */

import { ts } from 'ts-morph';
import type { Callers, Family } from './callers.js';
import { type Carriers, isHandle } from './carriers.js';
import { type HandleType, libraryType, pgType } from './handle-types.js';
import { callbackObstacle, statementOf } from './hazards.js';
import type { PublishFacts } from './publish.js';
import type { Obstacle } from './reasons.js';
import type { Resolver } from './resolve.js';
import { type Fn, lineOf, quote, type Scope, scopeOf } from './syntax.js';
import { ThreadBodies } from './thread-body.js';
import { ThreadChanges } from './thread-changes.js';
import type { Part, Root } from './thread-part.js';
import type { Threading } from './thread-shapes.js';
import type { PoolScope } from './transactions/pool-query.js';
import type { Key, TransactionScope } from './transactions/scope.js';
import { type Discovery, namedScopeOf } from './wrappers.js';

/** What a call's transaction is. */
export interface Reached {
  readonly found: TransactionScope | undefined;
  readonly pool: PoolScope | undefined;
}

const MAX_FAMILIES = 30;

export class Threadings {
  private readonly known = new Map<Family, Threading | undefined>();
  private readonly bodies: ThreadBodies;
  private readonly changes: ThreadChanges;
  private byScope: Map<Scope, readonly ts.CallExpression[]> | undefined;

  constructor(
    private readonly resolver: Resolver,
    private readonly callers: Callers,
    private readonly carriers: Carriers,
    private readonly discovery: Discovery,
    private readonly key: Key,
    private readonly read: (call: ts.CallExpression) => PublishFacts,
    private readonly reach: (call: ts.CallExpression, statement: ts.Statement) => Reached,
    isPlain: (node: ts.Node) => boolean,
    /** Whether a file is among those that may be edited. */
    private readonly isSelected: (file: ts.SourceFile) => boolean,
  ) {
    this.bodies = new ThreadBodies(resolver, isPlain);
    this.changes = new ThreadChanges(resolver, carriers, (call) => this.familyOf(call));
  }

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
      ...this.changes.of(all, roots, type, obstacles),
      replacements: [],
      additions: [],
      needs: roots.map((r) => r.call),
      families: all.map((p) => p.family),
      obstacles,
      noise: all.flatMap((p) => this.bodies.noiseOf(p)),
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
          obstacles.push(...this.bodies.misplaced(call, body));
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
        what: `${this.bodies.placeOf(outside)} is not among the paths`,
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

  // ── upwards ──

  /** The next function that has to be threaded, when the call is in no transaction itself. */
  private above(
    call: ts.CallExpression,
    part: Part,
    roots: Root[],
    obstacles: Obstacle[],
  ): Family | undefined {
    const place = this.bodies.placeOf(call);
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
      obstacles.push(...this.bodies.unawaited(call, named));
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

  private without(call: ts.CallExpression): Obstacle {
    const crosses = /\bparentPort\b|\bprocess\.on\(\s*['"]message['"]/.test(call.getSourceFile().text);
    const code = crosses ? 'process-boundary' : 'caller-without-transaction';
    return { code, what: `${this.bodies.placeOf(call)}, ${quote(call)}` };
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
