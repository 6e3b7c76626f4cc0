/**
 * Does what a contract's parse asked for, against the store, and answers what its render makes of it. With an
 * Idempotency-Key everything, the answer included, is one transaction. It knows no HTTP beyond the answer's shape.
 */
import { prepare } from '../enqueue.js';
import type { Enqueued, Job, Queryable } from '../jobs/job.js';
import type { PreparedJob, Store } from '../jobs/store.js';
import { Batcher } from './batcher.js';
import {
  type AnyRoute,
  type Change,
  type ChangeResult,
  type ContractContext,
  type Enqueue,
  type EnqueueResult,
  type Find,
  inScope,
  isRefusal,
  type Parsed,
  Refusal,
  type ShimJob,
  type ShimResponse,
} from './contract.js';
import type { RequestKey, Requests } from './requests.js';

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
  /** Kinds among which a client's own id is looked for. */
  readonly kinds: readonly string[];
}

/** Starts that a replayed dead letter gets on top of those it had. */
const REPLAY_ATTEMPTS = 5;
/** A repeat waits this long for the first request's transaction. */
const LOCK_TIMEOUT = '10s';
const MAX_DEAD_COUNTED = 1_000_000;

export class Core {
  readonly #batcher: Batcher;
  readonly #options: CoreOptions;

  constructor(options: CoreOptions) {
    this.#options = options;
    this.#batcher = new Batcher(options.pool, options.store);
  }

  /** Throws Refusal; anything else thrown is the database's. */
  async run(route: AnyRoute, parsed: Parsed, key: RequestKey | null): Promise<ShimResponse> {
    if (parsed.type === 'answer') return parsed.response;
    if (key === null || parsed.type === 'find' || parsed.type === 'list' || parsed.type === 'list-dead') {
      return answerOf(route, await this.#execute(this.#options.pool, parsed, true), parsed);
    }
    return this.#once(route, parsed, key);
  }

  /** The first request with this key does the work; all later ones get its answer. */
  async #once(route: AnyRoute, parsed: Enqueue | Change, key: RequestKey): Promise<ShimResponse> {
    const { requests } = this.#options;
    return this.#transaction(async (client) => {
      const claimed = await requests.claim(client, key);
      if (claimed.type === 'repeat') return claimed.response;
      if (claimed.type === 'conflict') {
        throw new Refusal(
          422,
          'idempotency-key-reused',
          'this Idempotency-Key came with another request before',
        );
      }
      const response = answerOf(route, await this.#execute(client, parsed, false), parsed);
      await requests.answer(client, key, response);
      return response;
    });
  }

  /** `batched`: single enqueues may join others in one statement, since nothing else belongs to their transaction. */
  async #execute(
    db: Queryable,
    parsed: Exclude<Parsed, { type: 'answer' }>,
    batched: boolean,
  ): Promise<unknown> {
    const { store } = this.#options;
    switch (parsed.type) {
      case 'enqueue':
        return this.#enqueue(db, parsed, batched);
      case 'find':
        return this.#find(db, parsed);
      case 'list':
        return store.search(db, parsed.search);
      case 'list-dead': {
        const jobs = await store.list(db, { state: 'dead', limit: parsed.limit });
        return { jobs, total: await store.countDead(db, MAX_DEAD_COUNTED) };
      }
      case 'change':
        return this.#change(db, parsed);
    }
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

  async #change(db: Queryable, { act, id, scope }: Change): Promise<ChangeResult> {
    const { store } = this.#options;
    const before = await this.#find(db, { id, scope });
    if (before === null) return { changed: false, job: null };
    const ids = [before.id];
    const changed = await this.#act(db, act, before, ids);
    const { id: jobId } = before;
    return { changed: changed.length === 1, job: await store.show(db, jobId) };
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
