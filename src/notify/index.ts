/**
 * The notification part put together: from its config to the handlers that a worker mounts, and to what the HTTP door
 * needs to refuse early. Providers are chosen here and nowhere else.
 */
import { resolve } from 'node:path';
import { sendgridProvider } from '../../adapters/providers/sendgrid.js';
import { smtpProvider } from '../../adapters/providers/smtp.js';
import { twilioProvider } from '../../adapters/providers/twilio.js';
import { gatewayProvider, webhookProvider } from '../../adapters/providers/webhook.js';
import { createEnqueue } from '../enqueue.js';
import { EXIT, UnbrokerError } from '../errors.js';
import type { KindOptions } from '../jobs/handler.js';
import type { Queryable } from '../jobs/job.js';
import { DEFAULT_SCHEMA } from '../jobs/schema-name.js';
import { type AddressRules, addressRules } from './address.js';
import type { HttpGatewayConfig, NotifyConfig, SendgridConfig, SmtpConfig, TwilioConfig } from './config.js';
import { createGate, OPEN_GATE } from './gate.js';
import { deliveryHandler } from './handler.js';
import { CHANNELS, type Channel } from './message.js';
import type { Provider } from './provider.js';
import { qstashHandler } from './qstash.js';
import { relayHandler } from './relay.js';
import { QSTASH_DELIVER, RELAY_HTTP } from './relay-kind.js';
import { createRendering, type Rendering, tableOf } from './rendering.js';
import { secretBytes } from './sign.js';
import { statusTeller } from './status-events.js';
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
    [RELAY_HTTP]: relayHandler(rules, webhookSecretOf(options)),
    [QSTASH_DELIVER]: qstashHandler({ rules, signingKey, db: options.db, enqueueJob: enqueue }),
  };
  const gate =
    options.db === undefined ? OPEN_GATE : createGate(options.db, options.schema ?? DEFAULT_SCHEMA);
  const onStatus = statusTeller(options);
  for (const channel of configuredChannels(config)) {
    const section = config[channel];
    handlers[`notify.${channel}`] = deliveryHandler({
      channel,
      providers: createProviders(channel, options, rules),
      rendering,
      onAmbiguous: section?.onAmbiguous ?? (channel === 'webhook' ? 'resend' : 'park'),
      gate,
      limits: section?.limits ?? {},
      ...(onStatus === null ? {} : { onStatus }),
    });
  }
  return handlers;
}

function webhookSecretOf({ config, environment = process.env }: NotifyOptions): Buffer | null {
  if (config.webhookSecretEnv === undefined) return null;
  const secret = secretBytes(environment[config.webhookSecretEnv] ?? '');
  if (secret.length >= 16) return secret;
  throw new UnbrokerError(
    'webhook-secret-missing',
    'The secret that signs webhooks is not set or too short',
    {
      hint: `Set ${config.webhookSecretEnv} to whsec_ and the base64 of at least 16 bytes.`,
      exitStatus: EXIT.badInput,
    },
  );
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

/** null without a templates folder and without a database. `keepFiles`: as in RenderingOptions. */
export function notifyRendering(
  { config, directory, db, schema }: NotifyOptions,
  keepFiles = false,
): Rendering | null {
  const { templates, defaultLocale } = config;
  if (templates === undefined && db === undefined) return null;
  const files = templates === undefined ? null : templateFiles(resolve(directory, templates));
  return createRendering({ files, table: tableOf(db, schema ?? DEFAULT_SCHEMA), defaultLocale, keepFiles });
}

export function notifyAddressRules(config: NotifyConfig): AddressRules {
  return addressRules(config.allowedNetworks);
}

function createProviders(channel: Channel, options: NotifyOptions, rules: AddressRules): Provider[] {
  const { email, sms, push } = options.config;
  const listed = <T extends object>(section: T | { readonly providers: readonly T[] }): readonly T[] =>
    'providers' in section ? section.providers : [section];
  if (channel === 'webhook') return [webhookProvider({ rules, secret: webhookSecretOf(options) })];
  if (channel === 'email')
    return listed<SmtpConfig | SendgridConfig>(email ?? { providers: [] }).map((section) =>
      section.provider === 'sendgrid'
        ? sendgridProvider({ ...section, key: secretOf(section.keyEnv, options), rules })
        : smtpProvider({ url: providerUrl(channel, section, options), from: section.from }),
    );
  const sections = channel === 'sms' ? (sms ?? { providers: [] }) : (push ?? { providers: [] });
  return listed<HttpGatewayConfig | TwilioConfig>(sections).map((section) =>
    section.provider === 'twilio'
      ? twilioProvider({ ...section, token: secretOf(section.tokenEnv, options), rules })
      : gatewayProvider(providerUrl(channel, section, options), { rules }),
  );
}

function secretOf(name: string, { environment = process.env }: NotifyOptions): string {
  const value = environment[name];
  if (value !== undefined && value !== '') return value;
  throw new UnbrokerError('provider-key-missing', 'The key of a provider is not set', {
    hint: `Set ${name}, which the notify section of the config names.`,
    exitStatus: EXIT.badInput,
  });
}

function providerUrl(
  channel: 'email' | 'sms' | 'push',
  { url, urlEnv = '' }: { readonly url?: string; readonly urlEnv?: string },
  { environment = process.env }: NotifyOptions,
): string {
  if (url !== undefined) return url;
  const value = environment[urlEnv];
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
