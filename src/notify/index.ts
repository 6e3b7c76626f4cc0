/**
 * The notification part put together: from its config to the handlers that a worker mounts, and to what the HTTP door
 * needs to refuse early. Providers are chosen here and nowhere else.
 */
import { resolve } from 'node:path';
import { smtpProvider } from '../../adapters/providers/smtp.js';
import { gatewayProvider, webhookProvider } from '../../adapters/providers/webhook.js';
import { createEnqueue } from '../enqueue.js';
import { EXIT, UnbrokerError } from '../errors.js';
import type { KindOptions } from '../jobs/handler.js';
import type { Queryable } from '../jobs/job.js';
import { DEFAULT_SCHEMA } from '../jobs/schema-name.js';
import { type AddressRules, addressRules } from './address.js';
import type { NotifyConfig } from './config.js';
import { deliveryHandler } from './handler.js';
import { CHANNELS, type Channel } from './message.js';
import type { Provider } from './provider.js';
import { qstashHandler } from './qstash.js';
import { relayHandler } from './relay.js';
import { QSTASH_DELIVER, RELAY_HTTP } from './relay-kind.js';
import { createRendering, type Rendering, tableOf } from './rendering.js';
import { templateFiles } from './template-files.js';

export { checkNotifyConfig, type NotifyConfig } from './config.js';
export { RELAY_HTTP } from './relay-kind.js';

export interface NotifyOptions {
  readonly config: NotifyConfig;
  /** Where relative paths start: the folder of the config file. */
  readonly directory: string;
  /** Default process.env. */
  readonly environment?: Readonly<Record<string, string | undefined>>;
  /** Where templates that were pushed are; absent: only files. */
  readonly db?: Queryable;
  /** Default `unbroker`. */
  readonly schema?: string;
}

/** Kinds that these handlers serve, whatever is configured: `relay.http` and `notify.<channel>`. */
export const NOTIFY_KINDS: readonly string[] = [
  RELAY_HTTP,
  QSTASH_DELIVER,
  ...CHANNELS.map((channel) => `notify.${channel}`),
];

/**
 * `notify.<channel>` for each configured channel, and `relay.http`. Throws UnbrokerError: templates-missing,
 * provider-url-missing, provider-url-invalid.
 */
export function createNotifyHandlers(options: NotifyOptions): Record<string, KindOptions> {
  const { config } = options;
  const rules = notifyAddressRules(config);
  const rendering = notifyRendering(options);
  const { enqueue } = createEnqueue(options.schema);
  const signingKey = signingKeyOf(options);
  const handlers: Record<string, KindOptions> = {
    [RELAY_HTTP]: relayHandler(rules),
    [QSTASH_DELIVER]: qstashHandler({ rules, signingKey, db: options.db, enqueueJob: enqueue }),
  };
  for (const channel of configuredChannels(config)) {
    const provider = createProvider(channel, options, rules);
    const onAmbiguous = config[channel]?.onAmbiguous ?? (channel === 'webhook' ? 'resend' : 'park');
    handlers[`notify.${channel}`] = deliveryHandler({ channel, provider, rendering, onAmbiguous });
  }
  return handlers;
}

function signingKeyOf({ config, environment = process.env }: NotifyOptions): string | null {
  if (config.qstash === undefined) return null;
  const { signingKeyEnv } = config.qstash;
  const key = environment[signingKeyEnv];
  if (key !== undefined && key.length >= 16) return key;
  throw new UnbrokerError('signing-key-missing', 'The key that signs QStash calls is not set or too short', {
    hint: `Set ${signingKeyEnv} to at least 16 characters, for example from: openssl rand -hex 32`,
    exitStatus: EXIT.badInput,
  });
}

export function configuredChannels(config: NotifyConfig): Channel[] {
  return CHANNELS.filter((channel) => config[channel] !== undefined);
}

/** null without a templates folder and without a database. */
export function notifyRendering({ config, directory, db, schema }: NotifyOptions): Rendering | null {
  const { templates, defaultLocale } = config;
  if (templates === undefined && db === undefined) return null;
  const files = templates === undefined ? null : templateFiles(resolve(directory, templates));
  return createRendering({ files, table: tableOf(db, schema ?? DEFAULT_SCHEMA), defaultLocale });
}

export function notifyAddressRules(config: NotifyConfig): AddressRules {
  return addressRules(config.allowedNetworks);
}

function createProvider(channel: Channel, options: NotifyOptions, rules: AddressRules): Provider {
  if (channel === 'webhook') return webhookProvider({ rules });
  const url = providerUrl(channel, options);
  if (channel !== 'email') return gatewayProvider(url, { rules });
  return smtpProvider({ url, from: options.config.email?.from ?? '' });
}

function providerUrl(channel: 'email' | 'sms' | 'push', options: NotifyOptions): string {
  const { url, urlEnv = '' } = options.config[channel] ?? {};
  if (url !== undefined) return url;
  const value = (options.environment ?? process.env)[urlEnv];
  const protocols = channel === 'email' ? ['smtp:', 'smtps:'] : ['http:', 'https:'];
  if (value === undefined || value === '') {
    throw new UnbrokerError('provider-url-missing', `The URL of the ${channel} provider is not set`, {
      hint: `Set ${urlEnv}, which notify.${channel}.urlEnv names.`,
      exitStatus: EXIT.badInput,
    });
  }
  if (URL.canParse(value) && protocols.includes(new URL(value).protocol)) return value;
  throw new UnbrokerError('provider-url-invalid', `${urlEnv} is not a URL for ${channel}`, {
    hint: `Write it as ${protocols[0]}//host:port.`,
    exitStatus: EXIT.badInput,
  });
}
