/**
 * The oracle: a fixture runs on real Postgres and RabbitMQ, before and after its rewrite, and is killed after each of
 * its statements in turn. Before, the row and the message disagree somewhere; after, the row and the job never do.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type ConfirmChannel, connect } from 'amqplib';
import { build } from 'esbuild';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { applyPlan } from '../../codemods/index.js';
import { migrate } from '../../src/migrate.js';
import { startProcess } from '../support/processes.js';
import { type FreshDatabase, type FreshVhost, freshDatabase, freshVhost } from '../support/services.js';
import { until } from '../support/until.js';
import { openFixture, REPOSITORY, type Workspace } from './fixture.js';

/** More statements than any fixture has: a run that never ends without a kill is a bug of the runner. */
const MAX_STATEMENTS = 12;

let database: FreshDatabase;
let vhost: FreshVhost;
let broker: Awaited<ReturnType<typeof connect>>;
let channel: ConfirmChannel;

beforeAll(async () => {
  [database, vhost] = await Promise.all([freshDatabase(), freshVhost()]);
  await migrate(database.pool);
  await database.pool.query('create table orders (id serial primary key, customer text not null)');
  await database.pool.query('create table order_lines (order_id integer not null, sku text not null)');
  broker = await connect(vhost.url);
  channel = await broker.createConfirmChannel();
  await channel.assertExchange('shop', 'topic');
  await channel.assertQueue('placed');
  await channel.bindQueue('placed', 'shop', 'order.placed');
});

afterAll(async () => {
  await broker?.close();
  await Promise.all([database?.close(), vhost?.close()]);
});

/** What one killed run left behind. */
interface Books {
  readonly killedAfter: number | null;
  readonly rows: number;
  readonly lines: number;
  readonly messages: number;
  readonly jobs: number;
}

describe.each(['kill-point-transaction', 'kill-point-autocommit', 'kill-point-ghost'])('%s', (name) => {
  let workspace: Workspace;

  beforeAll(async () => {
    workspace = openFixture(name);
    await installEnqueue(workspace.folder);
  });

  afterAll(() => workspace?.remove());

  test('before: the row and the message disagree somewhere', { timeout: 120_000 }, async () => {
    const books = await killedEverywhere(workspace.folder, `${name} before`);
    expect(books.at(-1)).toMatchObject({ killedAfter: null, rows: 1, messages: 1, jobs: 0 });
    expect(books.filter((b) => b.rows !== b.messages)).not.toEqual([]);
  });

  test('after: the row and the job agree wherever it dies', { timeout: 120_000 }, async () => {
    applyPlan(workspace.plan(), { allowDirty: true });
    const books = await killedEverywhere(workspace.folder, `${name} after`);
    expect(books.at(-1)).toMatchObject({ killedAfter: null, rows: 1, jobs: 1, messages: 0 });
    expect(books.length).toBeGreaterThan(4);
    expect(books.filter((b) => b.rows !== b.jobs || b.lines !== b.rows || b.messages !== 0)).toEqual([]);
  });
});

/** Runs until one run is not killed: after statement 1, after statement 2, and so on. */
async function killedEverywhere(folder: string, customer: string): Promise<Books[]> {
  const books: Books[] = [];
  for (let n = 1; n <= MAX_STATEMENTS; n++) {
    const name = `${customer} ${n}`;
    const run = startProcess(process.execPath, [join(import.meta.dirname, 'oracle-runner.mjs')], {
      env: {
        FOLDER: folder,
        DATABASE_URL: database.url,
        AMQP_URL: vhost.url,
        KILL_AFTER: String(n),
        CUSTOMER: name,
      },
    });
    const { code, signal } = await run.waitForExit();
    if (code !== 0 && signal !== 'SIGKILL') throw new Error(`the runner failed: ${run.stderr}`);
    books.push({ killedAfter: signal === null ? null : n, ...(await leftBehind(name)) });
    if (signal === null) return books;
  }
  throw new Error('no run ended by itself');
}

async function leftBehind(customer: string): Promise<Omit<Books, 'killedAfter'>> {
  await noOtherSession();
  const count = async (sql: string): Promise<number> => {
    const { rows } = await database.pool.query<{ n: number }>(sql, [customer]);
    return rows[0]?.n ?? 0;
  };
  let messages = 0;
  for (
    let message = await channel.get('placed', { noAck: true });
    message;
    message = await channel.get('placed', { noAck: true })
  ) {
    if ((JSON.parse(message.content.toString()) as { customer: string }).customer === customer) messages++;
  }
  return {
    rows: await count('select count(*)::int n from orders where customer = $1'),
    lines: await count(
      'select count(*)::int n from order_lines join orders on id = order_id where customer = $1',
    ),
    jobs: await count(
      `select count(*)::int n from unbroker.jobs where kind = 'order.placed' and payload->>'customer' = $1`,
    ),
    messages,
  };
}

/** The server notices a dead client a moment later; until then its transaction is neither here nor there. */
async function noOtherSession(): Promise<void> {
  await until('the killed client is gone', async () => {
    const { rows } = await database.pool.query<{ n: number }>(
      `select count(*)::int n from pg_stat_activity
       where datname = current_database() and application_name = '' and backend_type = 'client backend' and state <> 'idle' and pid <> pg_backend_pid()`,
    );
    return rows[0]?.n === 0;
  });
}

/** `unbroker/enqueue` as a caller has it installed. */
async function installEnqueue(folder: string): Promise<void> {
  const target = join(folder, 'node_modules', 'unbroker');
  mkdirSync(target, { recursive: true });
  writeFileSync(
    join(target, 'package.json'),
    JSON.stringify({ name: 'unbroker', exports: { './enqueue': './enqueue.mjs' } }),
  );
  await build({
    entryPoints: [join(REPOSITORY, 'src', 'enqueue.ts')],
    outfile: join(target, 'enqueue.mjs'),
    bundle: true,
    platform: 'node',
    format: 'esm',
  });
}
