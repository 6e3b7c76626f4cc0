/**
 * The HTTP door put together: from the config to a server that can listen. Contracts are listed here and nowhere else.
 */
import { RELAY_AMQP } from '../../adapters/rabbitmq/relay-kind.js';
import { EXIT, UnbrokerError } from '../errors.js';
import type { Store } from '../jobs/store.js';
import { Sweeper } from '../jobs/sweeper.js';
import { refuseReadOnly } from '../jobs/writable.js';
import { errorFields, type Log } from '../log.js';
import { refuseUrl } from '../notify/address.js';
import type { NotifyConfig } from '../notify/config.js';
import { configuredChannels, NOTIFY_KINDS, notifyAddressRules, notifyRendering } from '../notify/index.js';
import type { Rendering } from '../notify/rendering.js';
import { createSuppressions } from '../notify/suppressions.js';
import { createTemplateTable } from '../notify/template-table.js';
import { createSchedules } from '../schedules.js';
import { type ApiKey, digestOf } from './auth.js';
import type { KeyConfig, ServeConfig } from './config.js';
import { type Contract, type ContractContext, refuseSharedRoutes } from './contract.js';
import { Core, type CorePool } from './core.js';
import { govukNotifyContract } from './govuk-notify.js';
import { qstashContracts } from './qstash/index.js';
import { createRequests } from './requests.js';
import { createShimServer, type ShimServer, type ShimServerOptions } from './server.js';
import { readTls } from './tls-files.js';
import { notificationContract } from './trio/notification.js';
import { retryContract } from './trio/retry.js';
import { schedulingContract } from './trio/scheduling.js';

export interface ShimsOptions {
  readonly pool: CorePool;
  readonly store: Store;
  readonly serve: ServeConfig;
  /** undefined: this installation does not say which channels and templates there are. */
  readonly notify: NotifyConfig | undefined;
  /** Where relative paths start: the folder of the config file. */
  readonly directory: string;
  readonly log: Log;
  /** Default process.env. */
  readonly environment?: Readonly<Record<string, string | undefined>>;
  /** What the modules named in serve.contracts export. */
  readonly contracts?: readonly Contract[];
  readonly limits?: ShimServerOptions['limits'];
  readonly onAnswered?: ShimServerOptions['onAnswered'];
}

const BUILT_IN: Readonly<Record<string, readonly Contract[]>> = {
  trio: [notificationContract, schedulingContract, retryContract],
  qstash: qstashContracts,
  'govuk-notify': [govukNotifyContract],
};

const PRUNE_EVERY_MS = 60_000;
const PRUNE_BATCH = 1_000;

/** Throws UnbrokerError: contract-invalid, key-missing, keys-needed, templates-missing, tls-unreadable. `host` is where it will listen. */
export function createShims(options: ShimsOptions, host: string): ShimServer {
  const { pool, store, serve, log, environment = process.env } = options;
  const keys = (serve.keys ?? []).map((key) => readKey(key, environment));
  if (keys.length === 0) refuseOpenDoor(host, log);
  const kinds = [
    ...new Set([...NOTIFY_KINDS, ...(serve.kinds ?? []), ...Object.values(serve.targets ?? {})]),
  ];
  const requests = createRequests(store.schema);
  const rendering = renderingOf(options);
  const contracts = [
    ...(serve.contracts ?? ['trio']).flatMap((name) => BUILT_IN[name] ?? []),
    ...(options.contracts ?? []),
  ];
  refuseSharedRoutes(contracts);
  const server = createShimServer({
    contracts,
    context: contextOf(options, kinds, rendering),
    core: new Core({
      pool,
      store,
      requests,
      kinds,
      schedules: createSchedules(store.schema),
      templates: createTemplateTable(store.schema),
      suppressions: createSuppressions(store.schema),
      onTemplate: (key) => rendering?.forget(key),
    }),
    ...(rendering === null ? {} : { loadTemplate: rendering.load }),
    keys,
    ...(serve.tls === undefined ? {} : { tls: readTls(serve.tls, options.directory, log) }),
    log,
    ping: () => refuseReadOnly(pool),
    onAnswered: options.onAnswered,
    limits: {
      ...(serve.maxConnections === undefined ? {} : { connections: serve.maxConnections }),
      ...options.limits,
    },
  });
  const pruning = new Sweeper({
    // A full batch: there are more. A thousand a minute, and no more, grew with every door that was asked more often.
    sweep: async () => (await requests.prune(pool, PRUNE_BATCH)) === PRUNE_BATCH,
    everyMs: PRUNE_EVERY_MS,
    onError: (error) =>
      log.warn(errorFields(error), 'old answers could not be removed; tried again in a minute'),
  });
  pruning.start(PRUNE_EVERY_MS);
  return {
    ready: () => server.ready(),
    listen: (address) => server.listen(address),
    async close(closing) {
      pruning.stop();
      await server.close(closing);
    },
  };
}

/** null: which templates there are is not known here. */
function renderingOf({ notify, directory, pool, store }: ShimsOptions): Rendering | null {
  if (notify === undefined) return null;
  return notifyRendering({ config: notify, directory, db: pool, schema: store.schema }, true);
}

function contextOf(
  { serve, notify }: ShimsOptions,
  kinds: readonly string[],
  rendering: Rendering | null,
): ContractContext {
  // Where one queue may be published to, a client must not choose another.
  const known = new Set(kinds.filter((kind) => kind !== RELAY_AMQP || serve.kinds?.includes(kind)));
  const rules = notifyAddressRules(notify ?? {});
  return {
    knowsKind: (kind) => known.has(kind),
    targets: serve.targets ?? {},
    channels: notify === undefined ? null : configuredChannels(notify),
    renderer: rendering?.renderer ?? null,
    refuseUrl: (url) => refuseUrl(url, rules),
  };
}

function readKey(
  { name, env, sha256, certificate, hmac, services, verbs, kinds }: KeyConfig,
  environment: Readonly<Record<string, string | undefined>>,
): ApiKey {
  const grants = {
    ...(services === undefined ? {} : { services }),
    ...(verbs === undefined ? {} : { verbs }),
    ...(kinds === undefined ? {} : { kinds }),
  };
  if (certificate !== undefined)
    return { name, grants, digest: Buffer.from(certificate, 'hex'), scheme: 'certificate' };
  if (sha256 !== undefined) return { name, grants, digest: Buffer.from(sha256, 'hex') };
  const value = environment[env ?? ''] ?? '';
  if (value.length >= MIN_KEY_LENGTH)
    return {
      name,
      grants,
      digest: digestOf(value),
      secret: value,
      scheme: hmac === true ? 'hmac' : 'secret',
    };
  throw new UnbrokerError('key-missing', `The API key of ${name} is not set or too short`, {
    hint: `Set ${env} to at least ${MIN_KEY_LENGTH} characters, for example from: openssl rand -hex 32`,
    exitStatus: EXIT.badInput,
  });
}

const MIN_KEY_LENGTH = 16;

function refuseOpenDoor(host: string, log: Log): void {
  if (host === 'localhost' || host === '::1' || /^127(?:\.\d{1,3}){3}$/.test(host)) {
    log.warn({ host }, 'no API keys are configured: every process on this machine may use this server');
    return;
  }
  throw new UnbrokerError('keys-needed', 'Without API keys only this machine can be served', {
    hint: 'Add serve.keys to the config, or listen on 127.0.0.1.',
    exitStatus: EXIT.badInput,
  });
}
