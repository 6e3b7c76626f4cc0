/**
 * How one publish would be rewritten on a transaction that was found, or on one that would be made, and what stands in the
 * way. Decisions; nothing is edited.
 */

import { ts } from 'ts-morph';
import type { Around } from './around.js';
import type { Availabilities } from './availability.js';
import { type Bulk, boundNames } from './bulk.js';
import type { BulkParts, CallParts, PassParts } from './call-text.js';
import { resultsOf } from './callback-edits.js';
import type { Databases } from './databases.js';
import type { Handles } from './handles.js';
import { hoistsOf } from './hoists.js';
import { forgotten } from './narrowing.js';
import type { Analysis } from './program.js';
import type { PublishFacts, PublishReader } from './publish.js';
import type { Obstacle } from './reasons.js';
import type { Resolver } from './resolve.js';
import { isSpread, type Rewrite } from './rewrite.js';
import type { NewArgument, Threading } from './thread-shapes.js';
import type { Threadings } from './threading.js';
import type { Idiom } from './transactions/idiom.js';
import type { PoolScope } from './transactions/pool-query.js';
import type { TransactionScope } from './transactions/scope.js';
import { waiting } from './waits.js';

export interface Judged {
  readonly publish: PublishFacts;
  readonly obstacles: Obstacle[];
  readonly rewrite: Rewrite | undefined;
  readonly shared: boolean;
}

/** A call that is handed the transaction; `stays`: it stands inside one already, and is not moved. */
export interface Passed {
  readonly threading: Threading;
  readonly stays: boolean;
}

export class Judging {
  constructor(
    private readonly analysis: Analysis,
    private readonly resolver: Resolver,
    private readonly reader: PublishReader,
    private readonly availabilities: Availabilities,
    private readonly handles: Handles,
    private readonly databases: Databases,
    private readonly threadings: Threadings,
  ) {}

  transaction(
    call: ts.CallExpression,
    statement: ts.Statement | undefined,
    found: TransactionScope,
    bulk: Bulk | undefined,
    pass: Passed | undefined,
  ): Judged {
    const renames = found.inner?.renames ?? new Map<ts.Symbol, string>();
    const publish = this.passedFacts(call, pass, renames);
    const obstacles = [...found.obstacles, ...this.databaseObstacles(found)];
    if (statement === undefined || (publish.kind === null && pass === undefined))
      return { publish, obstacles, rewrite: undefined, shared: false };
    const many = bulk === undefined ? undefined : this.bulkParts(bulk, renames);
    const parts = {
      ...this.parts(
        call,
        publish,
        pass === undefined ? found.handle : this.handedOn(found),
        found.library?.adapter,
      ),
      bulk: many,
      pass: pass === undefined ? undefined : this.passParts(call, pass.threading, renames),
    };
    const { parameter } = found;
    const kept = bulk === undefined ? publish.kept : [...publish.kept, bulk.iterable];
    const bound = (bulk === undefined ? [] : boundNames(bulk.binding)).flatMap(
      (id) => this.analysis.checker.getSymbolAtLocation(id) ?? [],
    );
    const common = { statement, parts, kept: pass === undefined ? kept : [call] };
    if (!this.availabilities.isVisible(found.handleNode, found.target.before ?? found.target.atEndOf)) {
      obstacles.push({ code: 'transaction-unclear', what: `${found.handle} means something else here` });
    }
    if (found.position === 'inside') {
      const rewrite: Rewrite =
        pass === undefined
          ? { how: 'replace', parameter, ...common }
          : {
              how: 'pass',
              parameter,
              ...common,
              argument: this.argumentOf(call, pass.threading, this.handedOn(found)),
            };
      return { publish, obstacles, rewrite, shared: false };
    }
    const available = this.availabilities.check({
      nodes: kept,
      target: found.target.before ?? found.target.atEndOf,
      renamed: new Set([...renames.keys(), ...bound]),
      between: found.between,
      from: statement,
    });
    obstacles.push(...available.obstacles, ...(pass?.threading.noise ?? []));
    const rewrite: Rewrite = {
      how: 'move',
      ...common,
      target: found.target,
      moved: available.moved,
      inner: usedNames(found, publish, [many?.iterable ?? '', ...(parts.pass?.args ?? [])]),
      parameter,
    };
    return { publish, obstacles, rewrite, shared: available.shared };
  }

  /** A call that is handed the transaction: what it keeps is its arguments, what stands in its way is on the way. */
  private passedFacts(
    call: ts.CallExpression,
    pass: Passed | undefined,
    renames?: ReadonlyMap<ts.Symbol, string>,
  ): PublishFacts {
    const read = this.reader.read(call, renames);
    if (pass === undefined) return read;
    const { publishes, obstacles } = pass.threading;
    const kinds = [...new Set(publishes.map((p) => p.facts.kind))];
    const target = call.expression;
    const receiver = ts.isPropertyAccessExpression(target) ? [target.expression] : [];
    return {
      ...read,
      kind: kinds.length === 1 ? (kinds[0] ?? null) : null,
      payload: null,
      plain: publishes.every((p) => p.facts.plain),
      options: {},
      kept: [...receiver, ...call.arguments],
      obstacles,
      notes: [...new Set(publishes.flatMap((p) => p.facts.notes))],
    };
  }

  /** A query runner's manager goes to other functions: that is what they call a transaction. */
  private handedOn(found: TransactionScope): string {
    const isRunner = this.resolver.roleOf(found.handleNode)?.what === 'runner';
    return isRunner ? `${found.handle}.manager` : found.handle;
  }

  private passParts(
    call: ts.CallExpression,
    threading: Threading,
    renames: ReadonlyMap<ts.Symbol, string>,
  ): PassParts {
    return {
      callee: call.expression.getText(),
      args: call.arguments.map((a) => this.reader.text(a, renames)),
      index: this.threadings.indexFor(call, threading),
    };
  }

  private argumentOf(call: ts.CallExpression, threading: Threading, text: string): NewArgument | undefined {
    const index = this.threadings.indexFor(call, threading);
    return index === undefined ? undefined : { call, index, text, awaits: waiting(call) === 'could' };
  }

  private bulkParts(bulk: Bulk, renames: ReadonlyMap<ts.Symbol, string>): BulkParts {
    const { checker } = this.analysis;
    const type = checker.getTypeAtLocation(bulk.iterable);
    return {
      binding: bulk.binding.getText(),
      iterable: this.reader.text(bulk.iterable, renames),
      comments: bulk.comments,
      isArray: checker.isArrayType(type) || checker.isTupleType(type),
    };
  }

  pool(
    call: ts.CallExpression,
    statement: ts.Statement | undefined,
    pool: PoolScope | undefined,
    pass: Passed | undefined,
    around: Around | undefined,
  ): Judged {
    const publish = this.passedFacts(call, pass);
    if (pool === undefined) return { publish, obstacles: [], rewrite: undefined, shared: false };
    const { checker } = this.analysis;
    const held =
      pool.library === undefined && pool.opener === undefined
        ? hoistsOf(pool.statements, checker, pool.behind)
        : resultsOf(pool.statements, checker, pool.behind);
    const obstacles = [...held.obstacles, ...pool.obstacles, ...this.databaseObstacles(pool)];
    const isCallback = pool.opener !== undefined || pool.library?.wrap !== undefined;
    const inside = pool.statements.filter((s) => !pool.behind.includes(s));
    const lost = isCallback ? forgotten(inside, checker) : undefined;
    if (lost !== undefined) obstacles.push({ code: 'type-forgotten', what: lost });
    obstacles.push(...(pass?.threading.noise ?? []));
    if (statement === undefined || (publish.kind === null && pass === undefined))
      return { publish, obstacles, rewrite: undefined, shared: false };
    const parts = {
      ...this.parts(call, publish, pool.pool?.text ?? '', undefined),
      pass: pass === undefined ? undefined : this.passParts(call, pass.threading, new Map()),
    };
    const kept = pass === undefined ? publish.kept : [call];
    return {
      publish,
      obstacles,
      rewrite: { how: 'wrap', call, statement, parts, kept, scope: pool, around },
      shared: false,
    };
  }

  databaseObstacles(found: { library?: Idiom | undefined; handleNode: ts.Expression }): Obstacle[] {
    return found.library === undefined
      ? this.handles.databaseObstacles(found.handleNode)
      : this.databases.obstacles(found.library, found.handleNode);
  }

  private parts(
    call: ts.CallExpression,
    publish: PublishFacts,
    handle: string,
    adapter: string | undefined,
  ): CallParts {
    return {
      handle,
      adapter,
      kind: publish.kind ?? '',
      payload: publish.payload,
      plain: publish.plain,
      options: publish.options,
      spread: isSpread(call),
      trailingComma: call.arguments.hasTrailingComma,
    };
  }
}

/** A new name for the transaction's result is only made when the enqueue reads it. */
function usedNames(
  found: TransactionScope,
  publish: PublishFacts,
  more: readonly string[],
): TransactionScope['inner'] {
  const introduce = found.inner?.introduce;
  if (found.inner === undefined || introduce === undefined) return found.inner;
  const word = new RegExp(`(?<![\\w$.])${introduce.name.replace(/\$/g, '\\$')}(?![\\w$])`);
  const texts = [...more, publish.payload ?? '', ...Object.values(publish.options)];
  return texts.some((t) => word.test(t)) ? found.inner : { ...found.inner, introduce: undefined };
}
