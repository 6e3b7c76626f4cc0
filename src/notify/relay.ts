/**
 * The handler of `relay.http`: call a URL with what the job carries. What the old scheduler did with `target: {url}` and
 * the old retry service with a failed call. Not confirmed means called again: the receiver knows repeats by the id.
 */

import { refuseExpired } from '../jobs/expiry.js';
import type { HandlerContext, HandlerJob, KindOptions } from '../jobs/handler.js';
import { Discard, Snooze } from '../jobs/settle.js';
import { type ObjectNode, objectText, readJson } from '../json-text.js';
import type { AddressRules } from './address.js';
import { DeliveryError, deferralsOf, LOGIN_REFUSED, MAX_DEFERRALS } from './fate.js';
import { post } from './post.js';
import { refuseHeaders } from './relay-kind.js';
import { webhookHeaders } from './sign.js';

const MAX_RETRY_AFTER_MS = 3_600_000;

/** `secret`: signs the calls; null does not. */
export function relayHandler(rules: AddressRules, secret: Buffer | null = null): KindOptions {
  return {
    async handle(job, context) {
      const request = read(job);
      await refuseExpired(job.headers, context.databaseNow);
      try {
        const { status } = await call(request, job, context, rules, secret);
        return { status };
      } catch (error) {
        throw await meaning(error, job, context);
      }
    },
  };
}

interface Call {
  readonly url: string;
  readonly method: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | Buffer;
}

function call(
  request: Call,
  job: HandlerJob,
  context: HandlerContext,
  rules: AddressRules,
  secret: Buffer | null,
) {
  const headers = {
    'content-type': 'application/json',
    ...request.headers,
    ...webhookHeaders(job.id, request.body, secret, Date.now()),
  };
  return post({ ...request, headers, rules, signal: context.signal });
}

/** 4xx ends it, as it did in the old services; a Retry-After is kept to; anything else is tried again. */
async function meaning(error: unknown, job: HandlerJob, context: HandlerContext): Promise<unknown> {
  if (!(error instanceof DeliveryError)) return error;
  const { fate } = error;
  if (fate.type === 'final' || fate === LOGIN_REFUSED) return new Discard(error.message, 'relay-refused');
  const deferrals = deferralsOf(job.progress);
  if (fate.type !== 'deferred' || deferrals >= MAX_DEFERRALS) return error;
  await context.checkpoint({ deferrals: deferrals + 1 });
  return new Snooze(Math.min(fate.retryAfterMs, MAX_RETRY_AFTER_MS));
}

/** The call from the exact text of the payload. Throws Discard. */
function read(job: HandlerJob): Call {
  let root: ObjectNode | null = null;
  try {
    const node = readJson(job.payloadText ?? '');
    if (node.type === 'object') root = node;
  } catch {
    // Reported below: a payload has no business in an error.
  }
  const url = root?.members.get('url');
  if (root === null || url?.type !== 'string')
    throw new Discard('the payload is not {url, data} or {url, body}', 'payload-invalid');
  const method = root.members.get('method');
  return {
    url: url.value,
    method: method?.type === 'string' ? method.value : 'POST',
    headers: headersOf(root),
    body: bodyOf(root, job),
  };
}

/** Lower-case names, so that one given takes the place of ours. Throws Discard. */
function headersOf(root: ObjectNode): Record<string, string> {
  const node = root.members.get('headers');
  if (node?.type !== 'object') return {};
  if (refuseHeaders(node) !== null) throw new Discard('its headers cannot be sent', 'payload-invalid');
  const entries = [...node.members].map(([name, value]) => [
    name.toLowerCase(),
    value.type === 'string' ? value.value : '',
  ]);
  return Object.fromEntries(entries) as Record<string, string>;
}

function bodyOf(root: ObjectNode, job: HandlerJob): string | Buffer {
  const [text, base64] = [root.members.get('text'), root.members.get('base64')];
  if (text?.type === 'string') return text.value;
  if (base64?.type === 'string') return Buffer.from(base64.value, 'base64');
  const whole = root.members.get('body');
  if (whole !== undefined) return whole.raw;
  return objectText({
    id: JSON.stringify(job.id),
    key: root.members.get('key')?.raw ?? JSON.stringify(job.id),
    data: root.members.get('data')?.raw ?? 'null',
    triggerTime: JSON.stringify(new Date().toISOString()),
    attempt: String(job.attempt),
  });
}
