/**
 * A real RabbitMQ for tests, the demo and the benches: the one that is given, or a private one, which can be killed,
 * paused and restarted. Here is the order of the ways to get it; it declares nothing on it.
 */
import { engineAnswers, startContainer } from './container.js';
import { callManagement } from './management.js';
import { findRabbitPrograms, installRabbit, whyNotInstallable } from './rabbitmq-install.js';
import { startNode } from './rabbitmq-node.js';
import {
  askVersion,
  configurationFile,
  PERSIST_DECLARATIONS,
  pluginsFile,
  type RabbitOptions,
  type RabbitServer,
  SETTINGS,
} from './rabbitmq-server.js';
import { until } from './until.js';
import { firstThatWorks, type Way } from './ways.js';

const READY_WITHIN_MS = 200_000;
const REMEDY =
  'Set UNBROKER_TEST_AMQP_URL, or start a Docker engine, or install rabbitmq-server (as root on Debian or Ubuntu this is done for you)';

export async function startRabbit(options: RabbitOptions = {}): Promise<RabbitServer> {
  const forced = options.way ?? (process.env['UNBROKER_TEST_RABBITMQ'] || undefined);
  const given = process.env['UNBROKER_TEST_AMQP_URL'];
  if (given && !options.controllable && (forced === undefined || forced === 'url')) return givenRabbit(given);

  const ways: Way<RabbitServer>[] = [
    { name: 'docker', start: () => startDocker(options) },
    { name: 'local', start: () => startLocal(options) },
  ];
  const chosen = ways.filter(({ name }) => forced === undefined || forced === 'url' || name === forced);
  if (chosen.length === 0) throw new Error(`UNBROKER_TEST_RABBITMQ=${forced}: use docker or local`);
  return firstThatWorks('RabbitMQ', chosen, REMEDY);
}

async function givenRabbit(url: string): Promise<RabbitServer> {
  const version = await askVersion(url).catch((error: Error) => {
    throw new Error(
      `the RabbitMQ behind UNBROKER_TEST_AMQP_URL does not answer: ${error.message}. ${REMEDY}`,
    );
  });
  const refuse = () =>
    Promise.reject(
      new Error('the RabbitMQ behind UNBROKER_TEST_AMQP_URL was given to us: it is not ours to stop'),
    );
  return {
    ...{ way: 'url', url, version, controllable: false, managementUrl: await findManagement(url) },
    ...{ kill: refuse, stop: refuse, start: refuse, pause: refuse, resume: refuse, ctl: refuse },
    persistDeclarations: refuse,
    close: () => Promise.resolve(),
  };
}

/** UNBROKER_TEST_AMQP_MANAGEMENT_URL, or the default port on the broker's own host with the same credentials. */
async function findManagement(amqpUrl: string): Promise<string | null> {
  const { hostname, username, password } = new URL(amqpUrl);
  const guess = `http://${username || 'guest'}:${password || 'guest'}@${hostname}:15672`;
  const url = process.env['UNBROKER_TEST_AMQP_MANAGEMENT_URL'] || guess;
  return callManagement(url, 'GET', '/whoami').then(
    () => url,
    () => null,
  );
}

async function startLocal(options: RabbitOptions): Promise<RabbitServer | string> {
  const programs = findRabbitPrograms();
  if (programs !== null) return startNode(programs, options);
  const obstacle = whyNotInstallable();
  if (obstacle !== null) return `there is no rabbitmq-server, and ${obstacle}`;
  return startNode(await installRabbit(), options);
}

async function startDocker(options: RabbitOptions): Promise<RabbitServer | string> {
  if (!(await engineAnswers())) return 'no Docker engine answers';
  const container = await startContainer({
    image: process.env['UNBROKER_TEST_RABBITMQ_IMAGE'] ?? 'rabbitmq:4-management',
    containerPorts: [5672, 15672],
    files: {
      '/etc/rabbitmq/conf.d/90-tests.conf': configurationFile({ ...SETTINGS, ...options.settings }),
      '/etc/rabbitmq/enabled_plugins': pluginsFile(['rabbitmq_management', ...(options.plugins ?? [])]),
    },
  });
  const [amqpPort, managementPort] = container.hostPorts;
  const url = `amqp://guest:guest@${container.host}:${amqpPort}`;
  const managementUrl = `http://guest:guest@${container.host}:${managementPort}`;
  const answers = async (): Promise<string> => {
    await callManagement(managementUrl, 'GET', '/whoami');
    return askVersion(url);
  };
  const ctl = (args: readonly string[]) => container.exec(['rabbitmqctl', '--quiet', ...args]);
  const ready = () => until('RabbitMQ answers', answers, { withinMs: READY_WITHIN_MS });
  return {
    ...{ way: 'docker', url, managementUrl, version: await ready(), controllable: true, ctl },
    kill: () => container.kill(),
    stop: () => container.stop(),
    async start() {
      await container.start();
      await ready();
    },
    persistDeclarations: async () => void (await ctl(PERSIST_DECLARATIONS)),
    ...{ pause: () => container.pause(), resume: () => container.resume(), close: () => container.close() },
  };
}
