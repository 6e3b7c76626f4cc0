/**
 * Ten thousand connections that send half a request and are left, from several processes, while others go on asking: the
 * door stays small, keeps to its limit, serves the others or tells them 503, and has closed all of them soon after.
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { cliFile } from '../support/cli.js';
import { jobsDatabase } from '../support/jobs.js';
import { freePort } from '../support/ports.js';
import { type StartedProcess, startProcess } from '../support/processes.js';
import type { PostgresServer } from '../support/services.js';
import { until } from '../support/until.js';
import { bundled } from './processes.js';

export interface SlowClientFaults {
  readonly connections: number;
  /** Times that one of them was opened, also again. */
  readonly opened: number;
  readonly limit: number;
  /** File descriptors of the door above those it had before. */
  readonly maxHeld: number;
  readonly rssMb: { readonly before: number; readonly max: number; readonly after: number };
  /** Of other clients' requests, each on a connection of its own: by status, `lost` for no answer. */
  readonly others: Readonly<Record<string, number>>;
  /** The same after the first two seconds, when those that are slow have been seen to be. */
  readonly othersLater: Readonly<Record<string, number>>;
  readonly othersP99Ms: number;
  /** From the moment nothing is opened any more until none is open. */
  readonly closedInMs: number;
  /** Of the door, in all. */
  readonly cpuMs: number;
  readonly stored: number;
  /** Promises that were not kept. */
  readonly failed: number;
}

const LIMIT = 1_000;
const ATTACK_MS = 12_000;
const CHILDREN = 4;
const MAX_RSS_GROWTH_MB = 150;

export async function slowClients(server: PostgresServer, connections: number): Promise<SlowClientFaults> {
  const db = await jobsDatabase({ server });
  const folder = mkdtempSync(join(tmpdir(), 'unbroker-slow-'));
  writeFileSync(join(folder, 'unbroker.config.json'), JSON.stringify({ serve: { maxConnections: LIMIT } }));
  const port = await freePort();
  const file = cliFile.endsWith('.ts')
    ? fileURLToPath(new URL('run-typescript.mjs', import.meta.url))
    : cliFile;
  const door = startProcess(process.execPath, [file, 'serve', '--port', String(port)], {
    cwd: folder,
    env: { DATABASE_URL: db.url, UNBROKER_LOG_LEVEL: 'error', RUN_FILE: cliFile },
  });
  const children: StartedProcess[] = [];
  const watch = watchProcess(door.pid);
  try {
    await door.waitFor(/^unbroker listening/m, 30_000);
    await post(port);
    const before = { rss: watch.rssMb(), fds: watch.fds(), cpuMs: watch.cpuMs() };
    const child = await bundled('slow-child');
    const startedAt = performance.now();
    for (let n = 0; n < CHILDREN; n += 1) {
      const args = [port, Math.ceil(connections / CHILDREN), 1, n + 2].map(String);
      children.push(startProcess(process.execPath, [child, ...args]));
    }
    const asked = await askMeanwhile(port, startedAt + ATTACK_MS, watch.look);
    for (const each of children) each.signal('SIGUSR2');
    const stoppedAt = performance.now();
    await until('all slow connections are closed', () => sum(children, 'open') === 0, { withinMs: 30_000 });
    const closedInMs = Math.round(performance.now() - stoppedAt);
    const opened = sum(children, 'opened');
    const { rows } = await db.pool.query<{ n: number }>('select count(*)::int as n from unbroker.jobs');
    const accepted = asked.filter(({ status }) => status === '202').length;
    const later = asked.filter(({ atMs }) => atMs - startedAt > 2_000);
    // A place comes free a second after it was taken, at the earliest; whoever asks for one has the same chance.
    const fairShare = Math.min(1, (LIMIT * ATTACK_MS) / 1_000 / (opened + asked.length));
    const times = asked.map(({ ms }) => ms).sort((a, b) => a - b);
    const broken = [
      opened < connections,
      watch.max.fds - before.fds > 2 * LIMIT + 50,
      watch.max.rss - before.rss > MAX_RSS_GROWTH_MB,
      asked.some(({ status }) => status !== '202' && status !== '503'),
      // Nobody who asks once and reads the answer is worse off than those who hold on; the rest are told to try again.
      later.filter(({ status }) => status === '202').length < (later.length * fairShare) / 2,
      closedInMs > 12_000,
      rows[0]?.n !== accepted + 1,
      (await post(port)) !== '202',
    ];
    return {
      ...{ connections, opened, limit: LIMIT, maxHeld: watch.max.fds - before.fds },
      rssMb: { before: before.rss, max: watch.max.rss, after: watch.rssMb() },
      others: counted(asked),
      othersLater: counted(later),
      othersP99Ms: Math.round(times[Math.floor(times.length * 0.99)] ?? 0),
      closedInMs,
      cpuMs: watch.cpuMs() - before.cpuMs,
      stored: rows[0]?.n ?? -1,
      failed: broken.filter((one) => one).length,
    };
  } finally {
    await Promise.allSettled([...children, door].map((each) => each.kill()));
    await db.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

interface Asked {
  readonly status: string;
  readonly ms: number;
  readonly atMs: number;
}

/** Four clients, a new connection for each request, until `endAt`. */
async function askMeanwhile(port: number, endAt: number, look: () => void): Promise<readonly Asked[]> {
  const asked: Asked[] = [];
  const client = async (): Promise<void> => {
    while (performance.now() < endAt) {
      const atMs = performance.now();
      const status = await post(port);
      asked.push({ status, atMs, ms: performance.now() - atMs });
      look();
      await sleep(25);
    }
  };
  await Promise.all(Array.from({ length: 4 }, client));
  return asked;
}

function post(port: number): Promise<string> {
  const body = '{"to":"ann@example.org","body":"x"}';
  return new Promise((resolve) => {
    const sent = request({
      ...{ host: '127.0.0.1', port, method: 'POST', path: '/notifications', agent: false },
      headers: { 'content-type': 'application/json', 'content-length': body.length },
      timeout: 10_000,
    });
    sent.on('error', () => resolve('lost')).on('timeout', () => sent.destroy());
    sent.on('response', (response) => {
      response.resume().on('end', () => resolve(String(response.statusCode)));
    });
    sent.end(body);
  });
}

function counted(asked: readonly Asked[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { status } of asked) counts[status] = (counts[status] ?? 0) + 1;
  return counts;
}

/** The last number of that name in what each child printed, added up. */
function sum(children: readonly StartedProcess[], name: string): number {
  return children.reduce((total, { stdout }) => {
    const [, last = '0'] = [...stdout.matchAll(new RegExp(`"${name}":(\\d+)`, 'g'))].at(-1) ?? [];
    return total + Number(last);
  }, 0);
}

function watchProcess(pid: number) {
  const rssMb = (): number =>
    Math.round(Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0) / 1_024);
  /** User and system, in ticks of 10 ms. */
  const cpuMs = (): number => {
    const [, , , , , , , , , , , user = '0', system = '0'] = (
      readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1] ?? ''
    ).split(' ');
    return (Number(user) + Number(system)) * 10;
  };
  const fds = (): number => readdirSync(`/proc/${pid}/fd`).length;
  const max = { rss: 0, fds: 0 };
  const look = (): void => {
    max.rss = Math.max(max.rss, rssMb());
    max.fds = Math.max(max.fds, fds());
  };
  return { rssMb, cpuMs, fds, max, look };
}
