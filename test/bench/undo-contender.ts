/**
 * One way of giving a drained queue back, in a process of its own: our undo; the same with one page on its way at a time;
 * a bare loop that reads the ledger, publishes with confirms and marks, without leases, moves or counts. Prints one JSON line.
 */
import amqp from 'amqplib';
import pg from 'pg';
import type * as Undo from '../../adapters/rabbitmq/undo.js';
import type * as Logs from '../../src/log.js';

const { MODE = '', AMQP_URL = '', DATABASE_URL = '', MESSAGES = '' } = process.env;
const WANTED = Number(MESSAGES);
const QUEUE = 'bench';
const PAGE = 500;
const WINDOW = 4_000;

/** From dist, as a user gets it: the loader of TypeScript adds calls to every closure. */
const built = (path: string): Promise<unknown> => import(new URL(`../../dist/${path}`, import.meta.url).href);

/** First message taken to last one marked, in ms. */
async function undo(more: Partial<Undo.UndoOptions>): Promise<number> {
  const { undoGroup } = (await built('adapters/rabbitmq/undo.js')) as typeof Undo;
  const { SILENT } = (await built('src/log.js')) as typeof Logs;
  const pool = new pg.Pool({ connectionString: DATABASE_URL, max: 4 });
  let startedAt = 0;
  let endedAt = 0;
  const { books } = await undoGroup({
    ...{ amqpUrl: AMQP_URL, pool, schema: 'unbroker', group: QUEUE, log: SILENT, ...more },
    onStep: (step) => {
      if (step === 'claimed' && startedAt === 0) startedAt = performance.now();
      if (step === 'marked') endedAt = performance.now();
    },
  });
  await pool.end();
  if (!books.balanced || books.moved !== WANTED) throw new Error(JSON.stringify(books));
  return endedAt - startedAt;
}

async function bare(): Promise<number> {
  const pool = new pg.Pool({ connectionString: DATABASE_URL, max: 2 });
  const connection = await amqp.connect(AMQP_URL, { noDelay: true });
  const channel = await connection.createConfirmChannel();
  const startedAt = performance.now();
  let waiting: Promise<unknown>[] = [];
  const { rows: batches } = await pool.query<{ id: string }>(
    'select id::text from unbroker.drain_batches order by id',
  );
  for (const { id } of batches) {
    for (let from = 0; ; from += PAGE) {
      const { rows } = await pool.query<{ job: string; body: Buffer }>(
        `select job::text, properties, body from unbroker.drain_ledger
         where batch = $1 and position > $2 and position <= $2 + ${PAGE} order by position`,
        [id, from],
      );
      if (rows.length === 0) break;
      const confirmed = rows.map(
        ({ body }) =>
          new Promise<void>((resolve, reject) => {
            channel.publish('', QUEUE, body, { persistent: true }, (error) =>
              error ? reject(error) : resolve(),
            );
          }),
      );
      const jobs = rows.map(({ job }) => job);
      const marked = Promise.all(confirmed).then(() =>
        pool.query(
          `update unbroker.jobs set state = 'cancelled', finished_at = now() where id = any ($1::bigint[])`,
          [jobs],
        ),
      );
      waiting.push(marked);
      if (waiting.length > WINDOW / PAGE) await waiting[waiting.length - 1 - WINDOW / PAGE];
    }
  }
  await Promise.all(waiting);
  waiting = [];
  const tookMs = performance.now() - startedAt;
  await Promise.all([pool.end(), connection.close()]);
  return tookMs;
}

const modes: Readonly<Record<string, () => Promise<number>>> = {
  undo: () => undo({}),
  'a page at a time': () => undo({ maxOnTheWay: PAGE }),
  bare,
};
const mode = modes[MODE];
if (mode === undefined) throw new Error(`no mode ${MODE}`);
const before = process.cpuUsage();
const tookMs = await mode();
const { user, system } = process.cpuUsage(before);
const report = {
  perSecond: WANTED / (tookMs / 1_000),
  nodeUsPerMessage: Math.round((user + system) / WANTED),
  rssMb: Math.round(process.resourceUsage().maxRSS / 1_024),
};
process.stdout.write(`${JSON.stringify(report)}\n`);
