/**
 * Accepted `POST /notifications` per second: `unbroker serve` with the trio contract and its templates, beside a bare
 * node:http server on the same table. 32 connections, real Postgres, durable commits.
 */
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { migrate } from '../../src/migrate.js';
import { type StartedProcess, startScript } from '../support/processes.js';
import { type FreshDatabase, freshDatabase, startPostgres } from '../support/services.js';
import { type BenchResult, SERVER_SETTINGS } from './bench.js';
import { generateLoad, type LoadResult } from './http-load.js';
import { Meter } from './meter.js';
import { interleave, median, pairedRatio, range, round } from './rounds.js';

export interface ShimBenchOptions {
  /** Default 3. */
  readonly rounds?: number;
  readonly quick?: boolean;
}

const CONNECTIONS = 32;
/** Short turns for each: what else the machine does then hits both alike. */
const SLICES = 5;
const ROOT = join(import.meta.dirname, '..', '..');

/** What clients of the old service send: a receipt with two lines. */
const BODY = JSON.stringify({
  to: 'ann.customer@example.org',
  template: 'order-receipt',
  channel: 'email',
  locale: 'en',
  reference: 'order-48213',
  data: {
    orderId: 48_213,
    total: '41.90',
    lines: [
      { sku: 'TEA-0042', quantity: 2 },
      { sku: 'CUP-0007', quantity: 1 },
    ],
  },
});

const REQUEST = Buffer.from(
  `POST /notifications HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: ${BODY.length}\r\n\r\n${BODY}`,
);

type Name = 'unbroker' | 'bare';

interface Running {
  readonly port: number;
  readonly pid: number;
}

/** CPU per accepted request; null where /proc does not tell. These hardly move with the load of the machine. */
interface Figure extends LoadResult {
  readonly nodeCpuUs: number | null;
  readonly postgresCpuUs: number | null;
}

export async function benchShim(options: ShimBenchOptions = {}): Promise<BenchResult> {
  const { rounds = 3, quick = false } = options;
  const server = await startPostgres({ controllable: true, settings: SERVER_SETTINGS });
  const folder = mkdtempSync(join(tmpdir(), 'unbroker-bench-'));
  const started: StartedProcess[] = [];
  let database: FreshDatabase | undefined;
  try {
    database = await freshDatabase(server);
    await migrate(database.pool);
    writeConfig(folder);
    const servers = {
      unbroker: await startServer(started, builtProgram(), ['serve', '--port', '0'], database, folder),
      bare: await startServer(started, join(import.meta.dirname, 'shim-bare.ts'), [], database, folder),
    };
    const { pool } = database;
    const meter = await Meter.open(pool);
    for (const name of ['unbroker', 'bare'] as const)
      await measure(servers[name], quick ? 300 : 2_000, meter);
    const figures = await interleave<Name, Figure>(
      ['unbroker', 'bare'],
      rounds * SLICES,
      async (name, round) => {
        if (round % SLICES === 0) await pool.query('truncate unbroker.jobs');
        return measure(servers[name], quick ? 300 : 1_500, meter);
      },
    );
    return {
      ...report(figures),
      json: { ...report(figures).json, postgres: server.version, node: process.version },
    };
  } finally {
    for (const process of started) await process.kill();
    await database?.close();
    await server.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** What is shipped, not what tsx makes of the sources: that names every closure anew, a tenth of a request's CPU. */
function builtProgram(): string {
  const file = join(ROOT, 'dist', 'src', 'cli', 'main.js');
  if (existsSync(file)) return file;
  throw new Error('the build is missing; run the bench as: npm run -s bench -- shim');
}

/** One slice of load on one server. */
async function measure({ port, pid }: Running, forMs: number, meter: Meter): Promise<Figure> {
  await meter.start();
  const cpuBefore = cpuUsOf(pid);
  const result = await generateLoad({ port, request: REQUEST, status: 202, connections: CONNECTIONS, forMs });
  const cpuAfter = cpuUsOf(pid);
  const { cpuUs } = await meter.stop();
  if (result.errors > 0) throw new Error(`${result.errors} requests were not accepted`);
  return {
    ...result,
    nodeCpuUs: cpuBefore === null || cpuAfter === null ? null : (cpuAfter - cpuBefore) / result.accepted,
    postgresCpuUs: cpuUs === null ? null : cpuUs / result.accepted,
  };
}

/** As an installation has it: templates checked at the door, all channels. */
function writeConfig(folder: string): void {
  cpSync(join(ROOT, 'test', 'legacy', 'notification', 'templates'), join(folder, 'templates'), {
    recursive: true,
  });
  const notify = { templates: './templates', email: { url: 'smtp://127.0.0.1:9', from: 'shop@example.org' } };
  writeFileSync(join(folder, 'unbroker.config.json'), JSON.stringify({ notify }));
}

/** As installed, the log level too. */
async function startServer(
  started: StartedProcess[],
  file: string,
  args: readonly string[],
  database: FreshDatabase,
  folder: string,
): Promise<Running> {
  const process = startScript(file, args, {
    cwd: folder,
    env: { DATABASE_URL: database.url },
  });
  started.push(process);
  const [, port] = await process.waitFor(/listening on http:\/\/127\.0\.0\.1:(\d+)/);
  return { port: Number(port), pid: process.pid };
}

/** User and system time of a process, in ticks of 10 ms. */
function cpuUsOf(pid: number): number | null {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
    return (Number(fields[11]) + Number(fields[12])) * 10_000;
  } catch {
    return null;
  }
}

function report({ unbroker, bare }: Record<Name, Figure[]>): BenchResult {
  const rate = (results: readonly LoadResult[]): number[] => results.map(({ perSecond }) => perSecond);
  const p99 = (results: readonly LoadResult[]): number => round(median(results.map(({ p99Ms }) => p99Ms)), 1);
  const cpu = (figures: readonly Figure[], of: 'nodeCpuUs' | 'postgresCpuUs'): number | null => {
    const known = figures.map((figure) => figure[of]).filter((value) => value !== null);
    return known.length === 0 ? null : round(median(known));
  };
  const ratio = pairedRatio(rate(unbroker), rate(bare));
  return {
    json: {
      unbroker: round(median(rate(unbroker))),
      bare: round(median(rate(bare))),
      ratio,
      p99Ms: p99(unbroker),
      bareP99Ms: p99(bare),
      cpuUs: { node: cpu(unbroker, 'nodeCpuUs'), postgres: cpu(unbroker, 'postgresCpuUs') },
      bareCpuUs: { node: cpu(bare, 'nodeCpuUs'), postgres: cpu(bare, 'postgresCpuUs') },
    },
    text: [
      `POST /notifications, ${CONNECTIONS} connections, accepted per second (median, range)`,
      `  unbroker  ${range(rate(unbroker))}   p99 ${p99(unbroker)} ms   CPU a request: Node ${cpu(unbroker, 'nodeCpuUs')} + Postgres ${cpu(unbroker, 'postgresCpuUs')} µs`,
      `  bare      ${range(rate(bare))}   p99 ${p99(bare)} ms   CPU a request: Node ${cpu(bare, 'nodeCpuUs')} + Postgres ${cpu(bare, 'postgresCpuUs')} µs`,
      `  unbroker / bare within each round: ${ratio} (the bar: 1.2)`,
    ].join('\n'),
  };
}
