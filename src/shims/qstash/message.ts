/**
 * One message as QStash's clients publish it, all in headers, read into a job of kind `qstash.deliver`; and such a job as
 * they are shown it. Pure. What is not served (URL groups, flow control) is refused, never stored in hope.
 */
import { createHash } from 'node:crypto';
import type { Job, RetryPolicy } from '../../jobs/job.js';
import { LIMITS } from '../../jobs/job.js';
import { type ObjectNode, objectText, readJson } from '../../json-text.js';
import { QSTASH_DELIVER, refuseHeaders } from '../../notify/relay-kind.js';
import { type ContractContext, Refusal, type ShimJob } from '../contract.js';
import { delayFormula, parseDelay } from './delay.js';

/** Source of jobs that were published here. */
export const SOURCE = 'qstash:message';
export const SCOPE = { kindPrefix: QSTASH_DELIVER };

export const bad = (detail: string): Refusal => new Refusal(400, 'invalid', detail);
const unserved = (detail: string): Refusal => new Refusal(422, 'unsupported', detail);

export type Headers = Readonly<Record<string, string | undefined>>;

const METHODS = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'] as const;
const MAX_DELAY_MS = 366 * 86_400_000;
const MAX_TIMEOUT_MS = 7_200_000;
const DEFAULT_RETRIES = 3;

/** The job without its time: what a schedule fires, too. */
export interface Draft {
  readonly kind: string;
  readonly payloadText: string;
  readonly maxAttempts: number;
  readonly retryPolicy: RetryPolicy;
}

/** `destination` as it stood in the path. Throws Refusal. */
export function readDraft(
  destination: string,
  headers: Headers,
  bytes: Buffer,
  context: ContractContext,
): Draft {
  const url = readUrl(destination, context);
  if (headers['upstash-flow-control-key'] !== undefined)
    throw unserved('flow control is not served; limit the rate in the receiver or the worker');
  const method = headers['upstash-method'] ?? 'POST';
  if (!(METHODS as readonly string[]).includes(method))
    throw bad(`Upstash-Method is none of ${METHODS.join(', ')}`);
  const retries = integerOf(headers, 'upstash-retries', 0, LIMITS.maxAttempts - 1) ?? DEFAULT_RETRIES;
  const timeoutMs = durationOf(headers, 'upstash-timeout', MAX_TIMEOUT_MS);
  const callbacks = ['upstash-callback', 'upstash-failure-callback'].map((name) => {
    const given = headers[name];
    return given === undefined ? undefined : JSON.stringify(readUrl(given, context));
  });
  const label = headers['upstash-label'];
  return {
    kind: QSTASH_DELIVER,
    payloadText: objectText({
      url: JSON.stringify(url),
      method: JSON.stringify(method),
      headers: JSON.stringify(forwarded(headers)),
      ...bodyText(bytes),
      retries: String(retries),
      timeoutMs: timeoutMs === null ? undefined : String(timeoutMs),
      callback: callbacks[0],
      failureCallback: callbacks[1],
      label: label === undefined ? undefined : JSON.stringify(label),
    }),
    maxAttempts: retries + 1,
    retryPolicy: policyOf(headers, retries),
  };
}

/** With its time and its dedupe key. Throws Refusal. */
export function readMessage(
  destination: string,
  headers: Headers,
  bytes: Buffer,
  context: ContractContext,
  queue?: string,
): ShimJob {
  const draft = readDraft(destination, headers, bytes, context);
  const delayMs = durationOf(headers, 'upstash-delay', MAX_DELAY_MS);
  const notBefore = integerOf(headers, 'upstash-not-before', 0, 253_402_300_799);
  const dedupeKey = dedupeKeyOf(destination, headers, bytes);
  return {
    ...draft,
    source: SOURCE,
    // Both given: an absolute time is what QStash takes.
    ...(notBefore !== null && notBefore > 0
      ? { runAt: new Date(notBefore * 1_000) }
      : delayMs !== null
        ? { delayMs }
        : {}),
    ...(dedupeKey === null ? {} : { dedupeKey }),
    ...(queue === undefined ? {} : { orderingKey: `qstash:${queue}` }),
  };
}

function dedupeKeyOf(destination: string, headers: Headers, bytes: Buffer): string | null {
  const id = headers['upstash-deduplication-id'];
  if (id !== undefined) {
    if (id.length < 1 || id.length > 400) throw bad('Upstash-Deduplication-Id is not 1 to 400 characters');
    return `id:${id}`;
  }
  if (headers['upstash-content-based-deduplication'] !== 'true') return null;
  const hash = createHash('sha256').update(`${destination}\n${JSON.stringify(forwarded(headers))}\n`);
  return `content:${hash.update(bytes).digest('hex')}`;
}

/** A proxy before us may have made one slash of two, and a client may have escaped the whole. */
function readUrl(destination: string, context: ContractContext): string {
  const plain = /^https?%3a/i.test(destination) ? decoded(destination) : destination;
  const url = plain.replace(/^(https?):\/(?!\/)/i, '$1://');
  if (!/^https?:\/\//i.test(url)) throw unserved('URL groups are not served: give an http or https URL');
  const refused = context.refuseUrl(url);
  if (refused !== null) throw bad(`the destination cannot be called: ${refused}`);
  return url;
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw bad('the destination is not valid percent-encoded UTF-8');
  }
}

/** What the receiver is to get: `Upstash-Forward-*`, and the content type. */
function forwarded(headers: Headers): Record<string, string> {
  const out: Record<string, string> = {};
  const type = headers['content-type'];
  if (type !== undefined) out['content-type'] = type;
  for (const [name, value] of Object.entries(headers))
    if (name.startsWith(PREFIX) && value !== undefined) out[name.slice(PREFIX.length)] = value;
  const node = readJson(JSON.stringify(out));
  const refused = refuseHeaders(node as ObjectNode);
  if (refused !== null) throw bad(refused);
  return out;
}

const PREFIX = 'upstash-forward-';

/** Text as text, so that a person can read it; what is not UTF-8, or jsonb cannot hold, as base64. */
function bodyText(bytes: Buffer): { text?: string; base64?: string } {
  const text = bytes.toString('utf8');
  const exact = Buffer.from(text, 'utf8').equals(bytes) && !text.includes('\u0000');
  return exact ? { text: JSON.stringify(text) } : { base64: JSON.stringify(bytes.toString('base64')) };
}

function integerOf(headers: Headers, name: string, min: number, max: number): number | null {
  const text = headers[name];
  if (text === undefined) return null;
  const value = /^\d{1,12}$/.test(text) ? Number(text) : Number.NaN;
  if (!(value >= min && value <= max)) throw bad(`${name} is not a whole number from ${min} to ${max}`);
  return value;
}

function durationOf(headers: Headers, name: string, maxMs: number): number | null {
  const text = headers[name];
  if (text === undefined) return null;
  const ms = parseDelay(text);
  if (ms === null || ms > maxMs) throw bad(`${name} is not a duration such as 10s, or too long`);
  return ms;
}

const MAX_POLICY_MS = 30 * 86_400_000;

/** QStash's own backoff, or the client's formula, as the delays they come to. */
function policyOf(headers: Headers, retries: number): RetryPolicy {
  const formula = headers['upstash-retry-delay'];
  const delay = formula === undefined ? ownDelay : delayFormula(formula);
  if (delay === null)
    throw bad('Upstash-Retry-Delay is not a formula of numbers, retried and known functions');
  const rungs = Math.max(1, Math.min(retries, 100));
  const delaysMs = Array.from({ length: rungs }, (_, retried) =>
    Math.round(Math.min(Math.max(delay(retried), 0), MAX_POLICY_MS)),
  );
  return { type: 'ladder', delaysMs };
}

/** 12 s, 2.5 min, 30 min, 6 h, then a day. */
const ownDelay = (retried: number): number => Math.min(86_400, Math.exp(2.5 * (retried + 1))) * 1_000;

export const messageIdOf = (jobId: string): string => `msg_${jobId}`;

/** The job's id of a message's; anything else finds nothing. */
export const jobIdOf = (messageId: string): string => /^msg_([1-9]\d{0,18})$/.exec(messageId)?.[1] ?? '0';

/** Members of a message as clients read it, as texts. */
export function messageText(job: Job): Record<string, string | undefined> {
  const members = membersOf(job);
  const header = members?.get('headers');
  return {
    messageId: JSON.stringify(messageIdOf(job.id)),
    url: members?.get('url')?.raw ?? '""',
    method: members?.get('method')?.raw,
    header: header?.type === 'object' ? headerLists(header) : undefined,
    body: members?.get('text')?.raw,
    bodyBase64: members?.get('base64')?.raw,
    maxRetries: members?.get('retries')?.raw,
    notBefore: job.state === 'ready' ? String(job.runAt.getTime()) : undefined,
    createdAt: String(job.createdAt.getTime()),
    callback: members?.get('callback')?.raw,
    failureCallback: members?.get('failureCallback')?.raw,
    label: members?.get('label')?.raw,
  };
}

export function membersOf({ payloadText }: Pick<Job, 'payloadText'>): ObjectNode['members'] | null {
  try {
    const node = readJson(payloadText ?? '');
    return node.type === 'object' ? node.members : null;
  } catch {
    return null;
  }
}

/** Each name with the list of its values. */
export function headerLists(node: ObjectNode): string {
  return objectText(Object.fromEntries([...node.members].map(([name, value]) => [name, `[${value.raw}]`])));
}
