/**
 * A write on a pg pool that a called function makes: `await saveOrder(order)` and then the publish. When all that the
 * function does on its pool can run on a client instead, a transaction around the call can hand one down: the parameter is
 * optional, and whoever does not give it writes on the pool as before. What is less plain is left to people.
 */

import { ts } from 'ts-morph';
import type { Callers, Family } from '../callers.js';
import type { Effects, PgQuery } from '../effects.js';
import { POOL_OR_CLIENT } from '../handle-types.js';
import { enclosures } from '../hazards.js';
import { isConst } from '../origins.js';
import type { Analysis } from '../program.js';
import type { Resolver } from '../resolve.js';
import { contains, eachNode, type Fn, ownCalls, type Scope, scopeOf, unwrapped } from '../syntax.js';
import type { Deep, NewArgument, NewParameter } from '../thread-shapes.js';
import { waits } from '../waits.js';
import type { PoolQuery } from './pg-pool.js';
import type { PoolName } from './pool-name.js';
import type { Key } from './scope.js';

const MAX_DEPTH = 3;

interface Path {
  readonly family: Family;
  readonly fn: Fn;
  /** The call that goes deeper; undefined where the queries are. */
  readonly next: ts.CallExpression | undefined;
  readonly queries: readonly PgQuery[];
}

export class DeepWrites {
  constructor(
    private readonly resolver: Resolver,
    private readonly callers: Callers,
    private readonly effects: Effects,
    private readonly key: Key,
    private readonly isPlain: (node: ts.Node) => boolean,
    private readonly isSelected: (file: ts.SourceFile) => boolean,
  ) {}

  /** Calls of a function that write through others, as queries on the pool that these use. */
  of(scope: Scope): PoolQuery[] {
    return ownCalls(scope).flatMap((call) => {
      if (!waits(call) || call.arguments.some(ts.isSpreadElement)) return [];
      const found = this.effects.ofCall(call);
      if (found.length === 0 || found.some((e) => e.direct || e.kind !== 'pg-write')) return [];
      const path = this.pathOf(call, 0);
      const root = path?.at(-1)?.queries[0]?.handle;
      if (path === undefined || root === undefined) return [];
      const deep = this.deep(call, path, root);
      return deep === undefined
        ? []
        : [{ call, on: 'pool', handle: root, sql: 'write', text: '', helper: undefined, deep }];
    });
  }

  private pathOf(call: ts.CallExpression, depth: number): Path[] | undefined {
    const callee = this.resolver.calleeOf(call);
    if (callee.kind !== 'own' || depth > MAX_DEPTH) return undefined;
    const writing = callee.fns.filter((fn) => fn.body !== undefined && this.effects.of(fn.body).length > 0);
    const [fn] = writing;
    const family = fn === undefined ? undefined : this.callers.familyOf(fn);
    if (fn?.body === undefined || family === undefined || writing.length > 1 || !this.mayChange(family))
      return undefined;
    const queries = ownCalls(fn.body).flatMap((c) => this.effects.pgQuery(c) ?? []);
    const inner = ownCalls(fn.body).filter(
      (c) => this.effects.pgQuery(c) === undefined && this.effects.ofCall(c).length > 0,
    );
    if (!this.runsAnywhere(fn, queries, inner)) return undefined;
    if (inner.length === 0)
      return this.onOnePool(queries) ? [{ family, fn, next: undefined, queries }] : undefined;
    const [next] = inner;
    if (next === undefined || inner.length > 1 || queries.length > 0 || !waits(next)) return undefined;
    const rest = this.pathOf(next, depth + 1);
    return rest === undefined ? undefined : [{ family, fn, next, queries: [] }, ...rest];
  }

  /** An optional parameter suits callers that do not know it, not those that hand on what they have by position. */
  private mayChange(family: Family): boolean {
    const hard = family.obstacles.filter((o) => o.code !== 'public-export');
    const list = [...family.bodies, ...family.declarations];
    const rest = list.some((s) => s.parameters.some((p) => p.dotDotDotToken !== undefined));
    const lengths = new Set(list.map((s) => s.parameters.length));
    const same = lengths.size === 1 && family.bodies.length === 1;
    return hard.length === 0 && !rest && same && list.every((s) => this.isSelected(s.getSourceFile()));
  }

  /** Nothing else happens in it, nothing is swallowed, nothing runs beside another. */
  private runsAnywhere(fn: Fn, queries: readonly PgQuery[], inner: readonly ts.CallExpression[]): boolean {
    const body = fn.body;
    if (body === undefined) return false;
    const known = new Set<ts.Node>([...queries.map((q) => q.call), ...inner]);
    const isOther = (c: ts.CallExpression): boolean =>
      !known.has(c) && !this.isPlain(c) && ![...known].some((k) => contains(c, k));
    if (ownCalls(body).some(isOther)) return false;
    return [...known].every(
      (call) =>
        scopeOf(call) === fn &&
        !enclosures(call, body).some((o) => o.code === 'catch-swallows' || o.code === 'finally-block'),
    );
  }

  private onOnePool(queries: readonly PgQuery[]): boolean {
    const [first] = queries;
    return (
      first !== undefined &&
      queries.some((q) => q.sql === 'write' || q.sql === 'unknown') &&
      queries.every(
        (q) =>
          q.on === 'pool' &&
          q.helper === undefined &&
          waits(q.call) &&
          this.key(q.handle) === this.key(first.handle),
      )
    );
  }

  private deep(call: ts.CallExpression, path: readonly Path[], root: ts.Expression): Deep | undefined {
    const pool = this.poolFor(call, path, root);
    const last = path.at(-1);
    const [first] = path;
    if (pool === undefined || last === undefined || first === undefined) return undefined;
    if (path.some((p) => p.next?.arguments.some(ts.isSpreadElement) === true)) return undefined;
    const names = new Map(path.map((p) => [p.fn, freeName(p.fn)]));
    const parameters = path.flatMap((p) => this.parametersOf(p, names.get(p.fn) ?? '', root));
    const hops = path.flatMap((p, at): NewArgument[] => {
      const index = path[at + 1]?.fn.parameters.length;
      if (p.next === undefined || index === undefined) return [];
      return [{ call: p.next, index, text: names.get(p.fn) ?? '', awaits: false }];
    });
    return {
      index: first.fn.parameters.length,
      pool,
      threading: {
        publishes: [],
        parameters,
        arguments: hops,
        replacements: last.queries.map((q) => ({ node: q.handle, text: names.get(last.fn) ?? '' })),
        needs: [],
        families: path.map((p) => p.family),
        obstacles: [],
        noise: [],
      },
    };
  }

  /** What writes has the pool for a default; what only hands on and what only declares has none. */
  private parametersOf(part: Path, name: string, root: ts.Expression): NewParameter[] {
    const index = part.fn.parameters.length;
    const common = { index, name, type: POOL_OR_CLIENT };
    const value = part.next === undefined ? root.getText() : undefined;
    const own: NewParameter = { ...common, signature: part.fn, optional: value ?? true };
    const bare = part.family.declarations.map(
      (signature): NewParameter => ({ ...common, signature, optional: true }),
    );
    return [own, ...bare];
  }

  /** How the pool is called where the transaction will be opened. */
  private poolFor(call: ts.CallExpression, path: readonly Path[], root: ts.Expression): PoolName | undefined {
    const e = unwrapped(root);
    if (ts.isPropertyAccessExpression(e)) {
      const isMine = (c: ts.CallExpression): boolean =>
        ts.isPropertyAccessExpression(c.expression) &&
        c.expression.expression.kind === ts.SyntaxKind.ThisKeyword;
      const owner = classOf(call);
      const mine = owner !== undefined && path.every((p) => classOf(p.fn) === owner);
      const straight = [call, ...path.flatMap((p) => p.next ?? [])].every(isMine);
      return e.expression.kind === ts.SyntaxKind.ThisKeyword && mine && straight
        ? { text: e.getText(), from: undefined }
        : undefined;
    }
    return ts.isIdentifier(e) ? this.modulePool(call, e) : undefined;
  }

  private modulePool(call: ts.CallExpression, root: ts.Identifier): PoolName | undefined {
    const analysis: Analysis = this.resolver.analysis;
    const { checker } = analysis;
    const symbol = checker.getSymbolAtLocation(root);
    const target =
      symbol !== undefined && symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
    const declaration = target?.valueDeclaration;
    if (target === undefined || declaration === undefined || !ts.isVariableDeclaration(declaration))
      return undefined;
    const statement = declaration.parent.parent;
    if (!isConst(declaration) || !ts.isVariableStatement(statement) || !ts.isSourceFile(statement.parent))
      return undefined;
    const here = checker.getSymbolsInScope(call, ts.SymbolFlags.Value | ts.SymbolFlags.Alias);
    const visible = here.find(
      (s) => s === target || (s.flags & ts.SymbolFlags.Alias && checker.getAliasedSymbol(s) === target),
    );
    if (visible !== undefined) return { text: visible.name, from: undefined };
    const module = statement.parent;
    const exported = checker
      .getSymbolAtLocation(module)
      ?.exports?.get(ts.escapeLeadingUnderscores(target.name));
    const taken = here.some((s) => s.name === target.name);
    if (exported !== target || taken || module === call.getSourceFile()) return undefined;
    return { text: target.name, from: { module, name: target.name } };
  }
}

function classOf(node: ts.Node): ts.Node | undefined {
  let n = node.parent;
  while (!ts.isSourceFile(n)) {
    if (ts.isClassLike(n)) return n;
    n = n.parent;
  }
  return undefined;
}

function freeName(fn: Fn): string {
  const taken = new Set<string>();
  eachNode(fn, (n) => {
    if (ts.isIdentifier(n)) taken.add(n.text);
  });
  return POOL_OR_CLIENT.names.find((n) => !taken.has(n)) ?? `db${taken.size}`;
}
