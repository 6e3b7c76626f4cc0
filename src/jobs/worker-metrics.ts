/**
 * What a worker's events and the jobs table say, as metrics. Events are counted as they come; the table is asked, with
 * bounded statements (backlog.ts), when somebody scrapes, and at most every quarter of a minute. Kinds are the only
 * label that grows, and it is bounded. It never counts the table.
 */
import { integer, invalid, object, string } from '../check.js';
import { METRICS_CONTENT_TYPE, Registry, type Sample } from '../metrics.js';
import { type Backlog, createBacklog, type KindBacklog, type KindLeases } from './backlog.js';
import type { ClaimedJob, Queryable } from './job.js';
import { DEFAULT_SCHEMA } from './schema-name.js';
import type { Outcome } from './settle.js';
import { within } from './signal.js';
import { createStore, type Store } from './store.js';
import type { WorkerEvent } from './worker.js';

export interface MetricsOptions {
  /** Asked for what waits and runs in the whole table. Default: only this process's events are counted. */
  readonly db?: Queryable | undefined;
  /** Default `unbroker`. */
  readonly schema?: string | undefined;
  /**
   * Kinds with series of their own, and as many of those that others alone work on; what comes later is counted as `(other)`. Default 100;
   * 1 to 10,000.
   */
  readonly maxKinds?: number | undefined;
  /** The database is asked at most this often. Default 15,000; 0 to 3,600,000. */
  readonly sampleMs?: number | undefined;
}

export interface Metrics {
  /** `createWorker({ onEvent: metrics.onEvent })`. */
  readonly onEvent: (event: WorkerEvent) => void;
  /** What a scrape gets; `contentType` says how. Never rejects: without a database the gauges are left out. */
  text(): Promise<string>;
  readonly contentType: string;
  /** For more metrics of one's own in the same text. */
  readonly registry: Registry;
}

const OTHER = '(other)';
/** A scrape waits so long for the database, then it gets what is known. */
const MAX_SAMPLE_MS = 2_000;

const asked = object({
  db: (value, path) => {
    if (typeof (value as Partial<Queryable> | null)?.query === 'function') return value as Queryable;
    throw invalid(path, 'a pool of pg, or anything with `query`');
  },
  schema: string({ maxLength: 63 }),
  maxKinds: integer(1, 10_000),
  sampleMs: integer(0, 3_600_000),
});

/** Throws `config-invalid` for what is out of range, of another type or unknown: it would be a gauge that never comes. */
export function createMetrics(given: MetricsOptions = {}): Metrics {
  const options = asked(given, 'createMetrics');
  const registry = new Registry();
  const max = options.maxKinds ?? 100;
  const own = new KindNames(max);
  const others = new KindNames(max, own);
  const gauges =
    options.db === undefined
      ? undefined
      : new TableGauges(
          registry,
          others,
          options.db,
          options.schema ?? DEFAULT_SCHEMA,
          options.sampleMs ?? 15_000,
        );
  const events = new EventCounts(registry, own, others, () => gauges?.clockOffsetMs ?? 0);
  return {
    onEvent: (event) => events.count(event),
    async text() {
      await gauges?.refresh();
      return registry.text();
    },
    contentType: METRICS_CONTENT_TYPE,
    registry,
  };
}

/**
 * The first so many kinds keep their names, and those of `own`: what this process claims. Counted together, a hundred kinds of others in
 * the table, seen by a scrape before the first claim, left the process's own without a name for as long as it ran.
 */
class KindNames {
  readonly #known = new Set<string>();

  constructor(
    private readonly max: number,
    private readonly own?: KindNames,
  ) {}

  has(kind: string): boolean {
    return this.#known.has(kind);
  }

  label(kind: string): string {
    if (this.has(kind) || this.own?.has(kind) === true) return kind;
    if (this.#known.size >= this.max) return OTHER;
    this.#known.add(kind);
    return kind;
  }
}

type Ends = Outcome['type'];

/** What a job passes. Kept by kind, so that counting one is adding to fields. */
interface KindSeries {
  readonly claimed: { value: number };
  readonly settled: Readonly<Record<Ends, { value: number }>>;
  readonly expired: { value: number };
  readonly lost: { value: number };
  readonly released: { value: number };
  readonly lag: { observe(seconds: number): void };
  readonly duration: { observe(seconds: number): void };
}

class EventCounts {
  readonly #kinds: KindNames;
  /** Of what this process takes back or fires. */
  readonly #others: KindNames;
  readonly #offsetMs: () => number;
  readonly #series = new Map<string, KindSeries>();
  /** Jobs that this process has. */
  #held = 0;
  readonly #metrics;

  constructor(registry: Registry, kinds: KindNames, others: KindNames, offsetMs: () => number) {
    this.#kinds = kinds;
    this.#others = others;
    this.#offsetMs = offsetMs;
    this.#metrics = {
      claimed: registry.counter('unbroker_jobs_claimed_total', 'Jobs claimed by this process.'),
      settled: registry.counter('unbroker_jobs_settled_total', 'Outcomes written by this process.'),
      expired: registry.counter(
        'unbroker_jobs_expired_total',
        'Discarded because they came too late, by an expiry of their own.',
      ),
      lost: registry.counter(
        'unbroker_leases_lost_total',
        'Jobs whose lease ended before their outcome was written.',
      ),
      released: registry.counter('unbroker_jobs_released_total', 'Jobs given back before an outcome.'),
      lag: registry.histogram('unbroker_job_lag_seconds', 'From run_at to the claim.'),
      duration: registry.histogram(
        'unbroker_job_duration_seconds',
        'From the claim to the outcome written, of jobs that this process ended.',
      ),
      reaped: registry.counter(
        'unbroker_jobs_reaped_total',
        'Jobs of any worker whose ended lease this process took back, by the state they got.',
      ),
      fired: registry.counter('unbroker_jobs_fired_total', 'Jobs that this process fired by schedule.'),
      errors: registry
        .counter(
          'unbroker_database_errors_total',
          'Times the database did not answer, or refused a statement.',
        )
        .with({}),
    };
    registry.gauge('unbroker_worker_jobs', 'Jobs that this process holds.', () => [
      { labels: {}, value: this.#held },
    ]);
  }

  count(event: WorkerEvent): void {
    if (event.type === 'claimed') this.#claimed(event.jobs);
    else if (event.type === 'settled') this.#settled(event);
    else if (event.type === 'lost') {
      this.#held -= 1;
      this.#of(event.job.kind).lost.value += 1;
    } else if (event.type === 'released') {
      this.#held -= event.jobs.length;
      for (const { kind } of event.jobs) this.#of(kind).released.value += 1;
    } else if (event.type === 'reaped') {
      for (const { kind, state } of event.jobs)
        this.#metrics.reaped.with({ kind: this.#others.label(kind), state }).value += 1;
    } else if (event.type === 'fired') {
      for (const { kind, jobs } of event.schedules)
        this.#metrics.fired.with({ kind: this.#others.label(kind) }).value += jobs.length;
    } else if (event.type === 'database-error') this.#metrics.errors.value += 1;
  }

  #claimed(jobs: readonly ClaimedJob[]): void {
    this.#held += jobs.length;
    // run_at is by the database's clock.
    const databaseNow = Date.now() + this.#offsetMs();
    for (const job of jobs) {
      const series = this.#of(job.kind);
      series.claimed.value += 1;
      // Not since '-infinity': the sum of all others would be gone.
      series.lag.observe(Math.max(0, databaseNow - Math.max(job.runAtMs, 0)) / 1_000);
    }
  }

  #settled({ job, outcome, heldMs }: WorkerEvent & { readonly type: 'settled' }): void {
    this.#held -= 1;
    const series = this.#of(job.kind);
    series.settled[outcome.type].value += 1;
    if (outcome.type === 'discard' && outcome.name === 'expired') series.expired.value += 1;
    series.duration.observe(heldMs / 1_000);
  }

  #of(kind: string): KindSeries {
    let series = this.#series.get(kind);
    if (series !== undefined) return series;
    const label = this.#kinds.label(kind);
    const { claimed, settled, expired, lost, released, lag, duration } = this.#metrics;
    const ends = (outcome: Ends) => settled.with({ kind: label, outcome });
    series = {
      claimed: claimed.with({ kind: label }),
      settled: {
        complete: ends('complete'),
        retry: ends('retry'),
        snooze: ends('snooze'),
        discard: ends('discard'),
      },
      expired: expired.with({ kind: label }),
      lost: lost.with({ kind: label }),
      released: released.with({ kind: label }),
      lag: lag.with({ kind: label }),
      duration: duration.with({ kind: label }),
    };
    this.#series.set(kind, series);
    return series;
  }
}

interface TableSample {
  readonly backlog: readonly KindBacklog[];
  readonly leases: readonly KindLeases[];
}

/** What waits and runs in the table, as of the last sample. */
class TableGauges {
  /** The database's clock minus ours. */
  clockOffsetMs = 0;
  readonly #table: Backlog;
  readonly #store: Store;
  #sample: TableSample | undefined;
  #sampledAt = Number.NEGATIVE_INFINITY;
  #sampling: Promise<void> | undefined;

  constructor(
    registry: Registry,
    private readonly kinds: KindNames,
    private readonly db: Queryable,
    schema: string,
    private readonly sampleMs: number,
  ) {
    this.#table = createBacklog(schema);
    this.#store = createStore(schema);
    const of = <Row extends { readonly kind: string }>(
      rows: () => readonly Row[] | undefined,
      read: (row: Row) => number,
      combine: (values: readonly number[]) => number,
    ) => {
      return () => byKind(rows() ?? [], (row) => this.kinds.label(row.kind), read, combine);
    };
    const backlog = () => this.#sample?.backlog;
    const leases = () => this.#sample?.leases;
    registry.gauge(
      'unbroker_jobs_due',
      'Ready jobs that are due, counted up to 1,000 for each priority.',
      of(backlog, (row) => row.due, sum),
    );
    registry.gauge(
      'unbroker_jobs_oldest_due_seconds',
      'How long the oldest due job of the kind has been due.',
      of(backlog, (row) => (row.oldestDueMs ?? 0) / 1_000, max),
    );
    registry.gauge(
      'unbroker_jobs_running',
      'Running jobs of all workers, the first 10,000.',
      of(leases, (row) => row.running, sum),
    );
    registry.gauge(
      'unbroker_leases_expired',
      'Of these, jobs whose lease has ended and was not taken back.',
      of(leases, (row) => row.expired, sum),
    );
    registry.gauge('unbroker_table_up', 'Whether the table answered when it was last asked.', () => [
      { labels: {}, value: this.#sample === undefined ? 0 : 1 },
    ]);
  }

  /** One question at a time, however many scrape; who scrapes meanwhile waits for the same answer. */
  async refresh(): Promise<void> {
    if (this.#sampling === undefined) {
      if (performance.now() - this.#sampledAt < this.sampleMs) return;
      this.#sampledAt = performance.now();
      this.#sampling = this.#ask().finally(() => {
        this.#sampling = undefined;
      });
    }
    await within(this.#sampling, MAX_SAMPLE_MS).catch(() => undefined);
  }

  async #ask(): Promise<void> {
    try {
      const sentAt = Date.now();
      const databaseNow = await this.#store.clock(this.db);
      this.clockOffsetMs = databaseNow - (sentAt + Date.now()) / 2;
      const backlog = await this.#table.backlog(this.db);
      this.#sample = { backlog, leases: await this.#table.leases(this.db) };
    } catch {
      // Old numbers would look like new ones. The worker's own events say that the database is away.
      this.#sample = undefined;
    }
  }
}

const sum = (values: readonly number[]): number => values.reduce((all, value) => all + value, 0);
const max = (values: readonly number[]): number => Math.max(...values);

function byKind<Row>(
  rows: readonly Row[],
  label: (row: Row) => string,
  read: (row: Row) => number,
  combine: (values: readonly number[]) => number,
): Sample[] {
  const groups = new Map<string, number[]>();
  for (const row of rows) {
    const kind = label(row);
    groups.set(kind, [...(groups.get(kind) ?? []), read(row)]);
  }
  return [...groups].map(([kind, values]) => ({ labels: { kind }, value: combine(values) }));
}
