/**
 * Which database a handle belongs to: two mentions of one client or pool compare equal, a client leads back to its
 * pool, and a package that opens several pools is told apart from one that opens one. It refuses to guess which of
 * several holds the jobs table.
 */

import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { ts } from 'ts-morph';
import type { CodemodConfig } from './config.js';
import { localSymbol, returnsOf, unaliased } from './origins.js';
import { classOf } from './packages.js';
import type { Obstacle } from './reasons.js';
import type { Resolver } from './resolve.js';
import { eachNode, lineOf, unwrapped } from './syntax.js';

const MAX_DEPTH = 10;

export class Handles {
  private readonly ids = new Map<ts.Symbol, number>();
  private readonly packages = new Map<string, string>();
  private opened: ReadonlyMap<string, readonly ts.NewExpression[]> | undefined;

  constructor(
    private readonly resolver: Resolver,
    private readonly root: string,
    private readonly config: CodemodConfig,
  ) {}

  /** Equal for two mentions of the same variable or property. */
  readonly key = (handle: ts.Expression): string => {
    const symbol = this.symbolOf(handle);
    if (symbol === undefined) return `text ${handle.getText()}`;
    const known = this.ids.get(symbol);
    if (known !== undefined) return `symbol ${known}`;
    this.ids.set(symbol, this.ids.size);
    return `symbol ${this.ids.size - 1}`;
  };

  private symbolOf(handle: ts.Expression): ts.Symbol | undefined {
    const e = unwrapped(handle);
    const name = ts.isPropertyAccessExpression(e) ? e.name : e;
    const { checker } = this.resolver.analysis;
    return unaliased(checker, localSymbol(checker, name));
  }

  /** The `new Pool(…)` behind a pool or client; undefined when it is passed in from where we cannot see. */
  poolOf(handle: ts.Expression, depth = 0): ts.NewExpression | undefined {
    const e = unwrapped(handle);
    if (depth > MAX_DEPTH) return undefined;
    if (ts.isNewExpression(e)) return e;
    if (ts.isCallExpression(e)) return this.poolBehindCall(e, depth);
    const declaration = this.symbolOf(e)?.valueDeclaration;
    if (declaration === undefined || !('initializer' in declaration)) return undefined;
    const initializer = declaration.initializer as ts.Expression | undefined;
    return initializer === undefined ? undefined : this.poolOf(initializer, depth + 1);
  }

  private poolBehindCall(call: ts.CallExpression, depth: number): ts.NewExpression | undefined {
    const callee = this.resolver.calleeOf(call);
    if (
      callee.kind === 'package' &&
      callee.method === 'connect' &&
      ts.isPropertyAccessExpression(call.expression)
    ) {
      return this.poolOf(call.expression.expression, depth + 1);
    }
    if (callee.kind !== 'own') return undefined;
    const pools = new Set(callee.fns.flatMap((fn) => returnsOf(fn)).map((r) => this.poolOf(r, depth + 1)));
    const [only] = pools;
    return pools.size === 1 ? only : undefined;
  }

  /** Obstacles to saying that the jobs table is where this handle leads. */
  databaseObstacles(handle: ts.Expression): Obstacle[] {
    const file = handle.getSourceFile();
    const opened = this.pools().get(this.packageOf(file)) ?? [];
    const places = opened.map((p) => `${this.resolver.analysis.pathOf(p.getSourceFile())}:${lineOf(p)}`);
    if (opened.length <= 1) return [];
    if (this.config.pool === null) return [{ code: 'which-database', what: places.join(', ') }];
    const mine = this.poolOf(handle);
    const named = opened.find((p) => this.idOf(p) === this.config.pool);
    if (named === undefined)
      return [{ code: 'which-database', what: `${places.join(', ')}; none is ${this.config.pool}` }];
    return mine === named
      ? []
      : [{ code: 'two-databases', what: `${handle.getText()} is not ${this.config.pool}` }];
  }

  /** `src/db.ts#pool`, as unbroker.codemod.json names it. */
  private idOf(pool: ts.NewExpression): string | undefined {
    let n: ts.Node = pool.parent;
    while (!ts.isSourceFile(n) && !ts.isVariableDeclaration(n) && !ts.isPropertyDeclaration(n)) n = n.parent;
    if (ts.isSourceFile(n) || !ts.isIdentifier(n.name)) return undefined;
    return `${this.resolver.analysis.pathOf(pool.getSourceFile())}#${n.name.text}`;
  }

  /** Every `new Pool(…)` outside tests, by package; the same connection written twice counts once. */
  private pools(): ReadonlyMap<string, readonly ts.NewExpression[]> {
    if (this.opened !== undefined) return this.opened;
    const found = new Map<string, ts.NewExpression[]>();
    for (const file of this.resolver.analysis.own) {
      if (this.resolver.analysis.isTest(file)) continue;
      eachNode(file, (node) => {
        if (!ts.isNewExpression(node)) return;
        const role = this.resolver.roleOf(node);
        if (role === undefined || classOf(role.pkg) !== 'pg' || role.what !== 'pool') return;
        const key = this.packageOf(file);
        const list = found.get(key) ?? [];
        const text = argumentsText(node);
        if (!list.some((other) => argumentsText(other) === text)) found.set(key, [...list, node]);
      });
    }
    this.opened = found;
    return found;
  }

  /** The folder of the nearest package.json: services of a monorepo are judged apart. */
  private packageOf(file: ts.SourceFile): string {
    const start = dirname(file.fileName);
    const known = this.packages.get(start);
    if (known !== undefined) return known;
    let folder = start;
    while (folder.length > this.root.length && !existsSync(join(folder, 'package.json')))
      folder = dirname(folder);
    this.packages.set(start, folder);
    return folder;
  }
}

function argumentsText(node: ts.NewExpression): string {
  return (node.arguments ?? []).map((a) => a.getText().replace(/\s+/g, '')).join(',');
}
