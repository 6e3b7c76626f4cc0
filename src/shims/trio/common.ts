/**
 * What the three services of the trio share: their way of saying no, lists and times as they wrote them, and how a row
 * is read back. Pure.
 */
import { RELAY_AMQP } from '../../../adapters/rabbitmq/relay-kind.js';
import type { Job, Json } from '../../jobs/job.js';
import { type ArrayNode, type JsonNode, type ObjectNode, readJson } from '../../json-text.js';
import { RELAY_HTTP } from '../../notify/relay-kind.js';
import { problem, type Refusal, type ShimResponse } from '../contract.js';
import { invalid } from '../fields.js';

/** Their clients read `error` and `message`; the rest is RFC 9457. */
export function trioErrors(refusal: Refusal): ShimResponse {
  return problem(refusal, { error: refusal.code, message: refusal.detail });
}

export const text = (value: string | null): string => JSON.stringify(value);
export const time = (value: Date | null): string =>
  value === null ? 'null' : JSON.stringify(value.toISOString());
export const listText = (items: readonly string[]): string => `{"items":[${items.join(',')}]}`;

/** A payload that a drain brought may be deeper than a door would let in. */
const KEPT_LIMITS = { maxDepth: 1_000, maxKeys: 1_000_000 };

/** The payload as JSON with its text; null when the job carries bytes instead. */
export function payloadOf(job: Pick<Job, 'payloadText'>): JsonNode | null {
  if (job.payloadText === null) return null;
  try {
    return readJson(job.payloadText, KEPT_LIMITS);
  } catch {
    return null;
  }
}

export function objectOf(node: JsonNode | null): ObjectNode | null {
  return node?.type === 'object' ? node : null;
}

/**
 * What the client gave as payload: a job that hands it on has it under `body` or `data`, one that was parked in the whole
 * request.
 */
export function sentText(row: Pick<Job, 'kind' | 'payloadText' | 'headers'>): string {
  const payload = payloadOf(row);
  if (row.kind !== RELAY_HTTP && row.kind !== RELAY_AMQP) return payload?.raw ?? 'null';
  const members = objectOf(payload)?.members;
  const body = members?.get('body');
  if (headerOf(row, 'parked') === true) return memberText(objectOf(body ?? null), 'payload');
  return body?.raw ?? members?.get('data')?.raw ?? 'null';
}

/** A member's text as it stands in the payload, or `null`. */
export function memberText(node: ObjectNode | null, name: string): string {
  return node?.members.get(name)?.raw ?? 'null';
}

/** The row's headers with another target. */
export function withTarget(row: Pick<Job, 'headers'>, target: Json): Readonly<Record<string, Json>> {
  const { headers } = row;
  const kept = typeof headers === 'object' && headers !== null && !Array.isArray(headers) ? headers : {};
  return { ...(kept as Readonly<Record<string, Json>>), target };
}

/** What lies under these names in the headers, or undefined. A drain keeps a message's own under `amqp`. */
export function headerOf(job: Pick<Job, 'headers'>, ...path: readonly string[]): unknown {
  let value: unknown = job.headers;
  for (const name of path) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, name)) return undefined;
    value = (value as Record<string, unknown>)[name];
  }
  return value;
}

/** The same, if it is a string. */
export function headerText(job: Pick<Job, 'headers'>, ...path: readonly string[]): string | undefined {
  const value = headerOf(job, ...path);
  return typeof value === 'string' ? value : undefined;
}

/** The last failure's message, as clients are told it; null once it worked. */
export function lastError(job: Job): string | null {
  const message = job.state === 'done' ? undefined : job.errors.at(-1)?.message;
  return message === undefined ? null : withoutPlaces(message);
}

/** As a socket of Node's fails: `connect ECONNREFUSED 10.0.0.7:5432`, `getaddrinfo ENOTFOUND db.internal`. */
const PLACE_AFTER_CODE = /\b((?:connect|getaddrinfo|bind|send|query[A-Z]\w*) E[A-Z_]+) [^\s;]*[^\s:;,]/g;
const IPV4 = /\b\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?\b/g;

/**
 * A row's message has those of its causes, for whoever may read the table: where a server inside is reached. A client of a door is
 * told what failed, not where.
 */
export function withoutPlaces(message: string): string {
  return message.replace(PLACE_AFTER_CODE, '$1').replace(IPV4, '(address)');
}

/** When the row last changed, as far as it says. */
export function changedAt(job: Job): Date {
  const failedAt = job.errors.at(-1)?.at;
  if (job.finishedAt !== null) return job.finishedAt;
  return failedAt === undefined ? job.createdAt : new Date(failedAt);
}

/** A list of ids or keys as a client writes it; undefined without. Throws Refusal. */
export function idsOf(list: ArrayNode | undefined): string[] | undefined {
  return list?.items.map((item) => {
    if (item.type !== 'string' || item.value.length < 1 || item.value.length > 500)
      throw invalid('ids is not a list of strings of 1 to 500 characters');
    return item.value;
  });
}
