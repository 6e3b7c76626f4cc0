/**
 * Does what a contract's parse asked for, against the store, and answers what its render makes of it. A change of rows is
 * one transaction with its line in the audit table; with an Idempotency-Key everything, the answer included, is one. It
 * knows no HTTP beyond the answer's shape.
 */
import { prepare } from '../enqueue.js';
import type { Enqueued, Job, PreparedJob, Queryable } from '../jobs/job.js';
import type { DeadFilter, JobSearch } from '../jobs/operator-store.js';
import type { Store } from '../jobs/store.js';
import type { Suppressions } from '../notify/suppressions.js';
import type { TemplateTable } from '../notify/template-table.js';
import { createOperations, type Operations } from '../operations.js';
import type { Schedules } from '../schedules.js';
import { noteOf } from './audit.js';
import { Batcher } from './batcher.js';
import {
  type AnyRoute,
  type Change,
  type ChangedMany,
  type ChangeMany,
  type ChangeResult,
  type ContractContext,
  type EditJob,
  type Enqueue,
  type EnqueueResult,
  type Find,
  inScope,
  isRefusal,
  type Parsed,
  Refusal,
  type ReplaceJob,
  type ShimJob,
  type ShimResponse,
} from './contract.js';
import { type Page, readPage } from './page.js';
import type { RequestKey, Requests } from './requests.js';
import {
  changeSchedule,
  editSchedule,
  findSchedule,
  listSchedules,
  putSchedule,
  type ScheduleActs,
} from './schedule-acts.js';

/** What we ask of a pool. pg.Pool has it. */
export interface CorePool extends Queryable {
  connect(): Promise<CoreClient>;
}

export interface CoreClient extends Queryable {
  release(destroy?: boolean): void;
  on(event: 'error', listener: (error: Error) => void): unknown;
  off(event: 'error', listener: (error: Error) => void): unknown;
}

export interface CoreOptions {
  readonly pool: CorePool;
  readonly store: Store;
  readonly requests: Requests;
  readonly schedules: Schedules;
  readonly templates: TemplateTable;
  readonly suppressions: Suppressions;
  /** Called after a template was changed here. */
  readonly onTemplate?: (key: string) => void;
  /** Kinds among which a client's own id is looked for. */
  readonly kinds: readonly string[];
}

/** Starts that a replayed dead letter gets on top of those it had. */
const REPLAY_ATTEMPTS = 5;
/** A repeat waits this long for the first request's transaction. */
const LOCK_TIMEOUT = '10s';
const MAX_DEAD_COUNTED = 1_000_000;
const MAX_DEAD_GROUPED = 100_000;

type Asked = Exclude<Parsed, { type: 'answer' }>;

const READS: ReadonlySet<Parsed['type']> = new Set([
  'find',
  'list',
  'list-dead',
  'list-dead-groups',
  'find-schedule',
  'list-schedules',
  'list-template-versions',
  'list-templates',
  'list-suppressions',
]);
/** What is asked, for whom. */
export interface CoreRequest {
  readonly parsed: Parsed;
  readonly key: RequestKey | null;
  /** The principal's name. */
  readonly by: string;
}

export class Core {
  readonly #batcher: Batcher;
  readonly #options: CoreOptions;
  readonly #operations: Operations;

  constructor(options: CoreOptions) {
    this.#options = options;
    this.#operations = createOperations(options.store.schema);
    this.#batcher = new Batcher(options.pool, options.store);
  }

  /** Throws Refusal; anything else thrown is the database's. */
  async run(route: AnyRoute, { parsed, key, by }: CoreRequest): Promise<ShimResponse> {
    if (parsed.type === 'answer') return parsed.response;
    const { pool } = this.#options;
    // An enqueue is one statement, and what only reads changes nothing.
    if (READS.has(parsed.type) || (parsed.type === 'enqueue' && key === null))
      return answerOf(route, await this.#execute(pool, parsed, true), parsed);
    const response = await this.#transaction((client) =>
      key === null ? this.#change(client, route, parsed, by) : this.#once(client, route, parsed, key, by),
    );
    if (parsed.type === 'put-template') this.#options.onTemplate?.(parsed.key);
    return response;
  }

  /** The first request with this key does the work; all later ones get its answer. */
  async #once(
    db: CoreClient,
    route: AnyRoute,
    parsed: Asked,
    key: RequestKey,
    by: string,
  ): Promise<ShimResponse> {
    const { requests } = this.#options;
    const claimed = await requests.claim(db, key);
    if (claimed.type === 'repeat') return claimed.response;
    if (claimed.type === 'conflict') {
      throw new Refusal(
        422,
        'idempotency-key-reused',
        'this Idempotency-Key came with another request before',
      );
    }
    const response = await this.#change(db, route, parsed, by);
    await requests.answer(db, key, response);
    return response;
  }

  /** The work, and its line in the audit table where it touched rows that were there. */
  async #change(db: CoreClient, route: AnyRoute, parsed: Asked, by: string): Promise<ShimResponse> {
    const result = await this.#execute(db, parsed, false);
    const response = answerOf(route, result, parsed);
    const note = noteOf(parsed, result);
    if (note !== null) await this.#operations.note(db, note.act, note.touched, `http:${by}`, note.changed);
    return response;
  }

  /** `batched`: single enqueues may join others in one statement, since nothing else belongs to their transaction. */
  async #execute(db: Queryable, parsed: Asked, batched: boolean): Promise<unknown> {
    const { store, templates, suppressions } = this.#options;
    switch (parsed.type) {
      case 'enqueue':
        return this.#enqueue(db, parsed, batched);
      case 'find':
        return this.#find(db, parsed);
      case 'list':
        return (await this.#search(db, parsed.search)).jobs;
      case 'list-dead': {
        const { jobs, cut } = await this.#searchDead(db, parsed.filter, parsed.limit);
        const total = await store.countDeadWhere(db, parsed.filter, MAX_DEAD_COUNTED);
        return { jobs, total, more: cut || jobs.length === parsed.limit };
      }
      case 'list-dead-groups':
        return store.deadGroups(db, parsed.filter, MAX_DEAD_GROUPED);
      case 'change':
        return this.#changeOne(db, parsed);
      case 'change-many':
        return this.#changeMany(db, parsed);
      case 'edit-job':
        return this.#edit(db, parsed);
      case 'replace-job':
        return this.#replace(db, parsed);
      case 'put-schedule':
        return putSchedule(this.#acts, db, parsed);
      case 'find-schedule':
        return findSchedule(this.#acts, db, parsed);
      case 'list-schedules':
        return listSchedules(this.#acts, db, parsed);
      case 'change-schedule':
        return changeSchedule(this.#acts, db, parsed);
      case 'edit-schedule':
        return editSchedule(this.#acts, db, parsed);
      case 'put-template':
        return { version: await templates.put(db, parsed.key, parsed.changes) };
      case 'list-suppressions':
        return suppressions.list(db, parsed);
      case 'change-suppressions':
        return suppressions.change(db, parsed);
      case 'list-templates':
        return templates.current(db, parsed.limit);
      case 'list-template-versions':
        return templates.versions(db, parsed.key, parsed.limit);
    }
  }

  get #acts(): ScheduleActs {
    const { store, schedules } = this.#options;
    return {
      store,
      schedules,
      findJob: (db, of) => this.#find(db, of),
      search: async (db, search) => (await this.#search(db, search)).jobs,
    };
  }

  #search(db: Queryable, search: JobSearch): Promise<Page> {
    return readPage(search.limit, search.beforeId, (limit, beforeId) =>
      this.#options.store.search(db, { ...search, limit, ...(beforeId === undefined ? {} : { beforeId }) }),
    );
  }

  #searchDead(db: Queryable, filter: DeadFilter, limit: number): Promise<Page> {
    return readPage(limit, filter.beforeId, (count, beforeId) =>
      this.#options.store.searchDead(
        db,
        { ...filter, ...(beforeId === undefined ? {} : { beforeId }) },
        count,
      ),
    );
  }

  async #enqueue(db: Queryable, { jobs, readBack }: Enqueue, batched: boolean): Promise<EnqueueResult> {
    const enqueued = await this.#insert(db, jobs, batched);
    if (readBack !== true) return { enqueued, jobs: [] };
    const rows: Job[] = [];
    for (const { id } of enqueued) {
      const row = await this.#options.store.show(db, id);
      if (row !== null) rows.push(row);
    }
    return { enqueued, jobs: rows };
  }

  async #insert(db: Queryable, jobs: readonly ShimJob[], batched: boolean): Promise<Enqueued[]> {
    const { store } = this.#options;
    const [first] = jobs;
    if (first === undefined) return [];
    if (first.carried !== undefined) {
      if (jobs.length > 1) throw new TypeError('carried jobs come one by one');
      return [{ id: await store.enqueueCarried(db, prepared(first), first.carried), inserted: true }];
    }
    if (jobs.length > 1) return store.enqueueMany(db, jobs.map(prepared));
    const job = prepared(first);
    return [
      batched && job.dedupeKey === undefined
        ? await this.#batcher.enqueue(job)
        : await store.enqueue(db, job),
    ];
  }

  /** Digits are a job's id; anything else is the key that a client or the old system's message gave. */
  async #find(db: Queryable, { id, scope }: Pick<Find, 'id' | 'scope'>): Promise<Job | null> {
    const { store, kinds } = this.#options;
    const job = isJobId(id) ? await store.show(db, id) : await store.showByDedupeKey(db, kinds, id);
    return job !== null && inScope(job, scope) ? job : null;
  }

  async #changeOne(db: Queryable, { act, id, scope }: Change): Promise<ChangeResult> {
    const { store } = this.#options;
    const before = await this.#find(db, { id, scope });
    if (before === null) return { changed: false, job: null };
    const ids = [before.id];
    const changed = await this.#act(db, act, before, ids);
    const { id: jobId } = before;
    return { changed: changed.length === 1, job: await store.show(db, jobId) };
  }

  /** The act on each of them that is in a state for it. */
  async #changeMany(db: Queryable, { act, of, scope, limit }: ChangeMany): Promise<ChangedMany> {
    if ('ids' in of) {
      const found: (Job | null)[] = [];
      for (const id of of.ids) {
        const job = await this.#find(db, { id, scope });
        // Five hundred payloads are not kept for a look at their states.
        found.push(job === null ? null : { ...job, payloadText: null });
      }
      const wanted = found.filter((job): job is Job => job !== null).filter((job) => fits(act, job));
      const changed = new Set(await this.#actOn(db, act, wanted));
      const missed = of.ids.filter((_, index) => !changed.has(found[index]?.id ?? ''));
      return { changed: [...changed], missed, more: false };
    }
    const { jobs: found, cut } =
      'dead' in of
        ? await this.#searchDead(db, of.dead, limit + 1)
        : await this.#search(db, { ...of.search, limit: limit + 1 });
    const wanted = found.slice(0, limit).filter((job) => inScope(job, scope) && fits(act, job));
    return { changed: await this.#actOn(db, act, wanted), missed: [], more: cut || found.length > limit };
  }

  #actOn(db: Queryable, act: Change['act'], jobs: readonly Job[]): Promise<string[]> {
    const [first] = jobs;
    // In one order, so that two of them do not lock each other out.
    const ids = jobs.map(({ id }) => id).sort();
    return first === undefined ? Promise.resolve([]) : this.#act(db, act, first, ids);
  }

  async #edit(db: Queryable, { id, scope, states, edit }: EditJob): Promise<ChangeResult> {
    const { store } = this.#options;
    const found = await this.#find(db, { id, scope });
    const held = found === null ? null : await store.holdJob(db, found.id);
    if (held === null) return { changed: false, job: null };
    const changed = states.includes(held.state) && (await store.editJob(db, held.id, edit(held)));
    return { changed, job: await store.show(db, held.id) };
  }

  async #replace(db: Queryable, { job }: ReplaceJob): Promise<EnqueueResult> {
    const { store } = this.#options;
    await db.query('select pg_advisory_xact_lock(hashtextextended($1, 0))::text', [job.source]);
    const before = await store.search(db, { source: job.source, states: ['ready'], limit: 1_000 });
    const ids = before.map(({ id }) => id);
    const replaced = ids.length === 0 ? [] : await store.cancel(db, ids);
    const enqueued = await this.#enqueue(db, { type: 'enqueue', jobs: [job], readBack: true }, false);
    return { ...enqueued, replaced };
  }

  #act(db: Queryable, act: Change['act'], before: Job, ids: string[]): Promise<string[]> {
    const { store } = this.#options;
    switch (act) {
      case 'cancel':
        return store.cancel(db, ids);
      case 'run-now':
        return store.runNow(db, ids);
      case 'dismiss':
        return store.dismiss(db, ids);
      case 'replay':
        // The statement also takes cancelled jobs, which a person at the command line may want back.
        return before.state === 'dead' ? store.operatorRetry(db, ids, REPLAY_ATTEMPTS) : Promise.resolve([]);
    }
  }

  async #transaction<T>(work: (client: CoreClient) => Promise<T>): Promise<T> {
    const client = await this.#options.pool.connect();
    // pg ends the process over an error on a checked-out client that nobody listens to.
    const ignore = (): void => undefined;
    client.on('error', ignore);
    let broken = true;
    try {
      await client.query(`begin; set local lock_timeout = '${LOCK_TIMEOUT}'`);
      const result = await work(client);
      await client.query('commit');
      broken = false;
      return result;
    } catch (error) {
      broken = await client.query('rollback').then(
        () => false,
        () => true,
      );
      throw error;
    } finally {
      client.off('error', ignore);
      client.release(broken);
    }
  }
}

/** A dead job is replayed and dismissed, one that waits is cancelled and hurried. */
function fits(act: Change['act'], { state }: Job): boolean {
  return state === (act === 'replay' || act === 'dismiss' ? 'dead' : 'ready');
}

/** A contract's answer; its own refusal of a result undoes nothing but says no. */
function answerOf(route: AnyRoute, result: unknown, parsed: Parsed): ShimResponse {
  const response = route.render(result, parsed);
  if (isRefusal(response)) throw response;
  return response;
}

/** Options checked as at every other door; the payload's text has been read already. Throws Refusal. */
function prepared({ payloadText, carried: _carried, ...options }: ShimJob): PreparedJob {
  try {
    return { ...prepare({ ...options, payload: null }), payloadText };
  } catch (error) {
    if (error instanceof TypeError) throw new Refusal(422, 'job-invalid', error.message);
    throw error;
  }
}

/** A bigint's digits. */
function isJobId(id: string): boolean {
  return /^[1-9]\d{0,18}$/.test(id) && BigInt(id) <= 9_223_372_036_854_775_807n;
}

/** Parses within the rules of the house: what a contract refuses may be returned or thrown. */
export function parseWith(
  route: AnyRoute,
  request: Parameters<AnyRoute['parse']>[0],
  context: ContractContext,
): Parsed {
  const parsed = route.parse(request, context);
  if (isRefusal(parsed)) throw parsed;
  return parsed as Parsed;
}
