/**
 * What changes where a transaction is threaded through: the parameters, under names that nothing there uses, the arguments of
 * the calls between, and the publishes that become enqueues on them. Decided already; no edits.
 */

import { ts } from 'ts-morph';
import type { Family } from './callers.js';
import type { Carriers } from './carriers.js';
import type { HandleType } from './handle-types.js';
import { useOf } from './hazards.js';
import type { Obstacle } from './reasons.js';
import type { Resolver } from './resolve.js';
import { eachNode, type Fn } from './syntax.js';
import type { Part, Root } from './thread-part.js';
import type { InnerPublish, NewArgument, NewParameter, Threading } from './thread-shapes.js';
import { waiting } from './waits.js';

export class ThreadChanges {
  constructor(
    private readonly resolver: Resolver,
    private readonly carriers: Carriers,
    private readonly familyOf: (call: ts.CallExpression) => Family | undefined,
  ) {}

  of(
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
}
