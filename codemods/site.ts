/**
 * One publishing call read to the end: what it says, which transaction it belongs to, what stands in the way, and
 * how it would be rewritten. Every question about types is asked here; nothing is edited.
 */

import { ts } from 'ts-morph';
import { Arounds } from './around.js';
import { Availabilities } from './availability.js';
import { Between } from './between.js';
import { type Bulk, bulkOf } from './bulk.js';
import { Callers } from './callers.js';
import { Carriers } from './carriers.js';
import type { CodemodConfig } from './config.js';
import { Contexts } from './context.js';
import { Databases } from './databases.js';
import { Effects, isWrite } from './effects.js';
import type { Sources } from './files.js';
import { Handles } from './handles.js';
import { statementOf, type Use, useOf } from './hazards.js';
import { Judging } from './judging.js';
import { BROKERS } from './packages.js';
import type { Analysis } from './program.js';
import { type PublishFacts, PublishReader } from './publish.js';
import { eventsOf } from './publishes/rascal.js';
import type { Obstacle } from './reasons.js';
import { Resolver } from './resolve.js';
import { Rethrows } from './rethrow.js';
import type { Rewrite } from './rewrite.js';
import { generatedObstacle } from './signatures.js';
import { contains, describe, eachNode, quote, type Scope, scopeOf } from './syntax.js';
import { stepsOf, type ThreadStep, Threads } from './thread.js';
import type { Threading } from './thread-shapes.js';
import { type Reached, Threadings } from './threading.js';
import { Asking } from './transactions/asking.js';
import { autocommits } from './transactions/autocommit.js';
import { CallbackFinder } from './transactions/callback.js';
import { DeepWrites } from './transactions/deep-write.js';
import { EmptyGuards } from './transactions/empty-guard.js';
import { Endings } from './transactions/endings.js';
import { LibraryCallbacks } from './transactions/library-callback.js';
import { libraryStatements } from './transactions/manual.js';
import { findPassedIn } from './transactions/passed-in.js';
import { PgHelpers } from './transactions/pg-callback.js';
import { find as findClient, transactionStatements } from './transactions/pg-client.js';
import { PoolFinder } from './transactions/pg-pool.js';
import { PoolNames } from './transactions/pool-name.js';
import type { PoolScope } from './transactions/pool-query.js';
import type { TransactionScope } from './transactions/scope.js';
import { Strays } from './transactions/strays.js';
import { Stretches } from './transactions/stretch.js';
import { findTransactional } from './transactions/typeorm-transactional.js';
import { Writes } from './transactions/writes.js';
import { Evaluator, type Value } from './values.js';
import { waiting } from './waits.js';
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
  /** What is left in the way of a call that was to be handed the transaction, when it is not after all. */
  readonly untold?: readonly Obstacle[];
}

/** The tools over one program; made once, asked for every site. */
export class SiteReader {
  readonly resolver: Resolver;
  readonly discovery: Discovery;
  readonly effects: Effects;
  readonly values: Evaluator;
  private readonly reader: PublishReader;
  private readonly availabilities: Availabilities;
  private readonly threads: Threads;
  private readonly threadings: Threadings;
  private readonly carriers: Carriers;
  private readonly contexts: Contexts;
  private readonly handles: Handles;
  private readonly databases: Databases;
  private readonly writes: Writes;
  private readonly callbacks: CallbackFinder;
  private readonly pools: PoolFinder;
  private readonly arounds: Arounds;
  private readonly judging: Judging;
  private readonly endings: Endings;
  private readonly publishes: ReadonlySet<ts.CallExpression>;

  constructor(
    private readonly analysis: Analysis,
    sources: Sources,
    config: CodemodConfig,
  ) {
    this.resolver = new Resolver(analysis, sources);
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
    const { key } = this.handles;
    this.endings = new Endings(this.effects, key);
    this.writes = new Writes(this.resolver, this.effects, key, this.databases.joinsByItself);
    const helpers = new PgHelpers(this.resolver, this.effects, key);
    const openers = [helpers.callOf, new LibraryCallbacks(this.resolver).callOf];
    this.callbacks = new CallbackFinder(this.resolver, this.effects, openers, this.writes);
    const callers = new Callers(this.resolver, sources);
    const isPlain = (node: ts.Node): boolean => this.availabilities.isPlain(node);
    const isSelected = (file: ts.SourceFile): boolean => sources.selected(analysis.pathOf(file));
    const between = new Between(this.resolver, this.effects);
    this.arounds = new Arounds(this.effects, between);
    const asking = new Asking(this.resolver, this.effects);
    const strays = new Strays(this.effects, asking);
    const rethrows = new Rethrows(this.effects, isPlain);
    const deep = new DeepWrites(
      this.resolver,
      callers,
      this.effects,
      key,
      isPlain,
      isSelected,
      asking,
      strays,
      rethrows,
    );
    this.contexts = new Contexts(this.resolver, this.effects, this.databases, (call) => deep.whyNot(call));
    this.pools = new PoolFinder(
      new PoolNames(analysis),
      this.effects,
      new Stretches(
        this.availabilities,
        between,
        this.arounds,
        new EmptyGuards(this.effects),
        asking,
        strays,
        rethrows,
      ),
      rethrows,
      key,
      (scope) => autocommits(scope, this.resolver, this.effects),
      (scope) => deep.of(scope),
    );
    this.carriers = new Carriers(
      this.resolver,
      callers,
      key,
      this.writes,
      (scope, statement) => this.transactionOf(scope, statement),
      (found) => this.judging.databaseObstacles(found),
    );
    this.threadings = new Threadings(
      this.resolver,
      callers,
      this.carriers,
      this.discovery,
      key,
      (call) => this.reader.read(call),
      (call, statement) => this.reach(call, statement),
      isPlain,
      isSelected,
    );
    this.judging = new Judging(
      analysis,
      this.resolver,
      this.reader,
      this.availabilities,
      this.handles,
      this.databases,
      this.threadings,
    );
  }

  private reach(call: ts.CallExpression, statement: ts.Statement): Reached {
    const scope = scopeOf(call);
    const found = this.transactionOf(scope, statement);
    if (found !== undefined) return { found, pool: undefined };
    return { found, pool: this.pools.find(scope, statement, (c) => this.publishes.has(c)) };
  }

  /** Functions that are handed a client and publish: who calls them has to be read, too. */
  carrierNames(): string[] {
    return this.carriers.names([...this.publishes]);
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
    const publish = this.reader.read(call);
    const threading = publish.obstacles.length > 0 ? this.threadings.of(call) : undefined;
    const bulk = threading === undefined ? this.bulkOf(call) : undefined;
    const scope = bulk?.scope ?? scopeOf(call);
    const use: Use =
      bulk === undefined
        ? useOf(call)
        : { statement: bulk.statement, awaited: isAwaited(bulk.statement), obstacle: undefined };
    const statement = use.statement ?? statementOf(call);
    const found = statement === undefined ? undefined : this.transactionOf(scope, statement);
    const stays = threading !== undefined && found?.position === 'inside' && waiting(call) !== 'no';
    const isSite = (c: ts.CallExpression): boolean => this.publishes.has(c);
    // A new transaction may take the place of more than the call.
    const around = found === undefined && bulk === undefined ? this.arounds.of(call, isSite) : undefined;
    const whole = around?.statement ?? statement;
    const pool =
      found === undefined && whole !== undefined ? this.pools.find(scope, whole, isSite) : undefined;
    const taken = around !== undefined && pool !== undefined;
    const obstacles: Obstacle[] = [
      ...this.generated(call),
      ...this.contexts.relays(call),
      ...(stays || taken ? [] : misuses(call, publish, use)),
    ];
    const base = { call, statement, functionName: describe(scope), awaited: use.awaited || taken };
    if (found === undefined && pool === undefined) {
      // What is in the way of a function that builds its own messages is said where it could be handed a transaction.
      obstacles.push(...(threading === undefined ? publish.obstacles : []), ...this.contexts.explain(call));
      const thread = obstacles.some((o) => o.code === 'no-transaction-here')
        ? this.threadOf(scope, call)
        : [];
      const nothing = { transaction: undefined, pool, rewrite: undefined, shared: false };
      return { ...base, ...nothing, publish, obstacles, thread };
    }
    obstacles.push(...this.contexts.foreignWrites(scope));
    const write = found?.position === 'after' ? found.end : pool?.statements[0];
    if (write !== undefined)
      obstacles.push(
        ...this.contexts.coveringCatch(call, write, scope, (handler) =>
          this.tellsOfFailure(handler, publish),
        ),
      );
    const pass = threading === undefined ? undefined : { threading, stays };
    const handed = threading ?? handedDown(pool);
    // Up and down at once is a person's work.
    if (threading !== undefined && pool?.queries.some((q) => q.deep !== undefined) === true)
      obstacles.push(...this.contexts.explain(call));
    const judged =
      found !== undefined
        ? this.judging.transaction(call, stays ? statement : use.statement, found, bulk, pass)
        : this.judging.pool(call, taken ? whole : use.statement, pool, pass, around);
    obstacles.push(...judged.publish.obstacles, ...judged.obstacles);
    if (pass === undefined) {
      for (const lost of this.availabilities.lostCalls(call, judged.publish.kept))
        obstacles.push({ code: 'arguments-not-plain', what: quote(lost) });
    }
    const untold =
      threading === undefined ? [] : publish.obstacles.filter((o) => o.code === 'several-implementations');
    if (obstacles.length > 0) obstacles.push(...untold);
    const rewrite =
      obstacles.length === 0 && judged.rewrite !== undefined
        ? { ...judged.rewrite, threading: handed }
        : undefined;
    return {
      ...base,
      publish: judged.publish,
      transaction: found,
      pool,
      obstacles,
      thread: handed === undefined ? [] : stepsOf(handed, this.analysis),
      rewrite,
      shared: judged.shared,
      untold,
    };
  }

  /** Every message of a catch is of another kind than the one that could not be sent. */
  private tellsOfFailure(handler: ts.CatchClause, { kind }: PublishFacts): boolean {
    const told = [...this.publishes].filter((c) => contains(handler, c)).map((c) => this.reader.read(c).kind);
    return told.length > 0 && told.every((k) => k !== null && k !== kind);
  }

  /** The way to the last write in front of a publish. */
  private threadOf(scope: Scope, call: ts.CallExpression): ThreadStep[] {
    const writes = this.effects.of(scope).filter((e) => isWrite(e) && e.at.end <= call.getStart());
    const last = writes.at(-1);
    return last === undefined ? [] : this.threads.stepsTo(last);
  }

  private transactionOf(scope: Scope, statement: ts.Statement): TransactionScope | undefined {
    const found = this.openAt(scope, statement);
    const ended = found === undefined ? [] : this.endings.of(found, scope, statement);
    return found === undefined || ended.length === 0
      ? found
      : { ...found, obstacles: [...found.obstacles, ...ended] };
  }

  private openAt(scope: Scope, statement: ts.Statement): TransactionScope | undefined {
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
      findPassedIn(scope, statement, this.resolver, this.effects, this.writes) ??
      this.carriers.scopeOf(scope, statement)
    );
  }

  /** The loop that a publish is all of, when it follows a commit: behind one it becomes a bulk enqueue. */
  private bulkOf(call: ts.CallExpression): Bulk | undefined {
    const bulk = bulkOf(call);
    const found = bulk === undefined ? undefined : this.transactionOf(bulk.scope, bulk.statement);
    return found?.position === 'after' ? bulk : undefined;
  }

  private generated(call: ts.CallExpression): Obstacle[] {
    const obstacle = generatedObstacle(call.getSourceFile());
    return obstacle === undefined ? [] : [obstacle];
  }

  /** Writes that a pool's new transaction would hold. */
  writesIn(pool: PoolScope): number {
    return pool.statements.flatMap((s) => this.effects.of(s)).filter(isWrite).length;
  }
}

/** What a new transaction hands down to the functions that write. */
function handedDown(pool: PoolScope | undefined): Threading | undefined {
  const all = (pool?.queries ?? []).flatMap((q) => q.deep?.threading ?? []);
  const [first] = all;
  if (first === undefined) return undefined;
  return {
    ...first,
    parameters: all.flatMap((t) => t.parameters),
    arguments: all.flatMap((t) => t.arguments),
    replacements: all.flatMap((t) => t.replacements),
    additions: all.flatMap((t) => t.additions),
    families: [...new Set(all.flatMap((t) => t.families))],
  };
}

function misuses(call: ts.CallExpression, publish: PublishFacts, use: Use): Obstacle[] {
  const events = publish.idiom.startsWith('rascal') ? eventsOf(call) : undefined;
  if (events !== undefined) return [{ code: 'publication-events', what: events }];
  return use.obstacle === undefined ? [] : [use.obstacle];
}

/** Whether a loop waits for its publishes. */
function isAwaited(loop: ts.Statement): boolean {
  let awaits = false;
  eachNode(loop, (n) => {
    if (ts.isAwaitExpression(n)) awaits = true;
  });
  return awaits;
}
