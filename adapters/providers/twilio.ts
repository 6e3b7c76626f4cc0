/**
 * Text messages over Twilio's HTTP API: a form to `/2010-04-01/Accounts/<sid>/Messages.json`. It knows no key for repeats,
 * so a call without an answer may have been taken.
 */
import type { AddressRules } from '../../src/notify/address.js';
import { DeliveryError, httpFate } from '../../src/notify/fate.js';
import { call } from '../../src/notify/post.js';
import type { Provider } from '../../src/notify/provider.js';

export interface TwilioOptions {
  readonly accountSid: string;
  readonly token: string;
  /** A number, or the sid of a messaging service (MG…). */
  readonly from: string;
  readonly rules: AddressRules;
  /** Default https://api.twilio.com. */
  readonly url?: string | undefined;
  /** Default 10,000. */
  readonly timeoutMs?: number;
}

export function twilioProvider(options: TwilioOptions): Provider {
  const { accountSid, token, from, url = 'https://api.twilio.com', rules, timeoutMs } = options;
  const endpoint = `${url.replace(/\/+$/, '')}/2010-04-01/Accounts/${encodeURIComponent(accountSid)}/Messages.json`;
  const authorization = `Basic ${Buffer.from(`${accountSid}:${token}`).toString('base64')}`;
  return {
    name: 'twilio',
    async deliver({ id, to, parts }, { signal }) {
      const form = new URLSearchParams({
        To: to,
        [from.startsWith('MG') ? 'MessagingServiceSid' : 'From']: from,
        Body: parts.text ?? '',
      });
      const { status, headers, text } = await call({
        url: endpoint,
        body: form.toString(),
        headers: { authorization, 'content-type': 'application/x-www-form-urlencoded' },
        rules,
        ...(timeoutMs === undefined ? {} : { timeoutMs }),
        signal,
      });
      const answer = parsed(text);
      const fate = httpFate(status, headers['retry-after'], Date.now());
      // Their code says more than the status, and is a number: it can quote nobody.
      const code = typeof answer['code'] === 'number' ? `, code ${answer['code']}` : '';
      if (fate !== null) throw new DeliveryError(fate, `HTTP ${status} from Twilio${code}`);
      const { sid } = answer;
      return { providerId: typeof sid === 'string' ? sid.slice(0, 200) : id };
    },
  };
}

function parsed(text: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}
