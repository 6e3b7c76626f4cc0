/**
 * A private RabbitMQ node: free loopback ports, its own name, cookie and port mapper, and everything it writes in a
 * temporary folder. It is told where the programs are and does not look for them.
 */
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdirSync, readdirSync, realpathSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { callManagement } from './management.js';
import { freePort } from './ports.js';
import { PrivateServer } from './private-server.js';
import {
  askVersion,
  configurationFile,
  PERSIST_DECLARATIONS,
  pluginsFile,
  type RabbitOptions,
  type RabbitServer,
  SETTINGS,
} from './rabbitmq-server.js';
import { openServiceFolder, type ServiceFolder } from './service-folder.js';

const READY_WITHIN_MS = 200_000;
const STOP_WITHIN_MS = 30_000;
const CTL_WITHIN_MS = 60_000;
const MAX_CTL_BYTES = 64 * 1_048_576;
const PORT_ATTEMPTS = 5;
const PORT_TAKEN = /eaddrinuse|already in use|port.*in use/i;
const MANAGEMENT = 'rabbitmq_management';
/** What the management plugin and the server itself need of the plugins that carry RabbitMQ's name. */
const NEEDED = [MANAGEMENT, 'rabbitmq_management_agent', 'rabbitmq_web_dispatch', 'rabbitmq_prelaunch'];

const run = promisify(execFile);

interface Ports {
  readonly amqp: number;
  readonly management: number;
  readonly distribution: number;
  readonly epmd: number;
}

/** `programs` is the folder with `rabbitmq-server` and `rabbitmqctl`. */
export async function startNode(programs: string, options: RabbitOptions): Promise<RabbitServer> {
  const further = options.pluginsFolder === undefined ? [] : pluginsIn(options.pluginsFolder);
  const present = [...pluginsBeside(programs), ...further];
  const plugins = [
    ...(present.some(({ name }) => name === MANAGEMENT) ? [MANAGEMENT] : []),
    ...(options.plugins ?? []),
  ];
  for (let attempt = 1; ; attempt++) {
    const ports: Ports = {
      ...{ amqp: await freePort(), management: await freePort() },
      ...{ distribution: await freePort(), epmd: await freePort() },
    };
    const folder = openServiceFolder('rabbitmq');
    try {
      writeNodeFiles(folder.path, ports, plugins, options.settings ?? {});
      // Plugins that are asked for may need others, so only the usual set is narrowed.
      const narrowed =
        (options.plugins === undefined || further.length > 0) &&
        linkNeededPlugins(present, [...NEEDED, ...(options.plugins ?? [])], join(folder.path, 'plugins'));
      return await controlled(programs, ports, plugins.includes(MANAGEMENT), narrowed, folder);
    } catch (error) {
      await folder.close();
      if (attempt === PORT_ATTEMPTS || !PORT_TAKEN.test(String(error))) throw error;
    }
  }
}

async function controlled(
  programs: string,
  ports: Ports,
  managed: boolean,
  narrowed: boolean,
  folder: ServiceFolder,
): Promise<RabbitServer> {
  const environment = nodeEnvironment(folder, ports, narrowed);
  const cwd = folder.path;
  const server = new PrivateServer({
    command: join(programs, 'rabbitmq-server'),
    args: [],
    ...{ environment, cwd, logFile: join(folder.path, 'rabbitmq.log') },
  });
  const url = `amqp://guest:guest@127.0.0.1:${ports.amqp}`;
  const managementUrl = managed ? `http://guest:guest@127.0.0.1:${ports.management}` : null;
  const ask = async (): Promise<string> => {
    if (managementUrl) await callManagement(managementUrl, 'GET', '/whoami');
    return askVersion(url);
  };
  const start = async (): Promise<string> => {
    if (server.running) throw new Error('this RabbitMQ runs already');
    server.spawn();
    return server.waitUntilReady('RabbitMQ', ask, READY_WITHIN_MS);
  };
  const ctl = async (args: readonly string[]): Promise<string> => {
    const options = { env: environment, cwd, timeout: CTL_WITHIN_MS, maxBuffer: MAX_CTL_BYTES };
    return (await run(join(programs, 'rabbitmqctl'), ['--quiet', ...args], options)).stdout;
  };
  const version = await start();
  return {
    ...{ way: 'local', url, managementUrl, version, controllable: true, ctl },
    shell: { command: join(programs, 'rabbitmqctl'), env: environment },
    kill: () => server.kill(),
    persistDeclarations: async () => void (await ctl(PERSIST_DECLARATIONS)),
    stop: () => server.stop('SIGTERM', STOP_WITHIN_MS),
    start: async () => void (await start()),
    pause: async () => server.pause(),
    resume: async () => server.resume(),
    async close() {
      // Nothing of it is kept, so there is nothing to flush.
      await server.kill();
      await folder.close();
    },
  };
}

interface PluginFile {
  /** Without its version: `rabbitmq_management`. */
  readonly name: string;
  readonly path: string;
}

/** Empty when the programs are laid out in a way that we do not know; the node then has no management API. */
function pluginsBeside(programs: string): PluginFile[] {
  try {
    return pluginsIn(join(dirname(realpathSync(join(programs, 'rabbitmq-server'))), '..', 'plugins'));
  } catch {
    return [];
  }
}

const pluginsIn = (folder: string): PluginFile[] =>
  readdirSync(folder).map((file) => ({ name: file.replace(/-\d.*$/, ''), path: join(folder, file) }));

/**
 * A node examines every plugin in its folder, enabled or not. A folder with only what is needed was measured to start
 * in 3.6 s instead of 5.3 s. False when there is nothing to narrow.
 */
function linkNeededPlugins(
  present: readonly PluginFile[],
  needed: readonly string[],
  folder: string,
): boolean {
  if (present.length === 0) return false;
  mkdirSync(folder);
  for (const { name, path } of present) {
    if (name.startsWith('rabbitmq_') && !needed.includes(name)) continue;
    symlinkSync(path, join(folder, path.slice(path.lastIndexOf('/') + 1)));
  }
  return true;
}

function writeNodeFiles(
  folder: string,
  ports: Ports,
  plugins: readonly string[],
  settings: Readonly<Record<string, string>>,
): void {
  const managed: Record<string, string> = plugins.includes(MANAGEMENT)
    ? { 'management.tcp.ip': '127.0.0.1', 'management.tcp.port': String(ports.management) }
    : {};
  const all = { 'listeners.tcp.1': `127.0.0.1:${ports.amqp}`, ...SETTINGS, ...managed, ...settings };
  writeFileSync(join(folder, 'rabbitmq.conf'), configurationFile(all));
  writeFileSync(join(folder, 'enabled_plugins'), pluginsFile(plugins));
  writeFileSync(join(folder, 'env.conf'), '');
  writeFileSync(join(folder, '.erlang.cookie'), randomBytes(20).toString('hex'), { mode: 0o400 });
  mkdirSync(join(folder, 'mnesia'));
}

/** Every place where a node would otherwise meet the machine's own: name, cookie, epmd, ports, folders, configuration. */
function nodeEnvironment(folder: ServiceFolder, ports: Ports, narrowed: boolean): NodeJS.ProcessEnv {
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
    // Its schedulers wait for each other in busy loops: with one of them a call takes 1 to 8 s on a machine where it took 13 to 40.
    RABBITMQ_CTL_ERL_ARGS: '+S 1:1 +SDcpu 1:1 +SDio 1 +sbwt none +sbwtdcpu none +sbwtdio none',
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
    ...(narrowed ? { RABBITMQ_PLUGINS_DIR: inside('plugins') } : {}),
    // The start script then replaces itself with the node, so the pid that we signal is the node's.
    RUNNING_UNDER_SYSTEMD: 'true',
  };
}
