/**
 * One publishing call read to the end: what it says, which transaction it belongs to, what stands in the way, and
 * how it would be rewritten. Every question about types is asked here; nothing is edited.
 */

import { ts } from 'ts-morph';
import { Availabilities } from './availability.js';
import { type Bulk, boundNames, bulkOf } from './bulk.js';
import type { BulkParts, CallParts } from './call-text.js';
import { resultsOf } from './callback-edits.js';
import type { CodemodConfig } from './config.js';
import { Contexts } from './context.js';
import { Databases } from './databases.js';
import { Effects, isWrite } from './effects.js';
import type { Sources } from './files.js';
import { Handles } from './handles.js';
import { statementOf, type Use, useOf } from './hazards.js';
import { hoistsOf } from './hoists.js';
import { BROKERS } from './packages.js';
import type { Analysis } from './program.js';
import { type PublishFacts, PublishReader } from './publish.js';
import { eventsOf } from './publishes/rascal.js';
import type { Obstacle } from './reasons.js';
import { Resolver } from './resolve.js';
import { isSpread, type Rewrite } from './rewrite.js';
import { describe, eachNode, quote, type Scope, scopeOf } from './syntax.js';
import { type ThreadStep, Threads } from './thread.js';
import { autocommits } from './transactions/autocommit.js';
import { CallbackFinder } from './transactions/callback.js';
import type { Idiom } from './transactions/idiom.js';
import { LibraryCallbacks } from './transactions/library-callback.js';
import { libraryStatements } from './transactions/manual.js';
import { findPassedIn } from './transactions/passed-in.js';
import { PgHelpers } from './transactions/pg-callback.js';
import { find as findClient, transactionStatements } from './transactions/pg-client.js';
import { PoolFinder, type PoolScope } from './transactions/pg-pool.js';
import { PoolNames } from './transactions/pool-name.js';
import type { TransactionScope } from './transactions/scope.js';
import { findTransactional } from './transactions/typeorm-transactional.js';
import { Writes } from './transactions/writes.js';
import { Evaluator, type Value } from './values.js';
import { type Discovery, discoverWrappers } from './wrappers.js';

export interface ReadSite {
  readonly call: ts.CallExpression;
  readonly statement: ts.Statement | undefined;
  readonly functionName: string;
  readonly publish: PublishFacts;
  readonly awaited: boolean;
  readonly transaction: TransactionScope | undefined;
  readonly pool: PoolScope | undefined;
  readonly obstacles: readonly Obstacle[];
  /** What a handle would have to pass through to reach the write; empty when it is in this function. */
  readonly thread: readonly ThreadStep[];
  /** How it would be rewritten; undefined when something stands in the way. */
  readonly rewrite: Rewrite | undefined;
  readonly shared: boolean;
}

const GENERATED = /@generated\b|do not edit|auto-?generated/i;

/** The tools over one program; made once, asked for every site. */
export class SiteReader {
  readonly resolver: Resolver;
  readonly discovery: Discovery;
  readonly effects: Effects;
  readonly values: Evaluator;
  private readonly reader: PublishReader;
  private readonly availabilities: Availabilities;
  private readonly threads: Threads;
  private readonly contexts: Contexts;
  private readonly handles: Handles;
  private readonly databases: Databases;
  private readonly writes: Writes;
  private readonly callbacks: CallbackFinder;
  private readonly pools: PoolFinder;
  private readonly publishes: ReadonlySet<ts.CallExpression>;

  constructor(
    private readonly analysis: Analysis,
    sources: Sources,
    config: CodemodConfig,
  ) {
    this.resolver = new Resolver(analysis);
    const values = new Evaluator(this.resolver);
    this.values = values;
    this.effects = new Effects(this.resolver, values);
    this.discovery = discoverWrappers(this.resolver, this.effects, config);
    this.publishes = new Set(this.discovery.publishes);
    this.reader = new PublishReader(this.resolver, values, this.discovery, config);
    this.availabilities = new Availabilities(this.resolver, values, this.effects);
    this.handles = new Handles(this.resolver, sources.root, config);
    this.databases = new Databases(this.resolver, sources, config);
    this.threads = new Threads(this.resolver);
    this.contexts = new Contexts(this.resolver, this.effects, this.databases);
    const { key } = this.handles;
    this.writes = new Writes(this.resolver, this.effects, key, this.databases.joinsByItself);
    const helpers = new PgHelpers(this.resolver, this.effects, key);
    const openers = [helpers.callOf, new LibraryCallbacks(this.resolver).callOf];
    this.callbacks = new CallbackFinder(this.resolver, this.effects, openers, this.writes);
    this.pools = new PoolFinder(new PoolNames(analysis), this.effects, this.availabilities, key, (scope) =>
      autocommits(scope, this.resolver, this.effects),
    );
  }

  /** Whether an initialiser may go once nothing reads its name: a message body, a broker object. */
  readonly isSpent = (initializer: ts.Expression): boolean => {
    if (ts.isStringLiteralLike(initializer)) return true;
    if (BROKERS.includes(this.resolver.roleOf(initializer)?.pkg ?? '')) return true;
    return (
      /^(?:Buffer\.from|JSON\.stringify)\(/.test(initializer.getText()) &&
      this.availabilities.isPlain(initializer)
    );
  };

  /** What a call publishes, whatever stands around it. */
  factsOf(call: ts.CallExpression): PublishFacts {
    return this.reader.read(call);
  }

  /** A part of a publish as text, in the words of the function that publishes. */
  textOf(value: Value): string {
    return this.reader.textOf(value);
  }

  read(call: ts.CallExpression): ReadSite {
    const bulk = this.bulkOf(call);
    const scope = bulk?.scope ?? scopeOf(call);
    const use: Use =
      bulk === undefined
        ? useOf(call)
        : { statement: bulk.statement, awaited: isAwaited(bulk.statement), obstacle: undefined };
    const publish = this.reader.read(call);
    const statement = use.statement ?? statementOf(call);
    const events = publish.idiom.startsWith('rascal') ? eventsOf(call) : undefined;
    const misuse: Obstacle | undefined =
      events === undefined ? use.obstacle : { code: 'publication-events', what: events };
    const obstacles: Obstacle[] = [...this.generated(call), ...(misuse === undefined ? [] : [misuse])];
    const base = { call, statement, functionName: describe(scope), awaited: use.awaited };
    const found = statement === undefined ? undefined : this.transactionOf(scope, statement);
    const pool =
      found === undefined && statement !== undefined
        ? this.pools.find(scope, statement, (c) => this.publishes.has(c))
        : undefined;
    if (found === undefined && pool === undefined) {
      obstacles.push(...publish.obstacles, ...this.contexts.explain(call));
      const thread = obstacles.some((o) => o.code === 'no-transaction-here')
        ? this.threadOf(scope, call)
        : [];
      const nothing = { transaction: undefined, pool, rewrite: undefined, shared: false };
      return { ...base, ...nothing, publish, obstacles, thread };
    }
    obstacles.push(...this.contexts.foreignWrites(scope));
    const write = found?.position === 'after' ? found.end : pool?.statements[0];
    if (write !== undefined) obstacles.push(...this.contexts.coveringCatch(call, write, scope));
    const judged =
      found !== undefined
        ? this.judgeTransaction(call, use.statement, found, bulk)
        : this.judgePool(call, use.statement, pool);
    obstacles.push(...judged.publish.obstacles, ...judged.obstacles);
    for (const lost of this.availabilities.lostCalls(call, judged.publish.kept)) {
      obstacles.push({ code: 'arguments-not-plain', what: quote(lost) });
    }
    const rewrite = obstacles.length === 0 ? judged.rewrite : undefined;
    return {
      ...base,
      publish: judged.publish,
      transaction: found,
      pool,
      obstacles,
      thread: [],
      rewrite,
      shared: judged.shared,
    };
  }

  /** The way to the last write in front of a publish. */
  private threadOf(scope: Scope, call: ts.CallExpression): ThreadStep[] {
    const writes = this.effects.of(scope).filter((e) => isWrite(e) && e.at.end <= call.getStart());
    const last = writes.at(-1);
    return last === undefined ? [] : this.threads.stepsTo(last);
  }

  private transactionOf(scope: Scope, statement: ts.Statement): TransactionScope | undefined {
    const found =
      this.callbacks.find(scope, statement) ??
      findTransactional(scope, statement, this.resolver, this.effects);
    if (found !== undefined) return found;
    const statements = [
      ...transactionStatements(scope, this.effects),
      ...libraryStatements(scope, this.resolver),
    ].sort((a, b) => a.statement.pos - b.statement.pos);
    return (
      findClient(scope, statement, this.effects, this.handles.key, statements, this.writes) ??
      findPassedIn(scope, statement, this.resolver, this.effects, this.writes)
    );
  }

  /** The loop that a publish is all of, when it follows a commit: behind one it becomes a bulk enqueue. */
  private bulkOf(call: ts.CallExpression): Bulk | undefined {
    const bulk = bulkOf(call);
    const found = bulk === undefined ? undefined : this.transactionOf(bulk.scope, bulk.statement);
    return found?.position === 'after' ? bulk : undefined;
  }

  private judgeTransaction(
    call: ts.CallExpression,
    statement: ts.Statement | undefined,
    found: TransactionScope,
    bulk: Bulk | undefined,
  ): Judged {
    const renames = found.inner?.renames ?? new Map<ts.Symbol, string>();
    const publish = this.reader.read(call, renames);
    const obstacles = [...found.obstacles, ...this.databaseObstacles(found)];
    if (statement === undefined || publish.kind === null)
      return { publish, obstacles, rewrite: undefined, shared: false };
    const many = bulk === undefined ? undefined : this.bulkParts(bulk, renames);
    const parts = { ...this.parts(call, publish, found.handle, found.library?.adapter), bulk: many };
    const { parameter } = found;
    const kept = bulk === undefined ? publish.kept : [...publish.kept, bulk.iterable];
    const bound = (bulk === undefined ? [] : boundNames(bulk.binding)).flatMap(
      (id) => this.analysis.checker.getSymbolAtLocation(id) ?? [],
    );
    const common = { statement, parts, kept };
    if (!this.availabilities.isVisible(found.handleNode, found.target.before ?? found.target.atEndOf)) {
      obstacles.push({ code: 'transaction-unclear', what: `${found.handle} means something else here` });
    }
    if (found.position === 'inside')
      return { publish, obstacles, rewrite: { how: 'replace', parameter, ...common }, shared: false };
    const available = this.availabilities.check({
      nodes: kept,
      target: found.target.before ?? found.target.atEndOf,
      renamed: new Set([...renames.keys(), ...bound]),
      between: found.between,
      from: statement,
    });
    obstacles.push(...available.obstacles);
    const rewrite: Rewrite = {
      how: 'move',
      ...common,
      target: found.target,
      moved: available.moved,
      inner: usedNames(found, publish, many?.iterable ?? ''),
      parameter,
    };
    return { publish, obstacles, rewrite, shared: available.shared };
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

  private judgePool(
    call: ts.CallExpression,
    statement: ts.Statement | undefined,
    pool: PoolScope | undefined,
  ): Judged {
    const publish = this.reader.read(call);
    if (pool === undefined) return { publish, obstacles: [], rewrite: undefined, shared: false };
    const { checker } = this.analysis;
    const held =
      pool.library === undefined ? hoistsOf(pool.statements, checker) : resultsOf(pool.statements, checker);
    const obstacles = [...held.obstacles, ...pool.obstacles, ...this.databaseObstacles(pool)];
    if (statement === undefined || publish.kind === null)
      return { publish, obstacles, rewrite: undefined, shared: false };
    const parts = this.parts(call, publish, pool.pool?.text ?? '', undefined);
    return {
      publish,
      obstacles,
      rewrite: { how: 'wrap', statement, parts, kept: publish.kept, scope: pool },
      shared: false,
    };
  }

  private databaseObstacles(found: { library?: Idiom | undefined; handleNode: ts.Expression }): Obstacle[] {
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

  private generated(call: ts.CallExpression): Obstacle[] {
    const head = call.getSourceFile().text.slice(0, 600).split('\n').slice(0, 10);
    const line = head.find((l) => /^\s*(?:\/\/|\/?\*|#)/.test(l) && GENERATED.test(l));
    return line === undefined ? [] : [{ code: 'generated-file', what: line.trim().slice(0, 80) }];
  }

  /** Writes that a pool's new transaction would hold. */
  writesIn(pool: PoolScope): number {
    return pool.statements.flatMap((s) => this.effects.of(s)).filter(isWrite).length;
  }
}

interface Judged {
  readonly publish: PublishFacts;
  readonly obstacles: Obstacle[];
  readonly rewrite: Rewrite | undefined;
  readonly shared: boolean;
}

/** A new name for the transaction's result is only made when the enqueue reads it. */
function usedNames(
  found: TransactionScope,
  publish: PublishFacts,
  iterable: string,
): TransactionScope['inner'] {
  const introduce = found.inner?.introduce;
  if (found.inner === undefined || introduce === undefined) return found.inner;
  const word = new RegExp(`(?<![\\w$.])${introduce.name.replace(/\$/g, '\\$')}(?![\\w$])`);
  const texts = [iterable, publish.payload ?? '', ...Object.values(publish.options)];
  return texts.some((t) => word.test(t)) ? found.inner : { ...found.inner, introduce: undefined };
}

/** Whether a loop waits for its publishes. */
function isAwaited(loop: ts.Statement): boolean {
  let awaits = false;
  eachNode(loop, (n) => {
    if (ts.isAwaitExpression(n)) awaits = true;
  });
  return awaits;
}
