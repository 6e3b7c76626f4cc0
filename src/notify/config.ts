/**
 * The `notify` section of the config and its check. Pure. Secrets stay out of files: a URL with a password comes from
 * the environment, by `urlEnv` or by process.env in the config itself, which is code.
 */
import { arrayOf, type Checker, integer, invalid, object, oneOf, string } from '../check.js';
import { addressRules } from './address.js';
import type { GateLimits } from './gate.js';
import { hasControls, isLocale, isMailAddress } from './message.js';

export interface NotifyConfig {
  /** Folder of the templates, relative to the config file. Without it only payloads with a `body` can be sent. */
  readonly templates?: string;
  /** Last in every locale chain. Default `en`. */
  readonly defaultLocale?: string;
  readonly email?: EmailConfig;
  readonly sms?: SmsConfig;
  readonly push?: GatewayConfig;
  readonly webhook?: WebhookConfig;
  /** `sent`, `failed` and `retrying` go to RabbitMQ through jobs of kind relay.amqp; absent: nowhere. */
  readonly statusEvents?: StatusConfig;
  /** How calls of the `qstash` contract are signed; without it they are not. */
  readonly qstash?: QstashConfig;
  /** Name of the environment variable with the secret that signs webhooks and `relay.http`; without it they are not. */
  readonly webhookSecretEnv?: string;
  /** Private networks that webhooks, gateways and `relay.http` may call, as `10.1.0.0/16`. Default: none. */
  readonly allowedNetworks?: readonly string[];
}

/** `park` (default): a delivery begun and never confirmed waits for a person; `resend`: it is sent again. */
export type OnAmbiguous = 'park' | 'resend';

/** What a channel's deliveries keep to, all workers together. */
export interface ChannelLimits {
  readonly limits?: GateLimits;
  readonly onAmbiguous?: OnAmbiguous;
}

export interface SmtpConfig {
  readonly provider?: 'smtp';
  /** smtp:// or smtps://; or `urlEnv`. */
  readonly url?: string;
  /** Name of the environment variable that holds the URL. */
  readonly urlEnv?: string;
  /** `Name <address>` or an address. */
  readonly from: string;
}

export interface SendgridConfig {
  readonly provider: 'sendgrid';
  /** Name of the environment variable that holds the API key. */
  readonly keyEnv: string;
  /** Default https://api.sendgrid.com. */
  readonly url?: string;
  readonly from: string;
}

/** One provider, or several in the order they are asked. */
export type EmailConfig = ChannelLimits &
  (SmtpConfig | SendgridConfig | { readonly providers: readonly (SmtpConfig | SendgridConfig)[] });

/** `POST <url>/messages`. */
export interface HttpGatewayConfig {
  readonly provider?: 'gateway';
  readonly url?: string;
  readonly urlEnv?: string;
}

export interface TwilioConfig {
  readonly provider: 'twilio';
  readonly accountSid: string;
  /** Name of the environment variable that holds the auth token. */
  readonly tokenEnv: string;
  /** A number, or a messaging service's sid. */
  readonly from: string;
  /** Default https://api.twilio.com. */
  readonly url?: string;
}

export type SmsConfig = ChannelLimits &
  (HttpGatewayConfig | TwilioConfig | { readonly providers: readonly (HttpGatewayConfig | TwilioConfig)[] });

export type GatewayConfig = ChannelLimits & HttpGatewayConfig;

/** Where each notification's status is published, as the old service did. */
export interface StatusConfig {
  /** Default `notification.status`; routing key `status.<state>`. */
  readonly exchange?: string;
}

/** The URL is the `to` of each notification. Default `resend`: receivers know repeats by webhook-id. */
export type WebhookConfig = ChannelLimits;

export interface QstashConfig {
  /** Environment variable with the key that receivers know as their current one. */
  readonly signingKeyEnv: string;
}

const environmentName = string({
  pattern: /^[A-Z_][A-Z0-9_]*$/,
  expected: 'the name of an environment variable, in capitals',
});

const urlOf =
  (...protocols: readonly string[]): Checker<string> =>
  (value, path) => {
    const text = string({ maxLength: 2_000 })(value, path);
    const protocol = URL.canParse(text) ? new URL(text).protocol : '';
    if (protocols.includes(protocol)) return text;
    throw invalid(path, `a URL that starts with ${protocols.map((name) => `${name}//`).join(' or ')}`);
  };

const sender: Checker<string> = (value, path) => {
  const text = string({ maxLength: 320 })(value, path);
  const address = /<([^<>]+)>$/.exec(text)?.[1] ?? text;
  if (!isMailAddress(address) || hasControls(text)) throw invalid(path, 'an address, or Name <address>');
  return text;
};

const locale: Checker<string> = (value, path) => {
  if (isLocale(value)) return value;
  throw invalid(path, 'a locale such as en or fr-CA');
};

const network: Checker<string> = (value, path) => {
  const text = string({ maxLength: 60 })(value, path);
  try {
    addressRules([text]);
  } catch {
    throw invalid(path, 'a network as address/bits, for example 10.1.0.0/16 or 127.0.0.1/32');
  }
  return text;
};

const limitShape = object({
  maxPerSecond: integer(1, 100_000),
  maxBurst: integer(1, 100_000),
  maxPerRecipient: object({ count: integer(1, 100_000), windowMs: integer(1_000, 31 * 86_400_000) }, [
    'count',
    'windowMs',
  ]),
  breaker: object({ failures: integer(1, 1_000), openMs: integer(100, 86_400_000) }, ['failures', 'openMs']),
});
const limits: Checker<GateLimits> = (value, path) => {
  const checked = limitShape(value, path);
  if (checked.maxBurst !== undefined && checked.maxPerSecond === undefined)
    throw invalid(`${path}.maxBurst`, 'given beside maxPerSecond');
  return checked;
};
const channel = { onAmbiguous: oneOf('park', 'resend'), limits };
const httpUrl = urlOf('http:', 'https:');

const sections = {
  smtp: { provider: oneOf('smtp'), url: urlOf('smtp:', 'smtps:'), urlEnv: environmentName, from: sender },
  sendgrid: { provider: oneOf('sendgrid'), keyEnv: environmentName, url: httpUrl, from: sender },
  gateway: { provider: oneOf('gateway'), url: httpUrl, urlEnv: environmentName },
  twilio: {
    provider: oneOf('twilio'),
    accountSid: string({ pattern: /^[A-Za-z0-9]{1,64}$/, expected: 'letters and digits' }),
    tokenEnv: environmentName,
    from: string({ maxLength: 64 }),
    url: httpUrl,
  },
} as const;

type Section = keyof typeof sections;

const NEEDED: Readonly<Record<Section, readonly string[]>> = {
  smtp: ['from'],
  sendgrid: ['keyEnv', 'from'],
  gateway: [],
  twilio: ['accountSid', 'tokenEnv', 'from'],
};

/** One of these providers, named by `provider` (default the first); or `providers`, a list of them. */
function providersOf(first: Section, second: Section): Checker<unknown> {
  const one = (value: unknown, path: string, more: object): unknown => {
    const { provider = first } = (value ?? {}) as { provider?: unknown };
    if (provider !== first && provider !== second) throw invalid(`${path}.provider`, `${first} or ${second}`);
    const name: Section = provider === second ? second : first;
    const checked = object({ ...sections[name], ...more }, NEEDED[name] as never)(value, path);
    const { url, urlEnv } = checked as { url?: string; urlEnv?: string };
    const hasUrl = provider === 'smtp' || provider === 'gateway';
    if (hasUrl && (url === undefined) === (urlEnv === undefined))
      throw invalid(path, 'given exactly one of url and urlEnv');
    return checked;
  };
  return (value, path) => {
    const isList = typeof value === 'object' && value !== null && 'providers' in value;
    if (!isList) return one(value, path, channel);
    const each: Checker<unknown> = (item, at) => one(item, at, {});
    const checked = object({ providers: arrayOf(each, 10), ...channel }, ['providers'])(value, path);
    if (checked.providers.length === 0) throw invalid(`${path}.providers`, 'at least one');
    const names = checked.providers.map((item) => (item as { provider?: string }).provider ?? first);
    if (new Set(names).size !== names.length) throw invalid(`${path}.providers`, 'each provider once');
    return checked;
  };
}

const shape = object({
  templates: string(),
  defaultLocale: locale,
  email: providersOf('smtp', 'sendgrid'),
  sms: providersOf('gateway', 'twilio'),
  push: object({ ...sections.gateway, ...channel }),
  webhook: object(channel),
  statusEvents: object({ exchange: string({ maxLength: 255 }) }),
  qstash: object({ signingKeyEnv: environmentName }, ['signingKeyEnv']),
  webhookSecretEnv: environmentName,
  allowedNetworks: arrayOf(network, 100),
});

/** Throws `config-invalid` (exit 2), naming the key and what it must be. */
export function checkNotifyConfig(value: unknown, path = 'config.notify'): NotifyConfig {
  const config = shape(value, path);
  const { push } = config;
  if (push !== undefined && (push.url === undefined) === (push.urlEnv === undefined))
    throw invalid(`${path}.push`, 'given exactly one of url and urlEnv');
  return config as NotifyConfig;
}
