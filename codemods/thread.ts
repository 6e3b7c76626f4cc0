/**
 * A write in a function that the publisher calls: which functions lie on the way, and what is declared beside them
 * (interfaces, base classes, other implementations, test doubles). A transaction handle would have to pass through all
 * of them. A list for people; nothing is edited.
 */

import { ts } from 'ts-morph';
import type { Effect } from './effects.js';
import type { Analysis } from './program.js';
import type { Resolver } from './resolve.js';
import { contains, type Fn, lineOf, nameOf, ownCalls } from './syntax.js';
import type { Threading } from './thread-shapes.js';

export type ThreadRole = 'function' | 'interface' | 'base' | 'implementation' | 'test double';

export interface ThreadStep {
  readonly role: ThreadRole;
  readonly file: string;
  readonly line: number;
  readonly name: string;
}

/** What a handle passes through when it is threaded: every function on the way and what is declared beside it. */
export function stepsOf(threading: Threading, analysis: Analysis): ThreadStep[] {
  const changed = new Set<ts.Node>(threading.parameters.map((p) => p.signature));
  const step = (role: ThreadRole, node: ts.Node): ThreadStep => ({
    role,
    file: analysis.pathOf(node.getSourceFile()),
    line: lineOf(node),
    name: memberName(node),
  });
  return threading.families
    .flatMap((family) => [
      ...family.bodies.map((b) =>
        step(changed.size === 0 || changed.has(b) ? 'function' : 'implementation', b),
      ),
      ...family.declarations.map((d) => step(ts.isInterfaceDeclaration(d.parent) ? 'interface' : 'base', d)),
      ...family.doubles.map((d) => step('test double', d)),
    ])
    .slice(0, MAX_STEPS);
}

const MAX_DEPTH = 6;
const MAX_STEPS = 50;

export class Threads {
  constructor(private readonly resolver: Resolver) {}

  /** From the call that leads to the write down to the function that makes it; empty when it is made here. */
  stepsTo(write: Effect): ThreadStep[] {
    if (write.direct || !ts.isCallExpression(write.at)) return [];
    const path = this.path(write.at, write.source, new Set(), 0) ?? [];
    const steps = path.flatMap((fn) => [this.step('function', fn), ...this.beside(fn)]);
    const seen = new Set<string>();
    return steps
      .filter(({ file, line }) => {
        const key = `${file}:${line}`;
        return seen.has(key) ? false : seen.add(key);
      })
      .slice(0, MAX_STEPS);
  }

  private path(
    call: ts.CallExpression,
    source: ts.Node,
    seen: ReadonlySet<Fn>,
    depth: number,
  ): Fn[] | undefined {
    const callee = this.resolver.calleeOf(call);
    if (callee.kind !== 'own' || depth > MAX_DEPTH) return undefined;
    for (const fn of callee.fns) {
      if (seen.has(fn) || fn.body === undefined) continue;
      if (contains(fn, source)) return [fn];
      for (const inner of ownCalls(fn.body)) {
        const rest = this.path(inner, source, new Set([...seen, fn]), depth + 1);
        if (rest !== undefined) return [fn, ...rest];
      }
    }
    return undefined;
  }

  /** Declarations that share the method's signature: what its class implements or extends, and their other heirs. */
  private beside(fn: Fn): ThreadStep[] {
    const owner = fn.parent;
    if (!ts.isMethodDeclaration(fn) || !ts.isClassLike(owner) || !ts.isIdentifier(fn.name)) return [];
    const member = fn.name.text;
    const { analysis } = this.resolver;
    const steps: ThreadStep[] = [];
    for (const type of (owner.heritageClauses ?? []).flatMap((clause) => [...clause.types])) {
      const symbol = analysis.checker.getTypeAtLocation(type).getSymbol();
      const declared = symbol?.members?.get(ts.escapeLeadingUnderscores(member))?.declarations?.[0];
      if (symbol === undefined || declared === undefined) continue;
      const role = ts.isInterfaceDeclaration(declared.parent) ? 'interface' : 'base';
      steps.push(this.step(role, declared));
      for (const heir of this.resolver.heirsOf(symbol)) {
        const own = heir.members.find((m) => m.name !== undefined && m.name.getText() === member);
        if (heir === owner || own === undefined) continue;
        steps.push(this.step(analysis.isTest(heir.getSourceFile()) ? 'test double' : 'implementation', own));
      }
    }
    return steps;
  }

  private step(role: ThreadRole, node: ts.Node): ThreadStep {
    const file = this.resolver.analysis.pathOf(node.getSourceFile());
    return { role, file, line: lineOf(node), name: memberName(node) };
  }
}

/** `Orders.tell`, also of an interface's member. */
export function memberName(node: ts.Node): string {
  const named = nameOf(node as Fn);
  if (named?.includes('.')) return named;
  const owner = node.parent;
  const outer =
    (ts.isClassLike(owner) || ts.isInterfaceDeclaration(owner)) && owner.name !== undefined
      ? `${owner.name.text}.`
      : '';
  const own = named ?? ('name' in node ? (node.name as ts.Node | undefined)?.getText() : undefined);
  return outer + (own ?? 'a function without a name');
}
