/**
 * The kind that calls a URL: its name, and which headers a call may carry; apart from its handler so that a contract need
 * not load an HTTP client. Pure.
 */
import type { ObjectNode } from '../json-text.js';

/**
 * Payload: `{url, key?, data}`: an envelope is posted; or `{url, method?, headers?, body}`: just that, as JSON; or with
 * `text` or `base64` instead of body: those bytes.
 */
export const RELAY_HTTP = 'relay.http';

/** The same call as QStash makes it: signed, with its headers and callbacks. Payload: src/shims/qstash/message.ts. */
export const QSTASH_DELIVER = 'qstash.deliver';

/** What belongs to the connection, or is ours to say. */
const OWN = new Set([
  'connection',
  'content-length',
  'expect',
  'host',
  'idempotency-key',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'webhook-id',
  'webhook-timestamp',
]);
const MAX_HEADERS = 60;

/** Why these cannot be the headers of a call, or null. The text quotes nothing. */
export function refuseHeaders(node: ObjectNode): string | null {
  if (node.members.size > MAX_HEADERS) return `there are more than ${MAX_HEADERS} headers`;
  for (const [name, value] of node.members) {
    if (value.type !== 'string') return 'a header is not a string';
    if (!/^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$/.test(name)) return 'a header has no valid name';
    if (value.value.length > 8_000 || !/^[\t\x20-\x7e\x80-\xff]*$/.test(value.value))
      return 'a header holds a line break or what a header cannot hold';
    if (OWN.has(name.toLowerCase())) return 'a header belongs to the connection or is set here';
  }
  return null;
}
