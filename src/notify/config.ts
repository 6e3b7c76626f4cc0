/**
 * The `notify` section of the config and its check. Pure. Secrets stay out of files: a URL with a password comes from
 * the environment, by `urlEnv` or by process.env in the config itself, which is code.
 */
import { arrayOf, type Checker, invalid, object, oneOf, string } from '../check.js';
import { addressRules } from './address.js';
import { isLocale, isMailAddress } from './message.js';

export interface NotifyConfig {
  /** Folder of the templates, relative to the config file. Without it only payloads with a `body` can be sent. */
  readonly templates?: string;
  /** Last in every locale chain. Default `en`. */
  readonly defaultLocale?: string;
  readonly email?: EmailConfig;
  readonly sms?: GatewayConfig;
  readonly push?: GatewayConfig;
  readonly webhook?: WebhookConfig;
  /** How calls of the `qstash` contract are signed; without it they are not. */
  readonly qstash?: QstashConfig;
  /** Private networks that webhooks, gateways and `relay.http` may call, as `10.1.0.0/16`. Default: none. */
  readonly allowedNetworks?: readonly string[];
}

/** `park` (default): a delivery begun and never confirmed waits for a person; `resend`: it is sent again. */
export type OnAmbiguous = 'park' | 'resend';

export interface EmailConfig {
  readonly provider?: 'smtp';
  /** smtp:// or smtps://; or `urlEnv`. */
  readonly url?: string;
  /** Name of the environment variable that holds the URL. */
  readonly urlEnv?: string;
  /** `Name <address>` or an address. */
  readonly from: string;
  readonly onAmbiguous?: OnAmbiguous;
}

/** `POST <url>/messages`. */
export interface GatewayConfig {
  readonly url?: string;
  readonly urlEnv?: string;
  readonly onAmbiguous?: OnAmbiguous;
}

/** The URL is the `to` of each notification. Default `resend`: receivers know repeats by webhook-id. */
export interface WebhookConfig {
  readonly onAmbiguous?: OnAmbiguous;
}

export interface QstashConfig {
  /** Environment variable with the key that receivers know as their current one. */
  readonly signingKeyEnv: string;
}

const environmentName = string({
  pattern: /^[A-Z_][A-Z0-9_]*$/,
  expected: 'the name of an environment variable',
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
  if (!isMailAddress(address)) throw invalid(path, 'an address, or Name <address>');
  return text;
};

const locale: Checker<string> = (value, path) => {
  if (isLocale(value)) return value;
  throw invalid(path, 'a locale such as en or fr-CA');
};

const networks: Checker<string[]> = (value, path) => {
  const list = arrayOf(string({ maxLength: 60 }), 100)(value, path);
  addressRules(list);
  return list;
};

const onAmbiguous = oneOf('park', 'resend');
const gateway = object({ url: urlOf('http:', 'https:'), urlEnv: environmentName, onAmbiguous });

const shape = object({
  templates: string(),
  defaultLocale: locale,
  email: object(
    {
      provider: oneOf('smtp'),
      url: urlOf('smtp:', 'smtps:'),
      urlEnv: environmentName,
      from: sender,
      onAmbiguous,
    },
    ['from'],
  ),
  sms: gateway,
  push: gateway,
  webhook: object({ onAmbiguous }),
  qstash: object({ signingKeyEnv: environmentName }, ['signingKeyEnv']),
  allowedNetworks: networks,
});

/** Throws `config-invalid` (exit 2), naming the key and what it must be. */
export function checkNotifyConfig(value: unknown, path = 'config.notify'): NotifyConfig {
  const config = shape(value, path);
  for (const channel of ['email', 'sms', 'push'] as const) {
    const section = config[channel];
    if (section !== undefined && (section.url === undefined) === (section.urlEnv === undefined))
      throw invalid(`${path}.${channel}`, 'given exactly one of url and urlEnv');
  }
  return config as NotifyConfig;
}
