/**
 * What a worker says of its options when it starts: they are taken, and are mostly not what was meant. What cannot be meant is
 * refused (worker-options.ts). Pure: it opens no connection and writes no line.
 */
import { suggestion } from '../check.js';
import type { EnqueueOptions, Queryable } from './job.js';
import { KIND_OPTIONS, WORKER_OPTIONS } from './worker-options.js';

/** A line of the log. */
export interface Advice {
  readonly level: 'warn' | 'info';
  readonly fields: object;
  readonly text: string;
}

/** One claims, one writes what ended, one is left for leases, ordering keys and upkeep. */
export const MIN_CONNECTIONS = 3;

export function adviceOn(
  db: Queryable,
  handlers: ReadonlyMap<string, object>,
  limits: ReadonlyMap<string, unknown>,
  concurrency: number,
): Advice[] {
  return [
    ...adviceOnConnections(db),
    ...[...handlers].flatMap(([kind, options]) => [
      ...adviceOnKind(kind, options),
      ...adviceOnSlots(kind, options, concurrency),
    ]),
    ...adviceOnLimits([...handlers.keys()], [...limits.keys()]),
  ];
}

/** Known of pg's pools and clients; whatever else has `query` is not asked. */
function adviceOnConnections(db: Queryable): Advice[] {
  const { connect, options } = db as { connect?: unknown; options?: { max?: unknown } };
  if (typeof connect !== 'function') return [];
  const wait = 'claims, ends, leases and upkeep wait for each other';
  const give = `Give this worker a pg.Pool of its own with max: ${MIN_CONNECTIONS} or more`;
  // Only a pool counts its clients, and only a client knows its server's process.
  if (!('totalCount' in db))
    return 'processID' in db
      ? [warning({}, `db is one connection: ${wait}, and once it is lost this worker works no more. ${give}`)]
      : [];
  const max = options?.max;
  if (typeof max !== 'number' || max >= MIN_CONNECTIONS) return [];
  return [warning({ max }, `db is a pool with too few connections: ${wait}. ${give}`)];
}

/** Besides `retryPolicy`, which a kind has, too. */
const JOB_OPTIONS = [
  ...(['priority', 'runAt', 'delayMs', 'maxAttempts'] as const),
  ...(['dedupeKey', 'orderingKey', 'headers', 'source'] as const),
] satisfies (keyof EnqueueOptions)[];

const ofAJob = (name: string): string => `Give each job its ${name}: enqueue(tx, kind, payload, { ${name} })`;
const OF_A_LIMIT =
  'A limit across all workers is given to the worker: kinds: { <kind>: { maxRunning, rate } }';
const OF_THE_RETRIES = 'When it is tried again is its retryPolicy';
const OF_THE_CODE =
  'A handler has no time limit: bound what it awaits, as with AbortSignal.timeout(ms), and end at its signal';

/** What other libraries call it, in lower case, and what does that here. */
const ELSEWHERE: ReadonlyMap<string, string> = new Map(
  [
    { names: 'retries maxretries retrylimit attempts tries maxtries', place: ofAJob('maxAttempts') },
    { names: 'timeout timeoutms maxruntime maxdurationms ttl expirein', place: OF_THE_CODE },
    { names: 'backoff backoffms retrydelay retrydelayms retrybackoff', place: OF_THE_RETRIES },
    { names: 'maxrunning rate ratelimit limiter limit', place: OF_A_LIMIT },
    { names: 'unique uniquekey singletonkey jobkey', place: ofAJob('dedupeKey') },
    { names: 'delay', place: ofAJob('delayMs') },
  ].flatMap(({ names, place }) => names.split(' ').map((name) => [name, place] as const)),
);

/**
 * What is nearly an option was refused. The rest may be the caller's own, for its `handle`, so it is a warning only where another
 * place knows the name; of what else is a mere value the log says that nothing here looks at it.
 */
function adviceOnKind(kind: string, options: object): Advice[] {
  return Object.keys(options).flatMap((option): Advice[] => {
    // A getter of the caller's is not called.
    const value: unknown = Object.getOwnPropertyDescriptor(options, option)?.value;
    if (KIND_OPTIONS.includes(option as never) || value === undefined) return [];
    const fields = { kind, option: option.slice(0, 60) };
    const text = 'a kind in handlers has what is no option of one and is passed over';
    const place = placeOfOption(option);
    if (place !== undefined) return [warning(fields, `${text}. ${place}`)];
    if (typeof value === 'object' || typeof value === 'function') return [];
    return [{ level: 'info', fields, text: `${text}. Options are ${KIND_OPTIONS.join(', ')}` }];
  });
}

/** Ten is what a worker has by default, which is where a kind's `concurrency: 50` ended without a word. */
function adviceOnSlots(kind: string, { concurrency: own }: { concurrency?: unknown }, all: number): Advice[] {
  if (typeof own !== 'number' || own <= all) return [];
  const text = `a kind's concurrency is more than its worker's (${all}), which bounds all kinds together`;
  return [warning({ kind, concurrency: own }, `${text}. Give the worker concurrency: ${own} or more`)];
}

function placeOfOption(option: string): string | undefined {
  const other = ELSEWHERE.get(option.toLowerCase());
  if (other !== undefined) return other;
  const job = nearest(option, JOB_OPTIONS);
  if (job !== undefined) return ofAJob(job);
  const worker = nearest(option, WORKER_OPTIONS);
  return worker && `Give ${worker} to the worker, beside handlers`;
}

/** The name itself, or the one that was probably meant. */
function nearest(name: string, names: readonly string[]): string | undefined {
  return names.includes(name) ? name : /mean (\w+)\?$/.exec(suggestion(name, names))?.[1];
}

/** Another worker may serve the kind, so it is a warning only where a handler without a limit has nearly that name. */
function adviceOnLimits(handlers: readonly string[], limits: readonly string[]): Advice[] {
  const unlimited = handlers.filter((kind) => !limits.includes(kind));
  const passedOver = limits.filter((kind) => !handlers.includes(kind));
  return passedOver.map((kind) => {
    const near = suggestion(kind, unlimited);
    const text = `kinds has limits of a kind without a handler here, which this worker passes over${near}`;
    return near === '' ? { level: 'info', fields: { kind }, text } : warning({ kind }, text);
  });
}

function warning(fields: object, text: string): Advice {
  return { level: 'warn', fields, text };
}
