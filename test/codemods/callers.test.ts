/**
 * Three callers as teams have them (test/legacy/callers), each run as it is, rewritten by the tool alone and run again:
 * what went to the broker before, kind by kind and payload by payload, is in the table after, and nothing else.
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
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { type ConfirmChannel, connect } from 'amqplib';
import ts from 'typescript';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { applyPlan, makePlan } from '../../codemods/index.js';
import { migrate } from '../../src/migrate.js';
import { startScript } from '../support/processes.js';
import { type FreshDatabase, type FreshVhost, freshDatabase, freshVhost } from '../support/services.js';
import { generatePrisma, installUnbroker } from './installed.js';

const REPOSITORY = join(import.meta.dirname, '..', '..');
const CALLERS = join(REPOSITORY, 'test', 'legacy', 'callers');

interface Caller {
  readonly name: string;
  readonly main: string;
  readonly exchange: string;
  readonly packages: readonly string[];
  /** `function level`, in order. */
  readonly sites: readonly string[];
}

const callers: readonly Caller[] = [
  {
    name: 'knex',
    main: 'src/main.js',
    exchange: 'library',
    packages: ['knex'],
    sites: ['buy wrap', 'lend safe', 'takeBack safe'],
  },
  {
    name: 'typeorm-nest',
    main: 'dist/main.js',
    exchange: 'hotel',
    packages: [
      ...['typeorm', 'reflect-metadata', 'rxjs', '@golevelup/nestjs-rabbitmq'],
      ...['@nestjs/common', '@nestjs/core', '@nestjs/typeorm'],
    ],
    sites: ['BookingsService.book safe', 'BookingsService.pay safe', 'BookingsService.cancel wrap'],
  },
  {
    name: 'prisma',
    main: 'src/main.ts',
    exchange: 'stadium',
    packages: ['@prisma/client', '@prisma/adapter-pg'],
    sites: ['Tickets.sell wrap', 'Tickets.use safe', 'Tickets.refund safe'],
  },
];

let before: FreshDatabase;
let after: FreshDatabase;
let vhost: FreshVhost;
let broker: Awaited<ReturnType<typeof connect>>;
let channel: ConfirmChannel;

beforeAll(async () => {
  [before, after, vhost] = await Promise.all([freshDatabase(), freshDatabase(), freshVhost()]);
  await migrate(after.pool);
  broker = await connect(vhost.url);
  broker.on('error', () => {});
  channel = await broker.createConfirmChannel();
  channel.on('error', () => {});
});

afterAll(async () => {
  await broker?.close();
  await Promise.all([before?.close(), after?.close(), vhost?.close()]);
});

describe.each(callers)('$name', ({ name, main, exchange, packages, sites }) => {
  let folder: string;

  beforeAll(async () => {
    folder = realpathSync(mkdtempSync(join(tmpdir(), 'caller-')));
    cpSync(join(CALLERS, name), folder, { recursive: true });
    for (const pkg of ['amqplib', 'pg', '@types/node', '@types/pg', ...packages]) {
      const link = join(folder, 'node_modules', pkg);
      mkdirSync(dirname(link), { recursive: true });
      symlinkSync(join(REPOSITORY, 'node_modules', pkg), link);
    }
    await installUnbroker(folder);
    if (name === 'prisma')
      await generatePrisma(join(folder, 'schema.prisma'), join(folder, 'src', 'generated'));
    await channel.assertExchange(exchange, 'topic', { durable: true });
    await channel.assertQueue(name);
    await channel.bindQueue(name, exchange, '#');
  });

  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  test('does the same through the table', { timeout: 240_000 }, async () => {
    if (main.startsWith('dist/')) build(folder);
    await run(folder, main, before);
    const messages = await taken(name);
    expect(messages).toHaveLength(sites.length);

    const plan = makePlan({
      ...{ root: folder, paths: [], level: 'wrap', inlineSql: false, todo: false, types: true },
    });
    expect(plan.sites.map((s) => `${s.function.replace(/,.*/, '')} ${s.level}`)).toEqual(sites);
    applyPlan(plan, { allowDirty: true });

    if (main.startsWith('dist/')) build(folder);
    await run(folder, main, after);
    const { rows } = await after.pool.query<{ kind: string; payload: unknown }>(
      'select kind, payload from unbroker.jobs order by id',
    );
    await after.pool.query('delete from unbroker.jobs');
    expect(sorted(rows.map((r) => [r.kind, r.payload] as const))).toEqual(sorted(messages));
    expect(await taken(name)).toEqual([]);
  });
});

async function run(folder: string, main: string, database: FreshDatabase): Promise<void> {
  const running = startScript(join(folder, main), [], {
    cwd: folder,
    env: { DATABASE_URL: database.url, AMQP_URL: vhost.url },
  });
  const { code } = await running.waitForExit(120_000);
  if (code !== 0) throw new Error(`the caller failed: ${running.stdout}${running.stderr}`);
}

/** Routing keys and contents that wait in the queue; the caller has closed, so everything is there. */
async function taken(queue: string): Promise<[string, unknown][]> {
  const found: [string, unknown][] = [];
  const next = (): ReturnType<ConfirmChannel['get']> => channel.get(queue, { noAck: true });
  for (let message = await next(); message; message = await next()) {
    found.push([message.fields.routingKey, JSON.parse(message.content.toString())]);
  }
  return found;
}

/** By kind: what was not waited for may have overtaken what was. */
function sorted(pairs: readonly (readonly [string, unknown])[]): (readonly [string, unknown])[] {
  return [...pairs].sort(([a], [b]) => (a < b ? -1 : 1));
}

/** As the caller's own `tsc` writes it: Nest's container reads the types that decorators leave behind, and tsx leaves none. */
function build(folder: string): void {
  const { config } = ts.readConfigFile(join(folder, 'tsconfig.json'), (path) => readFileSync(path, 'utf8'));
  const { options } = ts.parseJsonConfigFileContent(config, ts.sys, folder);
  mkdirSync(join(folder, 'dist'), { recursive: true });
  for (const name of readdirSync(join(folder, 'src'))) {
    const fileName = join(folder, 'src', name);
    const { outputText } = ts.transpileModule(readFileSync(fileName, 'utf8'), {
      fileName,
      compilerOptions: options,
    });
    writeFileSync(join(folder, 'dist', name.replace(/\.ts$/, '.js')), outputText);
  }
}
