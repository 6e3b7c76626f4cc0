/**
 * `npm run -s bench -- <name>` (`-- help` lists them): picks the bench, starts the server that it needs, and
 * prints a table, or with --json one JSON object as the last line.
 */
import { existsSync } from 'node:fs';
import { loadavg } from 'node:os';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { startPostgres } from '../support/services.js';
import { benchBacklog } from './backlog.js';
import { type BenchOptions, type BenchResult, SERVER_SETTINGS } from './bench.js';
import { benchClaim } from './claim.js';
import { CONTENDERS, type ContenderName } from './contender.js';
import { benchEnqueue } from './enqueue.js';
import { benchFleet } from './fleet.js';
import { benchFootprint } from './footprint.js';
import { benchHolders } from './holders.js';
import { benchHorizon } from './horizon.js';
import { benchLatency } from './latency.js';
import { contenderNode } from './node-24.js';
import { installPeers } from './peers.js';
import { round } from './rounds.js';
import { say } from './say.js';

/** Benches of contenders on one Postgres. */
const ON_POSTGRES: Record<string, (options: BenchOptions) => Promise<BenchResult>> = {
  claim: benchClaim,
  enqueue: benchEnqueue,
  latency: benchLatency,
  fleet: benchFleet,
  horizon: benchHorizon,
  backlog: benchBacklog,
  footprint: benchFootprint,
  holders: benchHolders,
};

/** Of these, those without anybody beside unbroker: they run on this very Node. */
const ALONE = ['backlog', 'footprint', 'holders'];

/** Benches that start what they need by themselves: file and function. */
const STANDALONE: Record<string, readonly [file: string, name: string]> = {
  drain: ['drain', 'benchDrain'],
  undo: ['undo', 'benchUndo'],
  bridge: ['bridge', 'benchBridge'],
  shim: ['shim', 'benchShim'],
  codemod: ['codemod', 'benchCodemod'],
};

const USAGE = `usage: npm run -s bench -- ${[...Object.keys(ON_POSTGRES), ...Object.keys(STANDALONE)].join('|')} [options]
  --json            one JSON object as the last line instead of a table
  --rounds <n>      interleaved rounds, 1 to 50 (default 3)
  --quick           fewer jobs and one round: to see that it runs, not to quote
  --only <names>    of ${CONTENDERS.join(',')}
  --million         drain: a million messages from one queue, ours alone: memory, and the last tenth by the first
  --rows <n>        backlog: so many that are not to run now (default 1000000, at most 20000000; 10000000 need 11 GB of disk)
  --seconds <n>     of sending at 1,000 jobs a second (default 20)
  --profile <dir>   write the Node CPU profile of unbroker's worker there`;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    json: { type: 'boolean', default: false },
    rounds: { type: 'string' },
    quick: { type: 'boolean', default: false },
    only: { type: 'string' },
    profile: { type: 'string' },
    seconds: { type: 'string' },
    rows: { type: 'string' },
    million: { type: 'boolean', default: false },
  },
});

const MAX_ROWS = 20_000_000;

class UsageError extends Error {}

async function onPostgres(name: string): Promise<BenchResult> {
  const contenders = ALONE.includes(name) ? (['unbroker'] as const) : chosenContenders();
  const beside = contenders.some((c) => c === 'graphile' || c === 'pgboss');
  const node = beside ? await contenderNode() : process.execPath;
  const peerVersions = beside ? await installPeers() : {};
  const server = await startPostgres({ controllable: true, settings: SERVER_SETTINGS });
  process.once('SIGINT', () => void server.close().finally(() => process.exit(130)));
  try {
    const run = ON_POSTGRES[name] as (options: BenchOptions) => Promise<BenchResult>;
    const result = await run({
      ...{ rounds: rounds(), quick: values.quick, contenders, node, server },
      profileFolder: values.profile,
      seconds: seconds(),
      rows: backlogRows(),
    });
    return {
      ...result,
      json: { ...result.json, postgres: server.version, node: await versionOf(node), peerVersions },
    };
  } finally {
    await server.close();
  }
}

async function standalone(name: string): Promise<BenchResult> {
  const [file, entry] = STANDALONE[name] as readonly [string, string];
  const url = new URL(`./${file}.ts`, import.meta.url);
  if (!existsSync(fileURLToPath(url))) throw new UsageError(`the ${name} bench is not there`);
  const module = (await import(url.href)) as Record<string, (options: object) => Promise<BenchResult>>;
  const bench = module[entry];
  if (bench === undefined) throw new Error(`${file}.ts exports no ${entry}`);
  return bench({ rounds: rounds(), quick: values.quick, million: values.million });
}

async function versionOf(node: string): Promise<string> {
  if (node === process.execPath) return process.version;
  const { execFileSync } = await import('node:child_process');
  return execFileSync(node, ['--version'], { encoding: 'utf8' }).trim();
}

function rounds(): number {
  const given = values.rounds ?? (values.quick ? '1' : '3');
  if (!/^\d+$/.test(given) || Number(given) < 1 || Number(given) > 50)
    throw new UsageError('--rounds is 1 to 50');
  return Number(given);
}

function seconds(): number | undefined {
  if (values.seconds === undefined) return undefined;
  const given = /^\d+$/.test(values.seconds) ? Number(values.seconds) : 0;
  if (given < 1 || given > 600) throw new UsageError('--seconds is 1 to 600');
  return given;
}

function backlogRows(): number | undefined {
  if (values.rows === undefined) return undefined;
  const given = /^\d{1,8}$/.test(values.rows) ? Number(values.rows) : 0;
  if (given < 1_000 || given > MAX_ROWS) throw new UsageError(`--rows is 1000 to ${MAX_ROWS}`);
  return given;
}

function chosenContenders(): readonly ContenderName[] {
  if (values.only === undefined) return CONTENDERS;
  const names = values.only.split(',');
  const unknown = names.find((name) => !CONTENDERS.some((c) => c === name));
  if (unknown !== undefined) throw new UsageError(`--only knows ${CONTENDERS.join(', ')}`);
  return CONTENDERS.filter((name) => names.includes(name));
}

async function main(): Promise<void> {
  const [name = '', ...more] = positionals;
  if (more.length > 0 || (ON_POSTGRES[name] === undefined && STANDALONE[name] === undefined)) {
    throw new UsageError('name one bench');
  }
  const before = loadavg()[0] ?? 0;
  const startAt = performance.now();
  const result = ON_POSTGRES[name] ? await onPostgres(name) : await standalone(name);
  const load = [round(before, 2), round(loadavg()[0] ?? 0, 2)];
  const seconds = round((performance.now() - startAt) / 1_000);
  if (values.json) {
    console.log(
      JSON.stringify({ bench: name, ...result.json, rounds: rounds(), quick: values.quick, load, seconds }),
    );
  } else {
    console.log(result.text);
    console.log(`load average before and after: ${load.join(', ')}; ${rounds()} rounds; ${seconds} s`);
  }
}

main().catch((error: unknown) => {
  say(error instanceof Error ? error.message : String(error));
  if (error instanceof UsageError) console.error(USAGE);
  process.exitCode = error instanceof UsageError ? 2 : 1;
});
