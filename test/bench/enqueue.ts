/**
 * What a job costs a caller's transaction: an order alone, an order with a hand-written insert into jobs, and an order
 * with each queue's own enqueue, from 1 and from 10 clients; and how many rows a second go in in bulk.
 */
import { type FreshDatabase, freshDatabase } from '../support/services.js';
import type { BenchOptions, BenchResult } from './bench.js';
import { CONTENDERS, type ContenderName } from './contender.js';
import { ContenderClient } from './contender-client.js';
import type { Transactions } from './contender-process.js';
import { Meter } from './meter.js';
import { median, pairedRatio, range, round } from './rounds.js';
import { say } from './say.js';
import { table } from './table.js';

/**
 * `none`: the order without a job. `bare`: the insert that a caller would write by hand, prepared. `prepared`: unbroker's
 * enqueue with its statement prepared, too.
 */
type Case = 'none' | 'bare' | 'unbroker' | 'prepared' | 'graphile' | 'pgboss';

const CONTENDER_OF: Record<Case, ContenderName> = {
  none: 'limit',
  bare: 'limit',
  unbroker: 'unbroker',
  prepared: 'unbroker',
  graphile: 'graphile',
  pgboss: 'pgboss',
};
const CLIENTS = [1, 10];
/** Of each case, for each number of clients, in a round. */
const SLICES = 6;
const SLICE_MS = 750;

interface Figure {
  /** Transactions a second, from 1 and from 10 clients. */
  readonly perSecond: readonly number[];
  /** Server CPU of a transaction, the same; NaN where its processes cannot be seen. */
  readonly postgresUs: readonly number[];
  /** Null for `none` and `prepared`. */
  readonly rowsPerSecond: number | null;
}

export async function benchEnqueue(options: BenchOptions): Promise<BenchResult> {
  const chosen = (Object.keys(CONTENDER_OF) as Case[]).filter((name) =>
    options.contenders.includes(CONTENDER_OF[name]),
  );
  const figures = Object.fromEntries(chosen.map((name) => [name, []])) as unknown as Record<Case, Figure[]>;
  for (let at = 0; at < options.rounds; at += 1) {
    for (const [name, figure] of await measure(at % 2 === 0 ? chosen : [...chosen].reverse(), options)) {
      const [one = 0, ten = 0] = figure.perSecond;
      say(`round ${at + 1} of ${options.rounds}: ${name} ${round(one)} tx/s, ${round(ten)} from 10 clients`);
      figures[name].push(figure);
    }
  }
  const rates = (name: Case, clients: number): number[] =>
    (figures[name] ?? []).map(({ perSecond }) => perSecond[CLIENTS.indexOf(clients)] ?? Number.NaN);
  const cpu = (name: Case, clients: number): number[] =>
    (figures[name] ?? []).map(({ postgresUs }) => postgresUs[CLIENTS.indexOf(clients)] ?? Number.NaN);
  const bulk = (name: Case): number[] =>
    (figures[name] ?? []).flatMap(({ rowsPerSecond }) => (rowsPerSecond === null ? [] : [rowsPerSecond]));
  const json: Record<string, unknown> = {};
  for (const name of chosen) {
    for (const clients of CLIENTS) {
      json[`${name}${clients}`] = round(median(rates(name, clients)));
      json[`${name}${clients}PostgresUs`] = round(median(cpu(name, clients)));
      if (name !== 'none')
        json[`${name}${clients}ToNone`] = pairedRatio(rates(name, clients), rates('none', clients));
    }
    if (name !== 'none' && name !== 'prepared') json[`${name}Bulk`] = round(median(bulk(name)));
  }
  // Time, so the other way round.
  for (const clients of CLIENTS) {
    json[`timeToBare${clients}`] = pairedRatio(rates('bare', clients), rates('unbroker', clients));
    json[`preparedTimeToBare${clients}`] = pairedRatio(rates('bare', clients), rates('prepared', clients));
  }
  json['bulkTimeToBare'] = pairedRatio(bulk('bare'), bulk('unbroker'));
  const rows = chosen.map((name) => [
    name,
    ...CLIENTS.flatMap((clients) => [
      range(rates(name, clients)),
      pairedRatio(rates(name, clients), rates('none', clients))?.toFixed(2) ?? '–',
      range(cpu(name, clients)),
    ]),
    range(bulk(name)),
  ]);
  return {
    json: { ...json, contenders: CONTENDERS.filter((name) => options.contenders.includes(name)) },
    text: table(
      [
        ...['', 'tx/s, 1 client', '÷ none', 'Postgres µs/tx'],
        ...['tx/s, 10 clients', '÷ none', 'Postgres µs/tx', 'bulk rows/s'],
      ],
      rows,
    ),
  };
}

/** One case with what it needs, open for a round. */
interface Open {
  readonly name: Case;
  readonly database: FreshDatabase;
  readonly contender: ContenderClient;
  readonly meter: Meter;
}

/** What some slices came to. */
interface Sum {
  count: number;
  /** With those that warmed connections up. */
  made: number;
  seconds: number;
  cpuUs: number;
}

/**
 * One round of all cases, in slices of less than a second, back and forth: a shared machine's speed changes within some seconds, and
 * with three seconds for each case in turn the ratio of one case to another varied by a third from round to round.
 */
async function measure(names: readonly Case[], options: BenchOptions): Promise<(readonly [Case, Figure])[]> {
  const opened: Open[] = [];
  try {
    for (const name of names) opened.push(await open(name, options));
    const sums: Sum[][] = [];
    for (const clients of CLIENTS) sums.push(await measureSlices(opened, clients, options));
    const figures: (readonly [Case, Figure])[] = [];
    for (const [i, one] of opened.entries()) {
      const mine = sums.map((each) => each[i] as Sum);
      const perSecond = mine.map(({ count, seconds }) => count / seconds);
      const postgresUs = mine.map(({ made, cpuUs }) => cpuUs / made);
      figures.push([one.name, { perSecond, postgresUs, rowsPerSecond: await measureBulk(one, options) }]);
    }
    return figures;
  } finally {
    for (const { contender, database } of opened) {
      await contender.close();
      await database.close();
    }
  }
}

async function open(name: Case, { server, node }: BenchOptions): Promise<Open> {
  const database = await freshDatabase(server);
  const contender = await ContenderClient.start(CONTENDER_OF[name], node);
  try {
    await contender.ask({ do: 'install', url: database.url });
    await database.pool.query(
      'create table orders (id bigint generated always as identity primary key, customer integer, total integer)',
    );
    return { name, database, contender, meter: await Meter.open(database.pool) };
  } catch (error) {
    await contender.close();
    await database.close();
    throw error;
  }
}

async function measureSlices(
  opened: readonly Open[],
  clients: number,
  { quick }: BenchOptions,
): Promise<Sum[]> {
  const sums = opened.map((): Sum => ({ count: 0, made: 0, seconds: 0, cpuUs: 0 }));
  await opened[0]?.database.pool.query('checkpoint');
  for (let slice = 0; slice < (quick ? 2 : SLICES); slice += 1) {
    const order = [...opened.entries()];
    for (const [i, { name, contender, database, meter }] of slice % 2 === 0 ? order : order.reverse()) {
      const job = name === 'none' || name === 'prepared' ? name : 'enqueue';
      await meter.start();
      const { rate, count, made } = await contender.ask<Transactions>({
        ...{ do: 'transactions', url: database.url, clients, forMs: SLICE_MS, job },
      });
      const sum = sums[i] as Sum;
      sum.cpuUs += (await meter.stop()).cpuUs ?? Number.NaN;
      sum.count += count;
      sum.made += made;
      sum.seconds += count / rate;
    }
  }
  return sums;
}

/** Rows a second; null for what has none. */
async function measureBulk(
  { name, database, contender }: Open,
  { quick }: BenchOptions,
): Promise<number | null> {
  if (name === 'none' || name === 'prepared') return null;
  const jobs = quick ? 20_000 : 100_000;
  await database.pool.query('checkpoint');
  const tookMs = await contender.ask<number>({ do: 'enqueue-many', url: database.url, jobs });
  return jobs / (tookMs / 1_000);
}
