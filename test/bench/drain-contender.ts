/**
 * One way of moving a full queue, in a process of its own, so that its memory is its own: our drain; a bare loop of
 * consume, insert and ack into the same tables without ledger, mapping or fences; consuming alone; inserting alone.
 * Prints one JSON line.
 */
import amqp from 'amqplib';
import pg from 'pg';
import type * as Drain from '../../adapters/rabbitmq/drain.js';
import type * as DrainConfig from '../../adapters/rabbitmq/drain-config.js';
import type * as Stores from '../../src/jobs/store.js';
import type * as Logs from '../../src/log.js';

const { MODE = '', AMQP_URL = '', DATABASE_URL = '', MESSAGES = '' } = process.env;
const MESSAGES_WANTED = Number(MESSAGES);
const QUEUE = 'bench';
const BATCH = 1_000;
const PREFETCH = 3 * BATCH;

interface Report {
  readonly perSecond: number;
  readonly rssMb: number;
  /** CPU of this process from the first message to the last. */
  readonly nodeUsPerMessage: number;
  /** Rate of the last tenth by that of the first; null when not watched. */
  readonly lastByFirst: number | null;
  /** Tenth by tenth; empty when not watched. */
  readonly tenths: readonly Tenth[];
}

interface Tenth {
  readonly perSecond: number;
  /** At its end. */
  readonly rssMb: number;
}

type Measured = Omit<Report, 'rssMb'>;

/** Time and CPU from the first message to the last. */
class Stretch {
  #startAt = 0;
  #endAt = 0;
  #before: NodeJS.CpuUsage | undefined;
  #used: NodeJS.CpuUsage = { user: 0, system: 0 };

  /** Only the first time counts. */
  start(): void {
    if (this.#before !== undefined) return;
    this.#startAt = performance.now();
    this.#before = process.cpuUsage();
  }

  /** Only the last time counts. */
  end(): void {
    this.#endAt = performance.now();
    this.#used = process.cpuUsage(this.#before);
  }

  measured(): Measured {
    return {
      perSecond: MESSAGES_WANTED / ((this.#endAt - this.#startAt) / 1_000),
      nodeUsPerMessage: Math.round((10 * (this.#used.user + this.#used.system)) / MESSAGES_WANTED) / 10,
      ...{ lastByFirst: null, tenths: [] },
    };
  }
}

let rssMb = 0;
const rssNow = (): number => Math.round(process.memoryUsage.rss() / 1_048_576);
const watch = setInterval(() => {
  rssMb = Math.max(rssMb, rssNow());
}, 50);

/** From dist, as a user gets it: the loader of TypeScript adds calls to every closure. */
const built = (path: string): Promise<unknown> => import(new URL(`../../dist/${path}`, import.meta.url).href);

async function unbroker(): Promise<Measured> {
  const { drainGroup } = (await built('adapters/rabbitmq/drain.js')) as typeof Drain;
  const { compileRules } = (await built('adapters/rabbitmq/drain-config.js')) as typeof DrainConfig;
  const { createStore } = (await built('src/jobs/store.js')) as typeof Stores;
  const { SILENT } = (await built('src/log.js')) as typeof Logs;
  const pool = new pg.Pool({ connectionString: DATABASE_URL, max: 3 });
  const stretch = new Stretch();
  const marks: { readonly at: number; readonly taken: number; readonly rssMb: number }[] = [];
  const result = await drainGroup({
    ...{ amqpUrl: AMQP_URL, pool, store: createStore(), log: SILENT },
    group: {
      name: QUEUE,
      queues: [{ name: QUEUE, role: 'main', ttlMs: null, feeders: [], singleActive: false }],
    },
    rules: compileRules([{ match: { queue: '*' }, kind: 'bench' }]),
    onStep: (step) => {
      if (step === 'prepared') stretch.start();
      if (step === 'fenced') stretch.end();
    },
    onProgress: ({ taken }) => marks.push({ at: performance.now(), taken, rssMb: rssNow() }),
  });
  await pool.end();
  if (!result.books.balanced || result.books.rows !== MESSAGES_WANTED)
    throw new Error(JSON.stringify(result.books));
  const rate = (from: number, to: number): number => {
    const a = marks.find(({ taken }) => taken >= from * MESSAGES_WANTED);
    const b = marks.find(({ taken }) => taken >= to * MESSAGES_WANTED);
    return a && b ? (b.taken - a.taken) / (b.at - a.at) : Number.NaN;
  };
  const tenths = Array.from({ length: 10 }, (_, tenth) => ({
    perSecond: Math.round(1_000 * rate(tenth / 10, (tenth + 1) / 10)),
    rssMb: marks.find(({ taken }) => taken >= ((tenth + 1) / 10) * MESSAGES_WANTED)?.rssMb ?? 0,
  }));
  return { ...stretch.measured(), lastByFirst: rate(0.9, 1) / rate(0.02, 0.12), tenths };
}

interface Taken {
  readonly tag: number;
  readonly body: Buffer;
  readonly headers: unknown;
}

/** Consumes with batches acked at once; `store` is awaited before the ack, one at a time. */
async function consume(store: ((batch: readonly Taken[]) => Promise<void>) | null): Promise<Measured> {
  const connection = await amqp.connect(AMQP_URL, { noDelay: true });
  const channel = await connection.createChannel();
  await channel.prefetch(PREFETCH);
  const stretch = new Stretch();
  let count = 0;
  let buffer: Taken[] = [];
  let storing = Promise.resolve();
  await new Promise<void>((resolve, reject) => {
    const flush = (batch: readonly Taken[], last: boolean): void => {
      storing = storing
        .then(() => store?.(batch))
        .then(() => {
          channel.ack({ fields: { deliveryTag: batch.at(-1)?.tag } } as amqp.Message, true);
          if (last) resolve();
        });
      storing.catch(reject);
    };
    void channel.consume(QUEUE, (message) => {
      if (message === null) return reject(new Error('cancelled'));
      stretch.start();
      count += 1;
      buffer.push({
        tag: message.fields.deliveryTag,
        body: message.content,
        headers: message.properties.headers,
      });
      const last = count === MESSAGES_WANTED;
      if (buffer.length < BATCH && !last) return;
      flush(buffer, last);
      buffer = [];
    });
  });
  await channel.checkQueue(QUEUE);
  stretch.end();
  await connection.close();
  return stretch.measured();
}

/** Multi-row insert of jobs and raw bytes, the bytes as one value each batch: the fastest form that we know. */
async function inserter() {
  const client = new pg.Client({ connectionString: DATABASE_URL });
  await client.connect();
  await client.query('create table raw (job bigint not null, headers text not null, body bytea not null)');
  const text = `
    with input as materialized (
      select nextval((select pg_get_serial_sequence('unbroker.jobs', 'id')::regclass)) as id, input.*,
             substring($4::bytea from start for length) as body
      from unnest($1::text[], $2::integer[], $3::integer[])
           with ordinality as input (headers, start, length, position)
      order by position
    ),
    jobs as (
      insert into unbroker.jobs (id, kind, payload, headers, source)
      overriding system value
      select id, 'bench', convert_from(body, 'UTF8')::jsonb, headers::jsonb, 'bench' from input
    )
    insert into raw (job, headers, body)
    select id, headers, body from input`;
  return {
    async store(batch: readonly Pick<Taken, 'body' | 'headers'>[]) {
      const headers = batch.map((each) => JSON.stringify(each.headers));
      let next = 1;
      const starts = batch.map(({ body }) => {
        next += body.length;
        return next - body.length;
      });
      const lengths = batch.map(({ body }) => body.length);
      const bytes = Buffer.concat(batch.map(({ body }) => body));
      await client.query(text, [headers, starts, lengths, bytes]);
    },
    end: () => client.end(),
  };
}

async function pipeline(): Promise<Measured> {
  const { store, end } = await inserter();
  const result = await consume(store);
  await end();
  return result;
}

async function insert(): Promise<Measured> {
  const { store, end } = await inserter();
  const stretch = new Stretch();
  stretch.start();
  for (let from = 0; from < MESSAGES_WANTED; from += BATCH) {
    await store(Array.from({ length: BATCH }, (_, index) => benchMessage(from + index)));
  }
  stretch.end();
  await end();
  return stretch.measured();
}

/** About 1 KB of JSON, a message id and two headers. */
export function benchMessage(index: number): {
  body: Buffer;
  headers: Record<string, unknown>;
  messageId: string;
} {
  const body = {
    to: `customer-${index}@example.org`,
    template: 'order-receipt',
    data: {
      order: index,
      lines: Array.from({ length: 12 }, (_, line) => ({
        sku: `sku-${index}-${line}`,
        quantity: 2,
        price: 12.5,
      })),
    },
    note: 'x'.repeat(280),
  };
  return {
    body: Buffer.from(JSON.stringify(body)),
    headers: { 'x-trace': `trace-${index}`, 'x-tenant': 7 },
    messageId: `order-${index}-receipt`,
  };
}

const modes: Readonly<Record<string, () => Promise<Measured>>> = {
  unbroker,
  pipeline,
  consume: () => consume(null),
  insert,
};
const mode = modes[MODE];
if (mode !== undefined) {
  const result = await mode();
  clearInterval(watch);
  const report: Report = { ...result, rssMb };
  process.stdout.write(`${JSON.stringify(report)}\n`);
} else clearInterval(watch);
