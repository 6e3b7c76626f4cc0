/**
 * The process of one contender: takes commands from the bench by IPC, answers each, and tells how many jobs its handler
 * has seen. It measures its own CPU; every other figure is taken by the bench.
 */
import pg from 'pg';
import {
  BATCH,
  type Contender,
  type ContenderName,
  loadContender,
  type Payload,
  type Working,
  type WorkProfile,
} from './contender.js';

export type Command =
  | { readonly do: 'install'; readonly url: string }
  | { readonly do: 'enqueue-many'; readonly url: string; readonly jobs: number }
  | { readonly do: 'work'; readonly url: string; readonly profile: WorkProfile; readonly jobs: number }
  | { readonly do: 'stop' }
  | {
      readonly do: 'transactions';
      readonly url: string;
      readonly clients: number;
      readonly forMs: number;
      readonly job: 'none' | 'enqueue' | 'prepared';
    }
  | {
      readonly do: 'send-paced';
      readonly url: string;
      readonly perSecond: number;
      readonly jobs: number;
      /** 1, or PRIORITIES: spread over so many. */
      readonly priorities: number;
      /** Latency counts from when a job was due, not from when this process got round to it. */
      readonly lateCounts: boolean;
    };

export type Message =
  | { readonly type: 'answer'; readonly value: unknown }
  | { readonly type: 'error'; readonly message: string }
  /** Sent as soon as the expected number is reached, and every few milliseconds before. */
  | { readonly type: 'handled'; readonly count: number };

/** The first answer, unasked. */
export interface Hello {
  readonly node: string;
  /** The contender's query of that name. */
  readonly unfinished: string;
}

/** Answer to `transactions`: how many there were, and how many a second of those that count. */
export interface Transactions {
  readonly count: number;
  /** With those of the warm-up, whose CPU is measured with the others'. */
  readonly made: number;
  readonly rate: number;
}

/** Answer to `stop`. */
export interface WorkReport {
  readonly handled: number;
  readonly cpuUs: number;
  readonly rssMb: number;
  /** From sentAt to the start of the handler, of the jobs that carried sentAt. */
  readonly latenciesMs: readonly number[];
}

const REPORT_MS = 10;
const SENDERS = 8;
/** Between the first connection and the first job, so that a worker has seen the table empty. */
const WARM_UP_MS = 300;
/**
 * Of each connection, before its transactions count: Postgres plans a prepared statement anew for its first five times, and a
 * slice of half a second on new connections said 0.68 of what one of two seconds said 0.73 of.
 */
const WARM_UP_TRANSACTIONS_MS = 250;

const send = (message: Message): void => void process.send?.(message);
const now = (): number => performance.timeOrigin + performance.now();

let working: Working | undefined;
let reporter: NodeJS.Timeout | undefined;
let handled = 0;
let cpuAtStart = process.cpuUsage();
const latenciesMs: number[] = [];

/** Resolves when the worker has been started; connecting is part of what is measured. */
async function work(contender: Contender, command: Command & { do: 'work' }): Promise<void> {
  const expected = command.jobs;
  const onJob = (payload: Payload): void => {
    handled += 1;
    if (payload.sentAt !== undefined) latenciesMs.push(now() - payload.sentAt);
    if (handled === expected) send({ type: 'handled', count: handled });
  };
  reporter = setInterval(() => send({ type: 'handled', count: handled }), REPORT_MS);
  cpuAtStart = process.cpuUsage();
  working = await contender.work(command.url, command.profile, onJob);
}

async function stop(): Promise<WorkReport> {
  const { user, system } = process.cpuUsage(cpuAtStart);
  const rssMb = process.memoryUsage.rss() / 1_048_576;
  clearInterval(reporter);
  await working?.stop();
  return { handled, cpuUs: user + system, rssMb, latenciesMs };
}

/** Transactions of a caller who writes an order, with or without a job, over so many connections. */
async function transactions(
  contender: Contender,
  command: Command & { do: 'transactions' },
): Promise<Transactions> {
  const enqueuer = await contender.enqueuer(command.url);
  const clients = Array.from(
    { length: command.clients },
    () => new pg.Client({ connectionString: command.url }),
  );
  await Promise.all(clients.map((client) => client.connect()));
  const put = command.job === 'prepared' ? enqueuer.enqueuePrepared : enqueuer.enqueue;
  if (put === undefined) throw new Error('this contender has no prepared enqueue');
  const one = async (client: pg.Client, n: number): Promise<void> => {
    await client.query('begin');
    await client.query({
      name: 'order',
      text: 'insert into orders (customer, total) values ($1, $2)',
      values: [n, 100],
    });
    if (command.job !== 'none') await put(client, { n });
    await client.query('commit');
  };
  // A connection's first transactions find out and plan what later ones use: slices are short, and callers' connections are not.
  const until = async (endAt: number): Promise<number> => {
    let count = 0;
    const loop = async (client: pg.Client): Promise<void> => {
      for (; performance.now() < endAt; count += 1) await one(client, count);
    };
    await Promise.all(clients.map(loop));
    return count;
  };
  const before = await until(performance.now() + WARM_UP_TRANSACTIONS_MS);
  const startAt = performance.now();
  const count = await until(startAt + command.forMs);
  const rate = count / ((performance.now() - startAt) / 1_000);
  await Promise.all(clients.map((client) => client.end()));
  await enqueuer.close();
  return { count, made: before + count, rate };
}

/** An open loop: each job is due at its time whether or not the last one is through, and sent in its own transaction. */
async function sendPaced(contender: Contender, command: Command & { do: 'send-paced' }): Promise<void> {
  const enqueuer = await contender.enqueuer(command.url);
  const pool = new pg.Pool({ connectionString: command.url, max: SENDERS });
  const sendOne = async (payload: Payload): Promise<void> => {
    const client = await pool.connect();
    try {
      await enqueuer.enqueue(client, payload);
    } finally {
      client.release();
    }
  };
  const startAt = now() + WARM_UP_MS;
  const pending = new Set<Promise<void>>();
  for (let n = 0; n < command.jobs; n += 1) {
    const sentAt = startAt + (n * 1_000) / command.perSecond;
    const waitMs = sentAt - now();
    if (waitMs > 0) await new Promise((resolve) => setTimeout(resolve, waitMs));
    // Timers are late by up to a millisecond, which is no latency of the contender's.
    const priority = n % command.priorities;
    const sending = sendOne({ n, priority, sentAt: command.lateCounts ? sentAt : now() });
    pending.add(sending);
    void sending.finally(() => pending.delete(sending));
  }
  await Promise.all(pending);
  await pool.end();
  await enqueuer.close();
}

/** Ms for so many jobs. */
async function enqueueMany(contender: Contender, command: Command & { do: 'enqueue-many' }): Promise<number> {
  const enqueuer = await contender.enqueuer(command.url);
  const startAt = performance.now();
  for (let start = 0; start < command.jobs; start += BATCH) {
    const size = Math.min(BATCH, command.jobs - start);
    await enqueuer.enqueueMany(Array.from({ length: size }, (_, i) => ({ n: start + i })));
  }
  const tookMs = performance.now() - startAt;
  await enqueuer.close();
  return tookMs;
}

async function obey(contender: Contender, command: Command): Promise<unknown> {
  switch (command.do) {
    case 'install':
      return contender.install(command.url);
    case 'enqueue-many':
      return enqueueMany(contender, command);
    case 'work':
      return work(contender, command);
    case 'stop':
      return stop();
    case 'transactions':
      return transactions(contender, command);
    case 'send-paced':
      return sendPaced(contender, command);
  }
}

const contender = await loadContender(process.argv[2] as ContenderName);
process.on('message', async (command: Command) => {
  try {
    send({ type: 'answer', value: await obey(contender, command) });
  } catch (error) {
    send({ type: 'error', message: error instanceof Error ? (error.stack ?? error.message) : String(error) });
  }
});
process.on('disconnect', () => process.exit());
send({ type: 'answer', value: { node: process.version, unfinished: contender.unfinished } satisfies Hello });
