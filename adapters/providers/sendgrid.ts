/**
 * Mail over SendGrid's HTTP API: `POST /v3/mail/send`. It knows no key for repeats, so a call without an answer may have
 * been taken; the job's id goes along as a header and as custom_args for whoever looks.
 */
import type { AddressRules } from '../../src/notify/address.js';
import { DeliveryError, FINAL, httpFate } from '../../src/notify/fate.js';
import { mailboxOf } from '../../src/notify/message.js';
import { call } from '../../src/notify/post.js';
import type { Provider } from '../../src/notify/provider.js';
import { parseFrom, unsubscribeHeaders } from './smtp.js';

export interface SendgridOptions {
  readonly key: string;
  /** `Name <address>` or an address. */
  readonly from: string;
  readonly rules: AddressRules;
  /** Default https://api.sendgrid.com. */
  readonly url?: string | undefined;
  /** Default 10,000. */
  readonly timeoutMs?: number;
}

export function sendgridProvider({
  key,
  url = 'https://api.sendgrid.com',
  ...options
}: SendgridOptions): Provider {
  const { name, address } = parseFrom(options.from);
  const endpoint = `${url.replace(/\/+$/, '')}/v3/mail/send`;
  return {
    name: 'sendgrid',
    async deliver(message, { signal }) {
      const { text, html, subject = '' } = message.parts;
      const email = mailboxOf(message.to);
      if (email === null) throw new DeliveryError(FINAL, 'the recipient is not one mail address');
      const content = [
        ...(text === undefined ? [] : [{ type: 'text/plain', value: text }]),
        ...(html === undefined ? [] : [{ type: 'text/html', value: html }]),
      ];
      const body = JSON.stringify({
        personalizations: [{ to: [{ email }], custom_args: { notification_id: message.id } }],
        from: { email: address, ...(name === '' ? {} : { name }) },
        subject,
        content,
        headers: { 'X-Notification-Id': message.id, ...unsubscribeHeaders(message) },
      });
      const { status, headers } = await call({
        url: endpoint,
        body,
        headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
        rules: options.rules,
        ...(options.timeoutMs === undefined ? {} : { timeoutMs: options.timeoutMs }),
        signal,
      });
      const nowMs = Date.now();
      const fate = httpFate(status, headers['retry-after'] ?? untilReset(headers, nowMs), nowMs);
      if (fate !== null) throw new DeliveryError(fate, `HTTP ${status} from SendGrid`);
      const id = headers['x-message-id'];
      return { providerId: typeof id === 'string' ? id.slice(0, 200) : message.id };
    },
  };
}

/** `X-RateLimit-Reset`: the second, since 1970, from which calls are taken again. As seconds from now. */
function untilReset(
  headers: Readonly<Record<string, string | string[] | undefined>>,
  nowMs: number,
): string | undefined {
  const reset = headers['x-ratelimit-reset'];
  if (typeof reset !== 'string' || !/^\d{9,11}$/.test(reset)) return undefined;
  return String(Math.max(0, Number(reset) - Math.floor(nowMs / 1_000)));
}
