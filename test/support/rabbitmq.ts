/**
 * A real RabbitMQ for tests, the demo and the benches: one that is given, or a private node on free loopback ports
 * with everything it writes in a temporary folder, which can be killed, paused and restarted. It declares nothing.
 */

import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import amqp from 'amqplib';
import { callManagement } from './management.js';
import { freePort } from './ports.js';
import { PrivateServer, type ServerCommand } from './private-server.js';
import {
  availablePlugins,
  findRabbitPrograms,
  installRabbit,
  whyNotInstallable,
} from './rabbitmq-install.js';
import { openServiceFolder, type ServiceFolder } from './service-folder.js';

export type RabbitWay = 'url' | 'docker' | 'local';

export interface RabbitOptions {
  /** Only this way. Default: UNBROKER_TEST_RABBITMQ, else the first that works: url, docker, local. */
  readonly way?: RabbitWay | undefined;
  /** Default false. True: never the broker behind UNBROKER_TEST_AMQP_URL, because the caller will kill it. */
  readonly controllable?: boolean;
  /** More plugins than `rabbitmq_management`; starting fails when one is not there. */
  readonly plugins?: readonly string[];
  /** Further settings as in rabbitmq.conf, such as `{ consumer_timeout: '5000' }`. */
  readonly settings?: Readonly<Record<string, string>>;
}

export interface RabbitServer {
  readonly way: RabbitWay;
  /** Without a virtual host: the broker's default one. */
  readonly url: string;
  /** `http://user:password@host:port`, or null when the management API does not answer. */
  readonly managementUrl: string | null;
  /** As the server tells it: `3.10.8`. */
  readonly version: string;
  /** False for a broker that was given to us: kill, stop, start, pause, resume and ctl then reject. */
  readonly controllable: boolean;
  /** SIGKILL to the node. */
  kill(): Promise<void>;
  /** An orderly shutdown. */
  stop(): Promise<void>;
  /** The same ports and data. */
  start(): Promise<void>;
  /** SIGSTOP: connections stay open, nothing answers. */
  pause(): Promise<void>;
  resume(): Promise<void>;
  /** rabbitmqctl on this node (about a second each); resolves to what it printed. */
  ctl(args: readonly string[]): Promise<string>;
  /** Stops a private node and removes its folder; leaves a given one alone. */
  close(): Promise<void>;
}

const READY_WITHIN_MS = 90_000;
const STOP_WITHIN_MS = 30_000;
const CTL_WITHIN_MS = 60_000;
const PORT_ATTEMPTS = 5;

const run = promisify(execFile);

export async function startRabbit(options: RabbitOptions = {}): Promise<RabbitServer> {
  const forced = options.way ?? (process.env['UNBROKER_TEST_RABBITMQ'] as RabbitWay | undefined);
  const given = process.env['UNBROKER_TEST_AMQP_URL'];
  if (given && !options.controllable && (forced === undefined || forced === 'url')) return givenRabbit(given);

  let programs = findRabbitPrograms();
  if (programs === null) {
    const obstacle = whyNotInstallable();
    if (obstacle !== null) throw noRabbit(`there is no rabbitmq-server, and ${obstacle}`);
    programs = await installRabbit().catch((error: Error) => {
      throw noRabbit(error.message);
    });
  }
  return startPrivate(programs, options);
}

function noRabbit(why: string): Error {
  return new Error(
    `no RabbitMQ for the tests: ${why}. Set UNBROKER_TEST_AMQP_URL, or start a Docker engine, or install rabbitmq-server (on Debian or Ubuntu root need only be able to run apt-get).`,
  );
}

async function givenRabbit(url: string): Promise<RabbitServer> {
  const version = await askVersion(url);
  const refuse = () =>
    Promise.reject(
      new Error('the RabbitMQ behind UNBROKER_TEST_AMQP_URL was given to us: it is not ours to stop'),
    );
  return {
    ...{ way: 'url', url, version, controllable: false, managementUrl: await findManagement(url) },
    ...{ kill: refuse, stop: refuse, start: refuse, pause: refuse, resume: refuse, ctl: refuse },
    close: () => Promise.resolve(),
  };
}

/** UNBROKER_TEST_AMQP_MANAGEMENT_URL, or the default port on the broker's own host with the same credentials. */
async function findManagement(amqpUrl: string): Promise<string | null> {
  const { hostname, username, password } = new URL(amqpUrl);
  const guess = `http://${username || 'guest'}:${password || 'guest'}@${hostname}:15672`;
  const url = process.env['UNBROKER_TEST_AMQP_MANAGEMENT_URL'] ?? guess;
  return callManagement(url, 'GET', '/whoami').then(
    () => url,
    () => null,
  );
}

async function askVersion(url: string): Promise<string> {
  const connection = await amqp.connect(url, { timeout: 10_000 });
  connection.on('error', () => {});
  const { version } = connection.connection.serverProperties;
  await connection.close().catch(() => {});
  return String(version);
}

interface Ports {
  readonly amqp: number;
  readonly management: number;
  readonly distribution: number;
  readonly epmd: number;
}

async function startPrivate(programs: string, options: RabbitOptions): Promise<RabbitServer> {
  const available = availablePlugins(programs);
  const plugins = [
    ...(available.has('rabbitmq_management') ? ['rabbitmq_management'] : []),
    ...(options.plugins ?? []),
  ];
  for (let attempt = 1; ; attempt++) {
    const ports: Ports = {
      ...{ amqp: await freePort(), management: await freePort() },
      ...{ distribution: await freePort(), epmd: await freePort() },
    };
    const folder = openServiceFolder('rabbitmq');
    try {
      return await startNode(programs, ports, plugins, options.settings ?? {}, folder);
    } catch (error) {
      await folder.close();
      const portTaken = /eaddrinuse|already in use|port.*in use/i.test(String(error));
      if (attempt === PORT_ATTEMPTS || !portTaken) throw error;
    }
  }
}

async function startNode(
  programs: string,
  ports: Ports,
  plugins: readonly string[],
  settings: Readonly<Record<string, string>>,
  folder: ServiceFolder,
): Promise<RabbitServer> {
  writeNodeFiles(folder.path, ports, plugins, settings);
  const command: ServerCommand = {
    command: join(programs, 'rabbitmq-server'),
    args: [],
    environment: nodeEnvironment(folder, ports),
    cwd: folder.path,
    logFile: join(folder.path, 'rabbitmq.log'),
  };
  const server = new PrivateServer(command);
  const url = `amqp://guest:guest@127.0.0.1:${ports.amqp}`;
  const managementUrl = plugins.includes('rabbitmq_management')
    ? `http://guest:guest@127.0.0.1:${ports.management}`
    : null;
  const ask = async (): Promise<string> => {
    if (managementUrl) await callManagement(managementUrl, 'GET', '/whoami');
    return askVersion(url);
  };
  const start = async (): Promise<string> => {
    if (server.running) throw new Error('this RabbitMQ runs already');
    server.spawn();
    return server.waitUntilReady('RabbitMQ', ask, READY_WITHIN_MS);
  };
  const version = await start();
  return {
    ...{ way: 'local', url, managementUrl, version, controllable: true },
    kill: () => server.kill(),
    stop: () => server.stop('SIGTERM', STOP_WITHIN_MS),
    start: async () => void (await start()),
    pause: async () => server.pause(),
    resume: async () => server.resume(),
    async ctl(args) {
      const options = { env: command.environment, cwd: folder.path, timeout: CTL_WITHIN_MS };
      return (await run(join(programs, 'rabbitmqctl'), ['--quiet', ...args], options)).stdout;
    },
    async close() {
      // Nothing of it is kept, so there is nothing to flush.
      await server.kill();
      await folder.close();
    },
  };
}

function writeNodeFiles(
  folder: string,
  ports: Ports,
  plugins: readonly string[],
  settings: Readonly<Record<string, string>>,
): void {
  const configuration: Record<string, string> = {
    'listeners.tcp.1': `127.0.0.1:${ports.amqp}`,
    'management.tcp.ip': '127.0.0.1',
    'management.tcp.port': String(ports.management),
    // A busy or small disk must not block publishers: that is a case of its own, made on purpose.
    'disk_free_limit.absolute': '50MB',
    ...settings,
  };
  const known = Object.entries(configuration).filter(
    ([name]) => plugins.includes('rabbitmq_management') || !name.startsWith('management.'),
  );
  writeFileSync(join(folder, 'rabbitmq.conf'), known.map(([name, value]) => `${name} = ${value}\n`).join(''));
  writeFileSync(join(folder, 'enabled_plugins'), `[${plugins.join(',')}].\n`);
  writeFileSync(join(folder, 'env.conf'), '');
  writeFileSync(join(folder, '.erlang.cookie'), randomBytes(20).toString('hex'), { mode: 0o400 });
  mkdirSync(join(folder, 'mnesia'));
}

/** Every place where a node would otherwise meet the machine's own: name, cookie, epmd, ports, folders, configuration. */
function nodeEnvironment(folder: ServiceFolder, ports: Ports): NodeJS.ProcessEnv {
  const own = Object.entries(folder.environment()).filter(
    ([name]) => !/^(RABBITMQ_|ERL_|LC_|LANG)/.test(name),
  );
  const inside = (name: string) => join(folder.path, name);
  return {
    ...Object.fromEntries(own),
    HOME: folder.path,
    LC_ALL: 'C.UTF-8',
    ERL_EPMD_PORT: String(ports.epmd),
    ERL_EPMD_ADDRESS: '127.0.0.1',
    RABBITMQ_NODENAME: `unbroker-${ports.amqp}@localhost`,
    RABBITMQ_NODE_PORT: String(ports.amqp),
    RABBITMQ_NODE_IP_ADDRESS: '127.0.0.1',
    RABBITMQ_DIST_PORT: String(ports.distribution),
    RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS: '-kernel inet_dist_use_interface {127,0,0,1}',
    RABBITMQ_CTL_DIST_PORT_MIN: '30000',
    RABBITMQ_CTL_DIST_PORT_MAX: '32000',
    RABBITMQ_MNESIA_BASE: inside('mnesia'),
    RABBITMQ_LOG_BASE: inside('log'),
    RABBITMQ_LOGS: '-',
    RABBITMQ_CONF_ENV_FILE: inside('env.conf'),
    RABBITMQ_CONFIG_FILE: inside('rabbitmq.conf'),
    RABBITMQ_CONFIG_FILES: inside('conf.d'),
    RABBITMQ_ADVANCED_CONFIG_FILE: inside('advanced.config'),
    RABBITMQ_GENERATED_CONFIG_DIR: inside('generated'),
    RABBITMQ_ENABLED_PLUGINS_FILE: inside('enabled_plugins'),
    // The start script then replaces itself with the node, so the pid that we signal is the node's.
    RUNNING_UNDER_SYSTEMD: 'true',
  };
}
