/**
 * Kill points of clients and ORMs: a function that writes and publishes runs on real Postgres and RabbitMQ, before and
 * after its rewrite, and dies at each answer in turn. Before, the row and the message disagree somewhere; after, the
 * row and the job never do, nor when the commit is refused. The folders under kill-points/ are one library each, their functions one shape each.
 */
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { type ConfirmChannel, connect } from 'amqplib';
import { applyPlan, makePlan } from '../../codemods/index.js';
import { migrate } from '../../src/migrate.js';
import { type StartedProcess, startProcess } from '../support/processes.js';
import {
  type FreshDatabase,
  type FreshVhost,
  freshDatabase,
  freshVhost,
  type PostgresServer,
  type RabbitServer,
} from '../support/services.js';
import { until } from '../support/until.js';
import { installPrismaClient, installUnbroker } from './installed.js';

const HERE = import.meta.dirname;
const REPOSITORY = join(HERE, '..', '..');
const FOLDERS = join(HERE, 'kill-points');
/** More answers than any function waits for: a run that never ends without a kill is a bug of the runner. */
const MAX_ANSWERS = 16;

/** What a folder's client or ORM consists of, where that is not one package of its name; `thread-` and `down-` in front change nothing. */
const PACKAGES: Readonly<Record<string, readonly string[]>> = {
  pg: [],
  prisma: ['@prisma/adapter-pg'],
  drizzle: ['drizzle-orm'],
  objection: ['objection', 'knex'],
  mikroorm: ['@mikro-orm/core', '@mikro-orm/knex', '@mikro-orm/postgresql'],
  'postgres-js': ['postgres'],
};

/** What one killed run left behind. */
export interface Books {
  readonly killedAt: number | null;
  readonly rows: number;
  /** Those of no order are counted with the run that left them. */
  readonly lines: number;
  readonly messages: number;
  readonly jobs: number;
}

export interface World {
  readonly database: FreshDatabase;
  readonly vhost: FreshVhost;
  readonly channel: ConfirmChannel;
  close(): Promise<void>;
}

/** The rows of some customers are taken, and refused when they are committed. */
const REFUSAL = `
  create function refuse() returns trigger language plpgsql as $$ begin raise exception 'refused at commit'; end $$;
  create constraint trigger refused after insert on orders deferrable initially deferred
    for each row when (new.customer like 'refused %') execute function refuse()`;

/** Without servers of its own it takes those of the test run. */
export async function openWorld(postgres?: PostgresServer, rabbit?: RabbitServer): Promise<World> {
  const [database, vhost] = await Promise.all([freshDatabase(postgres), freshVhost(rabbit)]);
  await migrate(database.pool);
  await database.pool.query('create table orders (id serial primary key, customer text not null)');
  await database.pool.query('create table order_lines (order_id integer not null, sku text not null)');
  await database.pool.query(REFUSAL);
  const broker = await connect(vhost.url);
  broker.on('error', () => {});
  const channel = await broker.createConfirmChannel();
  channel.on('error', () => {});
  await channel.assertExchange('shop', 'topic');
  await channel.assertQueue('placed');
  await channel.bindQueue('placed', 'shop', 'order.placed');
  return {
    database,
    vhost,
    channel,
    close: async () => {
      await broker.close();
      await Promise.all([database.close(), vhost.close()]);
    },
  };
}

export function libraries(): string[] {
  return readdirSync(FOLDERS, { withFileTypes: true })
    .filter((e) => e.isDirectory())
    .map((e) => e.name)
    .sort();
}

/** The functions of a library's place.mjs. */
export function shapesOf(library: string): string[] {
  const text = readFileSync(join(FOLDERS, library, 'src', 'place.mjs'), 'utf8');
  return [...text.matchAll(/export async function (\w+)/g)].flatMap((m) => m[1] ?? []);
}

export interface Place {
  readonly folder: string;
  /** Rewrites it with the tool, all levels; throws when a site was left alone. */
  rewrite(): void;
  remove(): void;
}

export async function openPlace(library: string): Promise<Place> {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'codemod-')));
  cpSync(join(FOLDERS, library), folder, { recursive: true });
  cpSync(join(FOLDERS, 'bus.mjs'), join(folder, 'src', 'bus.mjs'));
  const client = library.replace(/^(?:thread|down)-/, '');
  for (const name of ['pg', 'amqplib', '@types/pg', '@types/node', ...(PACKAGES[client] ?? [client])]) {
    const link = join(folder, 'node_modules', name);
    mkdirSync(dirname(link), { recursive: true });
    symlinkSync(join(REPOSITORY, 'node_modules', name), link);
  }
  if (client === 'prisma') {
    cpSync(join(FOLDERS, 'prisma', 'schema.prisma'), join(folder, 'schema.prisma'));
    await installPrismaClient(folder);
  }
  await installUnbroker(folder);
  return {
    folder,
    rewrite: () => {
      const plan = makePlan({
        ...{ root: folder, paths: ['src'], level: 'thread', inlineSql: false, todo: false, types: true },
      });
      const left = plan.sites.filter((s) => !s.applied);
      if (left.length > 0 || plan.sites.length === 0) {
        throw new Error(
          `left alone: ${left.map((s) => `${s.function} ${s.reason}: ${s.message}`).join('; ')}`,
        );
      }
      applyPlan(plan, { allowDirty: true });
    },
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}

/** Runs until one run is not killed: at answer 1, at answer 2, and so on. */
export async function killedEverywhere(
  world: World,
  place: Place,
  shape: string,
  label: string,
): Promise<Books[]> {
  const books: Books[] = [];
  for (let n = 1; n <= MAX_ANSWERS; n++) {
    const customer = `${label} ${n}`;
    const run = start(world, place, shape, customer, n);
    const { code, signal } = await run.waitForExit(120_000);
    if (code !== 0 && signal !== 'SIGKILL') throw new Error(`the runner failed: ${run.stderr}`);
    books.push({ killedAt: signal === null ? null : n, ...(await leftBehind(world, customer)) });
    if (signal === null) return books;
  }
  throw new Error('no run ended by itself');
}

/** A whole run whose commit is refused. Knex' `trx.commit()` does not tell, so the function may end as if all were well. */
export async function refusedAtCommit(
  world: World,
  place: Place,
  shape: string,
  label: string,
): Promise<Books> {
  const customer = `refused ${label}`;
  const run = start(world, place, shape, customer, 0);
  const { code } = await run.waitForExit(120_000);
  if (code !== 0 && !run.stderr.includes('refused at commit'))
    throw new Error(`the runner failed: ${run.stderr}`);
  return { killedAt: null, ...(await leftBehind(world, customer)) };
}

/** `killAfter` 0: it is not killed. */
function start(
  world: World,
  place: Place,
  shape: string,
  customer: string,
  killAfter: number,
): StartedProcess {
  return startProcess(process.execPath, [join(HERE, 'kill-runner.mjs')], {
    env: {
      FOLDER: place.folder,
      SHAPE: shape,
      DATABASE_URL: world.database.url,
      AMQP_URL: world.vhost.url,
      KILL_AFTER: String(killAfter),
      CUSTOMER: customer,
    },
  });
}

async function leftBehind(world: World, customer: string): Promise<Omit<Books, 'killedAt'>> {
  await until('the killed client is gone', async () => {
    const { rows } = await world.database.pool.query<{ n: number }>(
      `select count(*)::int n from pg_stat_activity
       where datname = current_database() and backend_type = 'client backend' and state <> 'idle' and pid <> pg_backend_pid()`,
    );
    return rows[0]?.n === 0;
  });
  const count = async (sql: string): Promise<number> => {
    const { rows } = await world.database.pool.query<{ n: number }>(sql, [customer]);
    return rows[0]?.n ?? 0;
  };
  let messages = 0;
  const next = (): ReturnType<ConfirmChannel['get']> => world.channel.get('placed', { noAck: true });
  for (let message = await next(); message; message = await next()) {
    if ((JSON.parse(message.content.toString()) as { customer: string }).customer === customer) messages++;
  }
  const lines = await count(
    `select count(*)::int n from order_lines left join orders on id = order_id
     where customer = $1 or customer is null`,
  );
  await world.database.pool.query(
    'delete from order_lines where not exists (select from orders where id = order_id)',
  );
  return {
    rows: await count('select count(*)::int n from orders where customer = $1'),
    lines,
    jobs: await count(
      `select count(*)::int n from unbroker.jobs where kind = 'order.placed' and payload->>'customer' = $1`,
    ),
    messages,
  };
}

/** Runs in which the row and its message, or its job, do not agree. */
export const disagreeing = (books: readonly Books[], with_: 'messages' | 'jobs'): Books[] =>
  books.filter((b) => b.rows !== b[with_]);
