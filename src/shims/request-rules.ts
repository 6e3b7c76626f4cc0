/**
 * What is looked at before a route sees a request: request line, headers, media type, the bytes of the body. Pure; each
 * rule answers a Refusal or nothing.
 */
import { isUtf8 } from 'node:buffer';
import { JsonError, type JsonNode, readJson } from '../json-text.js';
import { Refusal } from './contract.js';

export const SERVER_LIMITS = {
  bodyBytes: 1_048_576,
  headerBytes: 16_384,
  headerCount: 100,
  urlLength: 8_000,
  /** The list asks for 10 s at most; Node looks once a second. */
  headersTimeoutMs: 8_000,
  requestTimeoutMs: 30_000,
  keepAliveTimeoutMs: 65_000,
  /** Without a byte in either direction, also while an answer is not read; longer than an answer may take. */
  stalledMs: 60_000,
  connections: 1_000,
  /** Of long lists that are not read yet, all connections together. */
  answerBytes: 134_217_728,
  /** A request whose transaction takes longer is answered 503; it may still commit. */
  answerTimeoutMs: 30_000,
} as const;

/** As node:http has it. */
export interface RequestHead {
  readonly method?: string | undefined;
  readonly url?: string | undefined;
  readonly httpVersion: string;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly rawHeaders: readonly string[];
}

const notFound = (): Refusal => new Refusal(404, 'not-found', 'no such route');

/** Node takes the first of two, a proxy before it perhaps the last. */
const ONCE = new Set([
  'authorization',
  'content-encoding',
  'content-type',
  'host',
  'idempotency-key',
  'x-api-key',
  'x-key',
  'x-signature',
  'x-timestamp',
]);

function comesTwice(rawHeaders: readonly string[]): boolean {
  const seen = new Set<string>();
  for (let n = 0; n < rawHeaders.length; n += 2) {
    const name = rawHeaders[n]?.toLowerCase() ?? '';
    if (!ONCE.has(name)) continue;
    if (seen.has(name)) return true;
    seen.add(name);
  }
  return false;
}

/** The request line and the headers as a whole. `rawPath`: its route takes the rest of the path as it is. */
export function refuseHead(head: RequestHead, rawPath = false): Refusal | null {
  const url = head.url ?? '';
  if (head.rawHeaders.length / 2 > SERVER_LIMITS.headerCount)
    return new Refusal(431, 'too-many-headers', `there are more than ${SERVER_LIMITS.headerCount} headers`);
  if (head.httpVersion !== '1.1')
    return new Refusal(400, 'http-version', 'only HTTP/1.1 is spoken here (nginx: proxy_http_version 1.1)');
  if (head.headers['host'] === undefined)
    return new Refusal(400, 'host-missing', 'a request needs a Host header');
  if (comesTwice(head.rawHeaders))
    return new Refusal(400, 'duplicate-header', 'a header that says one thing comes twice');
  if ((head.headers['transfer-encoding'] ?? 'chunked').toString().toLowerCase() !== 'chunked')
    return new Refusal(400, 'transfer-encoding', 'only chunked is understood as a transfer encoding');
  if (!url.startsWith('/')) return new Refusal(400, 'absolute-uri', 'the request target is not a path');
  if (url.length > SERVER_LIMITS.urlLength)
    return new Refusal(414, 'uri-too-long', 'the request target is too long');
  if (rawPath) return null;
  if (url.includes('#')) return new Refusal(400, 'fragment', 'the request target holds a fragment');
  const path = url.split('?', 1)[0] ?? '';
  // Nobody has to agree with us on what a dot, a slash, a NUL or a percent sign inside an escape means.
  if (/%(?:2e|2f|5c|25|00)|\/\/|\\|\/\.\.?(?:\/|$)/i.test(path) || !isDecodable(path)) return notFound();
  return null;
}

function isDecodable(text: string): boolean {
  try {
    decodeURIComponent(text);
    return true;
  } catch {
    return false;
  }
}

const UTF8 = /^\s*charset\s*=\s*("?)utf-?8\1\s*$/;

/** Of a request that carries a body: its media type, encoding and announced length, before a byte is read. */
export function refuseBodyHead(head: RequestHead, maxBytes: number, anyMedia = false): Refusal | null {
  const { 'content-length': length, 'content-encoding': encoding, 'content-type': type } = head.headers;
  if (length !== undefined && Number(length) > maxBytes) return tooLarge(maxBytes);
  if (encoding !== undefined && encoding !== 'identity')
    return new Refusal(415, 'content-encoding', 'a compressed body is not read; send it plain');
  if (anyMedia || !hasBody(head)) return null;
  const [media = '', ...parameters] = String(type ?? '')
    .toLowerCase()
    .split(';');
  if (!/^application\/(?:[a-z0-9.+-]+\+)?json$/.test(media.trim()))
    return new Refusal(415, 'media-type', 'the body must be application/json');
  // Every one of them: two parsers would pick different ones of two.
  const others = parameters.filter((part) => /^\s*charset\s*=/.test(part) && !UTF8.test(part));
  if (others.length > 0) return new Refusal(415, 'charset', 'the body must be UTF-8');
  return null;
}

export function hasBody({ headers }: RequestHead): boolean {
  const { 'content-length': length, 'transfer-encoding': transfer } = headers;
  return transfer !== undefined || (length !== undefined && Number(length) > 0);
}

export const tooLarge = (maxBytes: number): Refusal =>
  new Refusal(413, 'too-large', `the body is larger than ${maxBytes} bytes`);

/** Bytes to JSON. Throws Refusal. */
export function readBody(bytes: Buffer): JsonNode {
  if (bytes.length === 0) throw new Refusal(400, 'empty', 'the body is empty');
  if (isWide(bytes)) throw new Refusal(415, 'charset', 'the body must be UTF-8, not UTF-16 or UTF-32');
  if (!isUtf8(bytes)) throw new Refusal(400, 'invalid-utf8', 'the body is not valid UTF-8');
  const start = bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? 3 : 0;
  try {
    return readJson(bytes.toString('utf8', start));
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    throw new Refusal(
      error.problem === 'unstorable' ? 422 : 400,
      error.problem,
      `${error.message} (at ${error.position})`,
    );
  }
}

/** A byte order mark of UTF-16 or UTF-32, or NUL bytes where ASCII text in them has some. */
function isWide(bytes: Buffer): boolean {
  const [a, b] = bytes;
  if ((a === 0xfe && b === 0xff) || (a === 0xff && b === 0xfe)) return true;
  return bytes.length >= 2 && (a === 0) !== (b === 0);
}

/** Each name once: two parsers would pick different ones of two. Throws Refusal. */
export function readQuery(url: string, repeats: readonly string[] = []): ReadonlyMap<string, string> {
  const query = new Map<string, string>();
  const at = url.indexOf('?');
  if (at === -1) return query;
  for (const pair of url.slice(at + 1).split('&')) {
    if (pair === '') continue;
    const [name = '', ...value] = pair.split('=');
    const key = decodeQuery(name);
    const before = query.get(key);
    if (before !== undefined && repeats.includes(key)) {
      query.set(key, `${before},${decodeQuery(value.join('='))}`);
      continue;
    }
    if (before !== undefined) throw new Refusal(400, 'duplicate-parameter', 'a parameter comes twice');
    query.set(key, decodeQuery(value.join('=')));
  }
  return query;
}

function decodeQuery(text: string): string {
  let decoded: string;
  try {
    decoded = decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    throw new Refusal(400, 'invalid-parameter', 'a parameter is not valid percent-encoded UTF-8');
  }
  if (decoded.includes('\u0000')) throw new Refusal(400, 'invalid-parameter', 'a parameter holds NUL');
  return decoded;
}

/** The Idempotency-Key, or null. Throws Refusal. */
export function idempotencyKeyOf(head: RequestHead): string | null {
  const key = head.headers['idempotency-key'];
  if (key === undefined) return null;
  if (typeof key === 'string' && /^[\x21-\x7e]{1,255}$/.test(key)) return key;
  throw new Refusal(400, 'idempotency-key', 'Idempotency-Key must be 1 to 255 visible ASCII characters');
}

/** W3C trace context, if it is well formed; else it is left out: tracing must not refuse work. */
export function traceparentOf(head: RequestHead): string | null {
  const value = head.headers['traceparent'];
  return typeof value === 'string' && /^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/.test(value) ? value : null;
}

/** Without keys only this machine may ask, and not a web page that resolves its own name to loopback. */
export function isLoopbackHost(head: RequestHead): boolean {
  const host = String(head.headers['host'] ?? '')
    .toLowerCase()
    .replace(/:\d{1,5}$/, '');
  return host === 'localhost' || host === '[::1]' || /^127(?:\.\d{1,3}){3}$/.test(host);
}
