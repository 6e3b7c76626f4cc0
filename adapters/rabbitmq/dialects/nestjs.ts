/**
 * NestJS microservices: `{pattern, data}` for events, with `id` for requests. A request whose answer is awaited on a
 * temporary queue is not a job unless a rule says so; an answer never is.
 */
import { memberText } from '../body.js';
import { bodyWith, type Dialect, filled, type MessageView, objectOf } from './dialect.js';

const MEMBERS = new Set(['pattern', 'data', 'id']);

function packet(view: MessageView): Readonly<Record<string, unknown>> | undefined {
  const body = bodyWith(view, 'pattern', 'data');
  // One member more and it may be anybody's JSON.
  if (body === undefined || !Object.keys(body).every((name) => MEMBERS.has(name))) return undefined;
  return routeOf(body['pattern']) === undefined ? undefined : body;
}

/** A pattern's name as Nest routes by it: an object as JSON with its members sorted. */
function routeOf(pattern: unknown): string | undefined {
  if (typeof pattern === 'number') return String(pattern);
  return filled(pattern) ?? (objectOf(pattern) === undefined ? undefined : sorted(pattern));
}

function sorted(value: unknown): string {
  const members = objectOf(value);
  if (members === undefined) return JSON.stringify(value) ?? 'null';
  const names = Object.keys(members).sort((a, b) => a.localeCompare(b));
  return `{${names.map((name) => `${JSON.stringify(name)}:${sorted(members[name])}`).join(',')}}`;
}

function isAnswer(view: MessageView): boolean {
  const body = bodyWith(view, 'isDisposed');
  return body !== undefined && ('response' in body || 'err' in body) && !('pattern' in body);
}

export const nestjs: Dialect = {
  name: 'nestjs',
  summary: 'NestJS microservices: {pattern, data}, an object pattern as sorted JSON',
  claims: (view) => packet(view) !== undefined || isAnswer(view),
  requests: true,
  fields: {
    exclude: (view) => (isAnswer(view) ? 'reply: the answer to a NestJS request' : undefined),
    kind: (view) => routeOf(packet(view)?.['pattern']),
    id: (view) => filled(packet(view)?.['id']),
    payloadText: ({ body, ...view }) => {
      const text = body.payloadText;
      return text === null || packet({ body, ...view }) === undefined ? undefined : memberText(text, 'data');
    },
  },
};
