/**
 * The handler of `qstash.deliver`: calls a URL as QStash does, signed with a JWT over the body's hash, tries again on
 * whatever is not 2xx, and calls back with what came of it. Not confirmed means called again, as there.
 */
import { createHash, createHmac, randomUUID } from 'node:crypto';
import { enqueue } from '../enqueue.js';
import type { HandlerContext, HandlerJob, KindOptions } from '../jobs/handler.js';
import type { Json, Queryable } from '../jobs/job.js';
import { Discard } from '../jobs/settle.js';
import type { AddressRules } from './address.js';
import { DeliveryError } from './fate.js';
import { call } from './post.js';
import { QSTASH_DELIVER } from './relay-kind.js';

export interface QstashOptions {
  readonly rules: AddressRules;
  /** null: calls are not signed. */
  readonly signingKey: string | null;
  /** Where callbacks are enqueued; undefined: there are none. */
  readonly db?: Queryable | undefined;
  /** Of the jobs table's schema. Default: the standard one. */
  readonly enqueueJob?: typeof enqueue;
}

/** As src/shims/qstash/message.ts writes it. */
interface Payload {
  readonly url: string;
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly text?: string;
  readonly base64?: string;
  readonly retries?: number;
  readonly timeoutMs?: number;
  readonly callback?: string;
  readonly failureCallback?: string;
  readonly label?: string;
}

/** What is kept of an answer for the dead letter queue and the callbacks. */
interface Response {
  readonly status: number;
  readonly body: string;
}

const MAX_KEPT_BODY = 4_096;
const DEFAULT_TIMEOUT_MS = 25_000;

export function qstashHandler(options: QstashOptions): KindOptions {
  return { handle: (job, context) => deliver(options, job, context) };
}

async function deliver(
  options: QstashOptions,
  job: HandlerJob,
  context: HandlerContext,
): Promise<{ readonly status: number }> {
  const payload = readPayload(job.payload);
  const body =
    payload.base64 === undefined ? Buffer.from(payload.text ?? '') : Buffer.from(payload.base64, 'base64');
  let response: Response | null = null;
  try {
    const { status, text, headers } = await call({
      url: payload.url,
      method: payload.method ?? 'POST',
      body,
      headers: headersOf(options, payload, job, body),
      rules: options.rules,
      timeoutMs: payload.timeoutMs ?? DEFAULT_TIMEOUT_MS,
      signal: context.signal,
    });
    response = { status, body: storable(text.slice(0, MAX_KEPT_BODY)) };
    if (status < 200 || status > 299) {
      const never = headers['upstash-nonretryable-error'] === 'true';
      const message = `HTTP ${status} from ${new URL(payload.url).host}`;
      throw never ? new Discard(message, 'delivery-refused') : new Error(message);
    }
  } catch (error) {
    throw await failed(options, payload, job, context, response, error);
  }
  await callBack(options, payload, payload.callback, job, response);
  return { status: response.status };
}

/** NUL is no text for jsonb. */
const storable = (text: string): string => text.replaceAll('\u0000', '\ufffd').toWellFormed();

function readPayload(payload: unknown): Payload {
  const given = payload as Payload | null;
  if (typeof given !== 'object' || given === null || typeof given.url !== 'string')
    throw new Discard('the payload is no message', 'payload-invalid');
  return given;
}

/** What to throw; after the last attempt the failure callback is on its way first. */
async function failed(
  options: QstashOptions,
  payload: Payload,
  job: HandlerJob,
  context: HandlerContext,
  response: Response | null,
  error: unknown,
): Promise<unknown> {
  if (context.signal.aborted) return error;
  if (response !== null) await context.checkpoint({ response: { ...response } });
  const refused = error instanceof DeliveryError && error.fate.type === 'final';
  const ending = refused ? new Discard((error as Error).message, 'delivery-refused') : error;
  if (ending instanceof Discard || job.attempt >= job.maxAttempts)
    await callBack(options, payload, payload.failureCallback, job, response);
  return ending;
}

function headersOf(
  { signingKey }: QstashOptions,
  payload: Payload,
  job: HandlerJob,
  body: Buffer,
): Record<string, string> {
  const schedule = scheduleOf(job.headers);
  return {
    'user-agent': 'Upstash-QStash',
    ...payload.headers,
    'upstash-message-id': `msg_${job.id}`,
    'upstash-retried': String(job.attempt - 1),
    ...(schedule === null ? {} : { 'upstash-schedule-id': schedule }),
    ...(payload.label === undefined ? {} : { 'upstash-label': payload.label }),
    ...(signingKey === null ? {} : { 'upstash-signature': signatureOf(signingKey, payload.url, body) }),
  };
}

function scheduleOf(headers: Json): string | null {
  const { schedule } = (headers ?? {}) as { schedule?: { name?: unknown } };
  return typeof schedule?.name === 'string' ? schedule.name : null;
}

const LIFETIME_S = 300;

/** HS256; `sub` is the URL called, `body` the hash of what is sent. */
export function signatureOf(key: string, url: string, body: Buffer): string {
  const nowS = Math.floor(Date.now() / 1_000);
  const claims = {
    iss: 'Upstash',
    sub: url,
    exp: nowS + LIFETIME_S,
    nbf: nowS - 1,
    iat: nowS,
    jti: `jwt_${randomUUID()}`,
    body: createHash('sha256').update(body).digest('base64url'),
  };
  const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url');
  const signed = `${part({ alg: 'HS256', typ: 'JWT' })}.${part(claims)}`;
  return `${signed}.${createHmac('sha256', key).update(signed).digest('base64url')}`;
}

/** A message of its own, once for each source: `dedupeKey` holds a second delivery back. */
async function callBack(
  { db, enqueueJob = enqueue }: QstashOptions,
  payload: Payload,
  url: string | undefined,
  job: HandlerJob,
  response: Response | null,
): Promise<void> {
  if (url === undefined || db === undefined) return;
  const sourceBody = payload.base64 ?? Buffer.from(payload.text ?? '').toString('base64');
  const told = {
    status: response?.status ?? 0,
    body: Buffer.from(response?.body ?? '').toString('base64'),
    retried: job.attempt - 1,
    maxRetries: job.maxAttempts - 1,
    sourceMessageId: `msg_${job.id}`,
    url: payload.url,
    method: payload.method ?? 'POST',
    sourceHeader: Object.fromEntries(Object.entries(payload.headers ?? {}).map(([k, v]) => [k, [v]])),
    sourceBody,
    // Whole milliseconds there; the database counts microseconds.
    createdAt: Math.trunc(job.createdAtMs),
    notBefore: Math.trunc(job.runAtMs),
  };
  const message = {
    url,
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    text: JSON.stringify(told),
    retries: 3,
  };
  const options = {
    dedupeKey: `callback:${job.id}:${url === payload.callback ? 'done' : 'failed'}`,
    source: 'qstash:callback',
    maxAttempts: 4,
  };
  await enqueueJob(db, QSTASH_DELIVER, message, options);
}
