/**
 * What a job costs a caller's transaction: an order alone, an order with a hand-written insert into jobs, and an order
 * with each queue's own enqueue, from 1 and from 10 clients; and how many rows a second go in in bulk.
 */
import { freshDatabase } from '../support/services.js';
import type { BenchOptions, BenchResult } from './bench.js';
import { CONTENDERS, type ContenderName } from './contender.js';
import { ContenderClient } from './contender-client.js';
import type { Transactions } from './contender-process.js';
import { Meter } from './meter.js';
import { interleave, median, pairedRatio, range, round } from './rounds.js';
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
  const figures = await interleave(chosen, options.rounds, async (name, at) => {
    const figure = await measure(name, options);
    const [one = 0, ten = 0] = figure.perSecond;
    say(`round ${at + 1} of ${options.rounds}: ${name} ${round(one)} tx/s, ${round(ten)} from 10 clients`);
    return figure;
  });
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

async function measure(name: Case, { server, node, quick }: BenchOptions): Promise<Figure> {
  const database = await freshDatabase(server);
  const { url, pool } = database;
  const contender = await ContenderClient.start(CONTENDER_OF[name], node);
  try {
    await contender.ask({ do: 'install', url });
    await pool.query(
      'create table orders (id bigint generated always as identity primary key, customer integer, total integer)',
    );
    const perSecond: number[] = [];
    const postgresUs: number[] = [];
    const meter = await Meter.open(pool);
    for (const clients of CLIENTS) {
      await pool.query('checkpoint');
      const forMs = quick ? 500 : 3_000;
      await meter.start();
      const job = name === 'none' || name === 'prepared' ? name : 'enqueue';
      const { rate, count } = await contender.ask<Transactions>({
        do: 'transactions',
        url,
        clients,
        forMs,
        job,
      });
      perSecond.push(rate);
      postgresUs.push(((await meter.stop()).cpuUs ?? Number.NaN) / count);
    }
    if (name === 'none' || name === 'prepared') return { perSecond, postgresUs, rowsPerSecond: null };
    const jobs = quick ? 20_000 : 100_000;
    await pool.query('checkpoint');
    const tookMs = await contender.ask<number>({ do: 'enqueue-many', url, jobs });
    return { perSecond, postgresUs, rowsPerSecond: jobs / (tookMs / 1_000) };
  } finally {
    await contender.close();
    await database.close();
  }
}
