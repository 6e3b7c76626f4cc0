/**
 * What a RabbitMQ for tests is, whichever way it came: its options, what one can do to it, and how it is asked for its
 * version. It starts nothing.
 */
import amqp from 'amqplib';

export type RabbitWay = 'url' | 'docker' | 'local';

export interface RabbitOptions {
  /** Only this way. Default: UNBROKER_TEST_RABBITMQ, else the first that works of url, docker, local. */
  readonly way?: RabbitWay | undefined;
  /** Default false. True: never the broker behind UNBROKER_TEST_AMQP_URL, because the caller will kill it. */
  readonly controllable?: boolean;
  /** More plugins than `rabbitmq_management`; starting fails when one is not there. */
  readonly plugins?: readonly string[];
  /** A folder with plugins that do not come with RabbitMQ, one folder each; local brokers only. */
  readonly pluginsFolder?: string;
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
  /** False for a broker that was given to us: kill, stop, start, pause, resume, persistDeclarations and ctl then reject. */
  readonly controllable: boolean;
  /**
   * SIGKILL to the node. A durable queue declared within the last two seconds may be gone after that, with the
   * confirmed messages in it: see `persistDeclarations`.
   */
  kill(): Promise<void>;
  /**
   * Makes what was declared so far safe from `kill`. RabbitMQ 3 answers a declaration once it is in Mnesia's log, but
   * the note that it was committed may stay in a write cache; without it the next start takes the declaration back
   * (seen once in 30 kills on a busy machine). For tests about messages, not about declarations.
   */
  persistDeclarations(): Promise<void>;
  /** An orderly shutdown, which takes RabbitMQ about six seconds. */
  stop(): Promise<void>;
  /** The same ports and data. */
  start(): Promise<void>;
  /** SIGSTOP: connections stay open, nothing answers. */
  pause(): Promise<void>;
  resume(): Promise<void>;
  /** rabbitmqctl on this node (about a second each); resolves to what it printed. */
  ctl(args: readonly string[]): Promise<string>;
  /** How a child process runs rabbitmqctl on this node: a command without blanks and what its environment must have. */
  readonly shell?: { readonly command: string; readonly env: NodeJS.ProcessEnv };
  /** Ends a private node, also a paused one, and removes its folder; leaves a given one alone. */
  close(): Promise<void>;
}

/** Settings of every broker that we start. A busy or small disk must not block publishers: that is a test of its own. */
export const SETTINGS: Readonly<Record<string, string>> = { 'disk_free_limit.absolute': '50MB' };

/** rabbitmq.conf syntax, also of the files in conf.d. */
export function configurationFile(settings: Readonly<Record<string, string>>): string {
  return Object.entries(settings)
    .map(([name, value]) => `${name} = ${value}\n`)
    .join('');
}

/** For rabbitmqctl. Where declarations are not in Mnesia (RabbitMQ 4 with Khepri) it does nothing, and nothing is needed. */
export const PERSIST_DECLARATIONS = ['eval', 'catch mnesia:sync_log().'] as const;

export function pluginsFile(plugins: readonly string[]): string {
  return `[${plugins.join(',')}].\n`;
}

/** Rejects while the broker does not accept connections. */
export async function askVersion(url: string): Promise<string> {
  const connection = await amqp.connect(url, { timeout: 10_000 });
  connection.on('error', () => {});
  const { version } = connection.connection.serverProperties;
  await connection.close().catch(() => {});
  return String(version);
}
