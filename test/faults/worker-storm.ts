/**
 * Workers that come and go in the middle of a backlog of everything that a job may be, with an operator who cancels and
 * retries meanwhile; all in one process, so that each start and each end is seen. A seed is a history of who does what, though
 * not of who wins. What it judges is named in StormResult.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { HandlerFunction } from '../../src/jobs/handler.js';
import { isConflict, isHeld } from '../../src/jobs/sqlstate.js';
import type { WorkerEvent } from '../../src/jobs/worker.js';
import type { JobsDatabase } from '../support/jobs.js';
import { seeded } from '../support/seeded.js';
import { until } from '../support/until.js';
import { startWorker, type TestWorker, type TestWorkerOptions } from '../support/workers.js';

export interface StormOptions {
  readonly seed: number;
  readonly jobs: number;
  /** Times that workers come and go. */
  readonly rounds: number;
  /**
   * Default false. True: the transactions of workers are serializable, so that others are in their way, and somebody holds rows
   * locked for a third of a second each round.
   */
  readonly hostile?: boolean;
}

export interface StormResult {
  readonly jobs: number;
  readonly starts: number;
  readonly stops: number;
  /** Claimed, and given back before their start. */
  readonly neverStarted: number;
  /**
   * What may not be: two at once (of a job, of an ordering key, beyond a limit), a key out of order, an end without a row or a row
   * without an end, attempts that are not the ends, a lease lost, a job that a stopped worker still holds, a stop that takes too long.
   */
  readonly problems: readonly string[];
}

const CONCURRENCIES = [1, 7, 8, 9, 24, 100, 249, 250, 5_000];
const MAX_SLOT = 3;
const MAX_RUNNING = 4;
const KEYS = 6;
const GENERATIONS = 3;
/** A stop may take its deadline and what a busy machine needs to give back. */
const STOP_SLACK_MS = 15_000;
const KINDS = [
  'plain',
  'slot',
  'limited',
  'keyed',
  'gone',
  'throws',
  'last',
  'child',
  'naps',
  'stuck',
] as const;
type KindName = (typeof KINDS)[number];

/** What happened to a job, told by its handlers and its workers' events. */
interface Story {
  running: number;
  starts: number;
  ends: string[];
}

export async function workerStorm(
  db: JobsDatabase,
  { seed, jobs, rounds, hostile = false }: StormOptions,
): Promise<StormResult> {
  const random = seeded(seed);
  const below = (n: number): number => Math.floor(random() * n);
  const judge = new Judge(hostile);
  let open = (): void => {};
  const gate = new Promise<void>((resolve) => {
    open = resolve;
  });
  const handlers = handlersOf(db, gate);
  const serializable = encodeURIComponent('-c default_transaction_isolation=serializable');
  const url = hostile ? `${db.url}?options=${serializable}` : db.url;
  const start = (options: Partial<TestWorkerOptions> = {}): TestWorker => {
    const concurrency = CONCURRENCIES[below(CONCURRENCIES.length)] as number;
    const settleBatch = random() < 0.3 ? 1 : 1_000;
    return judge.watched({
      ...{ url, concurrency, settleBatch, leaseMs: 60_000, max: 3 },
      ...{ kinds: { limited: { maxRunning: MAX_RUNNING } }, keepDone: random() < 0.7 },
      ...options,
      handlers: () => handlers,
    });
  };
  const held: Promise<void>[] = [];
  let workers: TestWorker[] = [];
  let stops = 0;
  const stop = async (stopped: readonly TestWorker[]): Promise<void> => {
    await Promise.all(
      stopped.map(async (worker) => {
        const deadlineMs = below(3) * 20;
        const startAt = performance.now();
        await worker.close({ deadlineMs });
        stops += 1;
        const tookMs = performance.now() - startAt;
        if (tookMs > deadlineMs + STOP_SLACK_MS) judge.problem(`a stop took ${Math.round(tookMs)} ms`);
      }),
    );
  };
  try {
    await fill(db, jobs, below);
    for (let round = 0; round < rounds; round += 1) {
      // Its claims bring more than it has slots, in the middle of the long backlog.
      if (round === 0) workers.push(start({ concurrency: 24 }));
      workers.push(...Array.from({ length: 1 + below(2) }, () => start()));
      await sleep(below(60));
      await operate(db, below);
      if (hostile) held.push(holdRows(db));
      const staying = random() < 0.3 ? [] : workers.filter(() => random() < 0.4);
      await stop(workers.filter((worker) => !staying.includes(worker)));
      workers = staying;
      await Promise.all(held.splice(0));
      if (staying.length === 0) await judge.nothingRuns(db);
    }
    open();
    workers.push(start({ concurrency: 24, settleBatch: 1_000 }));
    await until('every job has ended', async () => {
      const { ready = 0, running = 0 } = await db.states();
      return ready + running === 0;
    });
  } finally {
    open();
    await stop(workers);
  }
  await judge.compare(db);
  return { jobs, stops, ...judge.sums(), problems: judge.problems };
}

async function fill(db: JobsDatabase, jobs: number, below: (n: number) => number): Promise<void> {
  const each = Math.ceil(jobs / KINDS.length);
  // Most come as a backlog of one kind does, one after the other.
  for (const kind of KINDS) {
    const many = kind === 'plain' ? each * 4 : kind === 'stuck' ? 12 : each;
    for (let put = 0; put < many; put += 50) {
      await db.put(kind, Array(Math.min(50, many - put)).fill(0), {
        priority: below(10),
        retryPolicy: { type: 'fixed', delayMs: below(20) },
        ...(kind === 'last' ? { maxAttempts: 1 } : {}),
        ...(kind === 'keyed' ? { orderingKey: `key ${below(KEYS)}` } : {}),
      });
    }
  }
}

/** Some are cancelled, those of before are brought back. */
async function operate(db: JobsDatabase, below: (n: number) => number): Promise<void> {
  const { rows } = await db.pool.query<{ id: string; state: string }>(
    `select id::text, state from unbroker.jobs
     where kind <> 'keyed' and state in ('ready', 'running', 'cancelled') order by id limit 10 offset $1`,
    [below(200)],
  );
  const ids = (states: readonly string[]): string[] =>
    rows.filter(({ state }) => states.includes(state)).map(({ id }) => id);
  await db.store.operatorRetry(db.pool, ids(['cancelled']), 1);
  await db.store.cancel(db.pool, ids(['ready', 'running']));
}

/** As an operator does who looks at what runs, in a transaction. */
async function holdRows({ pool }: JobsDatabase): Promise<void> {
  const client = await pool.connect();
  try {
    await client.query('begin');
    await client.query(
      `select from unbroker.jobs where state = 'running' order by random() for update skip locked limit 5`,
    );
    await sleep(300);
    await client.query('rollback');
  } finally {
    client.release();
  }
}

function handlersOf(db: JobsDatabase, gate: Promise<void>): Record<KindName, HandlerFunction> {
  const pause = (): Promise<unknown> => sleep(Math.random() * 4);
  const first = new Set<string>();
  /** Once for each job. */
  const isFirst = (id: string): boolean => !first.has(id) && first.add(id) !== undefined;
  return {
    plain: (job) => (Number(job.id) % 3 === 0 ? pause() : undefined),
    slot: pause,
    limited: pause,
    keyed: pause,
    gone: () => undefined,
    last: pause,
    throws: ({ id }) => {
      if (isFirst(id)) throw new Error('at once');
    },
    async child({ payload }) {
      if (Number(payload) < GENERATIONS) await db.put('child', [Number(payload) + 1]);
    },
    naps: ({ id }, { snooze }) => (isFirst(id) ? snooze(5) : undefined),
    // It hears no signal, and never ends while workers come and go.
    stuck: () => gate,
  };
}

class Judge {
  readonly problems: string[] = [];
  readonly #stories = new Map<string, Story>();
  readonly #held = new Map<string, string>();
  readonly #lastOfKey = new Map<string, number>();
  #limited = 0;
  #claims = 0;
  #starts = 0;

  constructor(private readonly hostile: boolean) {}

  problem(what: string): void {
    if (this.problems.length < 20) this.problems.push(what);
  }

  sums() {
    return { starts: this.#starts, neverStarted: this.#claims - this.#starts };
  }

  /** A worker whose handlers and events are told here. */
  watched({
    handlers,
    concurrency = 10,
    ...options
  }: Omit<TestWorkerOptions, 'handlers'> & {
    handlers: () => Record<KindName, HandlerFunction>;
  }): TestWorker {
    const here = { all: 0, slot: 0 };
    const wrapped = Object.entries(handlers()).map(([kind, handle]) => {
      const told: HandlerFunction = async (job, context) => {
        const end = this.#started(job, { here, concurrency });
        context.signal.addEventListener('abort', end);
        try {
          return await handle(job, context);
        } finally {
          end();
        }
      };
      return [
        kind,
        kind === 'slot'
          ? { handle: told, concurrency: MAX_SLOT }
          : kind === 'gone'
            ? { handle: told, keepDone: false }
            : told,
      ];
    });
    return startWorker({
      ...{ ...options, concurrency, handlers: Object.fromEntries(wrapped) },
      onEvent: (event) => this.#heard(event),
    });
  }

  #heard(event: WorkerEvent): void {
    if (event.type === 'claimed') this.#claims += event.jobs.length;
    if (event.type === 'lost') this.problem(`${event.job.kind} ${event.job.id}: its lease was lost`);
    // In each other's way, or in front of a row that is held: asked again.
    if (
      event.type === 'database-error' &&
      !(this.hostile && (isConflict(event.error) || isHeld(event.error)))
    )
      this.problem(`the database refused: ${String(event.error)}`);
    if (event.type === 'settled') this.#story(event.job.id).ends.push(event.outcome.type);
  }

  #story(id: string): Story {
    const story = this.#stories.get(id) ?? { running: 0, starts: 0, ends: [] };
    this.#stories.set(id, story);
    return story;
  }

  /** Answers what to call at its end, or when it was told to end. */
  #started(
    {
      id,
      kind,
      orderingKey,
    }: { readonly id: string; readonly kind: string; readonly orderingKey: string | null },
    { here, concurrency }: { readonly here: { all: number; slot: number }; readonly concurrency: number },
  ): () => void {
    const story = this.#story(id);
    const is = (of: string): number => (kind === of ? 1 : 0);
    const count = (one: number): void => {
      story.running += one;
      here.all += one;
      here.slot += one * is('slot');
      this.#limited += one * is('limited');
    };
    count(1);
    story.starts += 1;
    this.#starts += 1;
    if (story.running > 1) this.problem(`${kind} ${id} runs twice at once`);
    if (here.all > concurrency) this.problem(`${here.all} run at once, ${concurrency} may`);
    if (here.slot > MAX_SLOT) this.problem(`${here.slot} of slot run at once`);
    if (this.#limited > MAX_RUNNING) this.problem(`${this.#limited} of limited run at once`);
    if (orderingKey !== null) this.#inTurn(orderingKey, id);
    let ended = false;
    return () => {
      if (ended) return;
      ended = true;
      count(-1);
      if (orderingKey !== null) this.#held.delete(orderingKey);
    };
  }

  #inTurn(key: string, id: string): void {
    const other = this.#held.get(key);
    if (other !== undefined) this.problem(`${key}: ${id} beside ${other}`);
    if (Number(id) < (this.#lastOfKey.get(key) ?? 0)) this.problem(`${key}: ${id} out of order`);
    this.#held.set(key, id);
    this.#lastOfKey.set(key, Number(id));
  }

  async nothingRuns(db: JobsDatabase): Promise<void> {
    const { running = 0 } = await db.states();
    if (running > 0) this.problem(`${running} are held although every worker has stopped`);
  }

  /** The table against what was seen. */
  async compare(db: JobsDatabase): Promise<void> {
    const { rows } = await db.pool.query<{ id: string; kind: string; state: string; attempts: number }>(
      `select id::text, kind, state, attempts from unbroker.jobs`,
    );
    const left = new Map(rows.map((row) => [row.id, row]));
    for (const [id, { ends }] of this.#stories) {
      const dones = ends.filter((end) => end === 'complete').length;
      if (left.has(id)) continue;
      if (dones !== 1) this.problem(`job ${id} is gone and ended as: ${ends.join()}`);
    }
    for (const { id, kind, state, attempts } of rows) {
      const { ends } = this.#story(id);
      const counted = ends.filter((end) => end !== 'snooze').length;
      const dones = ends.filter((end) => end === 'complete').length;
      if (attempts !== counted) this.problem(`${kind} ${id}: ${attempts} attempts, its ends: ${ends.join()}`);
      if (dones !== (state === 'done' ? 1 : 0))
        this.problem(`${kind} ${id} is ${state}, its ends: ${ends.join()}`);
      if (!['done', 'cancelled'].includes(state)) this.problem(`${kind} ${id} is ${state}`);
    }
  }
}
