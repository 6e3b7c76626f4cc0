/**
 * Delivery by HTTP: sms and push to a gateway at a fixed URL, a webhook to the URL in `to`. The job's id goes along as
 * Idempotency-Key and webhook-id, the same for every try, so that the receiver can tell a repeat.
 */
import type { AddressRules } from '../../src/notify/address.js';
import { DeliveryError, FINAL, LOGIN_REFUSED } from '../../src/notify/fate.js';
import { post } from '../../src/notify/post.js';
import type { Provider } from '../../src/notify/provider.js';
import { webhookHeaders } from '../../src/notify/sign.js';

export interface HttpProviderOptions {
  readonly rules: AddressRules;
  /** Default 10,000. */
  readonly timeoutMs?: number;
  /** Signs what goes out (src/notify/sign.ts). Default: not signed. */
  readonly secret?: Buffer | null;
}

/** `POST <url>/messages {id, channel, to, text}`, as the old service called its gateway. */
export function gatewayProvider(url: string, options: HttpProviderOptions): Provider {
  const endpoint = `${url.replace(/\/+$/, '')}/messages`;
  return {
    name: 'gateway',
    async deliver({ id, channel, to, parts }, { idempotencyKey, signal }) {
      const body = JSON.stringify({ id, channel, to, text: parts.text ?? '' });
      return send(endpoint, body, idempotencyKey, signal, options);
    },
  };
}

/** The rendered body to the URL in `to`. */
export function webhookProvider(options: HttpProviderOptions): Provider {
  return {
    name: 'webhook',
    async deliver({ to, parts }, { idempotencyKey, signal }) {
      try {
        return await send(to, parts.body ?? '{}', idempotencyKey, signal, options);
      } catch (error) {
        // There is no login of ours to mend: the receiver simply says no.
        if (error instanceof DeliveryError && error.fate === LOGIN_REFUSED) {
          throw new DeliveryError(FINAL, error.message);
        }
        throw error;
      }
    },
  };
}

async function send(
  url: string,
  body: string,
  idempotencyKey: string,
  signal: AbortSignal,
  options: HttpProviderOptions,
): Promise<{ providerId: string }> {
  const { secret = null, ...more } = options;
  const { text } = await post({
    url,
    body,
    headers: {
      'content-type': 'application/json',
      ...webhookHeaders(idempotencyKey, body, secret, Date.now()),
    },
    ...more,
    signal,
  });
  return { providerId: idOf(text) ?? idempotencyKey };
}

/** The `id` of a JSON answer, if it is a short string. */
function idOf(text: string): string | null {
  try {
    const id: unknown = (JSON.parse(text) as { id?: unknown } | null)?.id;
    return typeof id === 'string' && id.length <= 200 ? id : null;
  } catch {
    return null;
  }
}
