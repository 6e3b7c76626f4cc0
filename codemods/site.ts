/**
 * One publishing call read to the end: what it says, which transaction it belongs to, what stands in the way, and
 * how it would be rewritten. Every question about types is asked here; nothing is edited.
 */

import { ts } from 'ts-morph';
import { type Around, Arounds } from './around.js';
import { Availabilities } from './availability.js';
import { Between } from './between.js';
import { type Bulk, boundNames, bulkOf } from './bulk.js';
import type { BulkParts, CallParts, PassParts } from './call-text.js';
import { resultsOf } from './callback-edits.js';
import { Callers, generatedObstacle } from './callers.js';
import { Carriers } from './carriers.js';
import type { CodemodConfig } from './config.js';
import { Contexts } from './context.js';
import { Databases } from './databases.js';
import { Effects, isWrite } from './effects.js';
import type { Sources } from './files.js';
import { Handles } from './handles.js';
import { statementOf, type Use, useOf } from './hazards.js';
import { hoistsOf } from './hoists.js';
import { forgotten } from './narrowing.js';
import { BROKERS } from './packages.js';
import type { Analysis } from './program.js';
import { type PublishFacts, PublishReader } from './publish.js';
import { eventsOf } from './publishes/rascal.js';
import type { Obstacle } from './reasons.js';
import { Resolver } from './resolve.js';
import { isSpread, type Rewrite } from './rewrite.js';
import { contains, describe, eachNode, quote, type Scope, scopeOf } from './syntax.js';
import { stepsOf, type ThreadStep, Threads } from './thread.js';
import type { NewArgument, Threading } from './thread-shapes.js';
import { type Reached, Threadings } from './threading.js';
import { autocommits } from './transactions/autocommit.js';
import { CallbackFinder } from './transactions/callback.js';
import { DeepWrites } from './transactions/deep-write.js';
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
    this.writes = new Writes(this.resolver, this.effects, key, this.databases.joinsByItself);
    const helpers = new PgHelpers(this.resolver, this.effects, key);
    const openers = [helpers.callOf, new LibraryCallbacks(this.resolver).callOf];
    this.callbacks = new CallbackFinder(this.resolver, this.effects, openers, this.writes);
    const callers = new Callers(this.resolver, sources);
    const isPlain = (node: ts.Node): boolean => this.availabilities.isPlain(node);
    const isSelected = (file: ts.SourceFile): boolean => sources.selected(analysis.pathOf(file));
    const between = new Between(this.resolver, this.effects);
    this.arounds = new Arounds(this.effects, between);
    const deep = new DeepWrites(this.resolver, callers, this.effects, key, isPlain, isSelected);
    this.contexts = new Contexts(this.resolver, this.effects, this.databases, (call) => deep.whyNot(call));
    this.pools = new PoolFinder(
      new PoolNames(analysis),
      this.effects,
      this.availabilities,
      between,
      this.arounds,
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
      (found) => this.databaseObstacles(found),
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
        ? this.judgeTransaction(call, stays ? statement : use.statement, found, bulk, pass)
        : this.judgePool(call, taken ? whole : use.statement, pool, pass, around);
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

  private judgeTransaction(
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

  private judgePool(
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
    const obstacle = generatedObstacle(call.getSourceFile());
    return obstacle === undefined ? [] : [obstacle];
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

/** A call that is handed the transaction; `stays`: it stands inside one already, and is not moved. */
interface Passed {
  readonly threading: Threading;
  readonly stays: boolean;
}

function misuses(call: ts.CallExpression, publish: PublishFacts, use: Use): Obstacle[] {
  const events = publish.idiom.startsWith('rascal') ? eventsOf(call) : undefined;
  if (events !== undefined) return [{ code: 'publication-events', what: events }];
  return use.obstacle === undefined ? [] : [use.obstacle];
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

/** Whether a loop waits for its publishes. */
function isAwaited(loop: ts.Statement): boolean {
  let awaits = false;
  eachNode(loop, (n) => {
    if (ts.isAwaitExpression(n)) awaits = true;
  });
  return awaits;
}
