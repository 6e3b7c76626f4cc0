/**
 * One POST to the outside: every address of the host is vetted and the vetted one is connected to, redirects are not
 * followed, time and answer are bounded, and a failure says whether the other side can have had the request.
 */
import { lookup as resolve } from 'node:dns';
import {
  type IncomingHttpHeaders,
  type IncomingMessage,
  type RequestOptions,
  request as requestHttp,
} from 'node:http';
import { request as requestHttps } from 'node:https';
import type { LookupFunction } from 'node:net';
import { tlsFailure } from '../tls-failure.js';
import { type AddressRules, refuseUrl } from './address.js';
import { AMBIGUOUS, DeliveryError, FINAL, httpFate, TRANSIENT } from './fate.js';

export interface PostRequest {
  readonly url: string;
  /** Default POST. */
  readonly method?: string;
  readonly body: string | Buffer;
  readonly headers: Readonly<Record<string, string>>;
  readonly rules: AddressRules;
  /** For all of it, from resolving to the last byte. Default 10,000. */
  readonly timeoutMs?: number;
  readonly signal: AbortSignal;
  /** All addresses of a name. Default: the system's resolver. */
  readonly resolver?: Resolver;
}

export type Resolver = (
  hostname: string,
  found: (error: Error | null, addresses: readonly { address: string; family: number }[]) => void,
) => void;

const systemResolver: Resolver = (hostname, found) => {
  resolve(hostname, { all: true, verbatim: true }, (error, addresses) => found(error, addresses ?? []));
};

export interface PostAnswer {
  readonly status: number;
  /** The first 64 KiB. */
  readonly text: string;
}

const MAX_ANSWER_BYTES = 65_536;
const MAX_HEADER_BYTES = 16_384;

/** Any status and its headers. Throws DeliveryError when there was no answer. */
export async function call(
  given: PostRequest,
): Promise<PostAnswer & { readonly headers: IncomingHttpHeaders }> {
  const refused = refuseUrl(given.url, given.rules);
  if (refused !== null) throw new DeliveryError(FINAL, refused);
  const url = new URL(given.url);
  // Not AbortSignal.any of an AbortSignal.timeout: Node 20 lets the garbage collector take the timeout that only `any` refers to
  // (nodejs/node#57736), and a body that dribbled kept its handler for ever.
  const deadline = new AbortController();
  const end = (): void => deadline.abort();
  const timer = setTimeout(end, given.timeoutMs ?? 10_000);
  given.signal.addEventListener('abort', end);
  if (given.signal.aborted) end();
  try {
    const { answer, response } = await exchange(url, given, deadline.signal);
    return { ...answer, headers: response.headers };
  } finally {
    clearTimeout(timer);
    given.signal.removeEventListener('abort', end);
  }
}

/** Resolves on 2xx. Throws DeliveryError; its message names host and status, nothing of the body. */
export async function post(given: PostRequest): Promise<PostAnswer> {
  const { headers, ...answer } = await call(given);
  const fate = httpFate(answer.status, headers['retry-after'], Date.now());
  if (fate !== null) throw new DeliveryError(fate, `HTTP ${answer.status} from ${new URL(given.url).host}`);
  return answer;
}

/**
 * A connection of its own for each request: on a kept one that the other side closes meanwhile, nobody could tell a
 * lost request from a lost answer.
 */
function exchange(
  url: URL,
  { body, headers, rules, method = 'POST', resolver = systemResolver }: PostRequest,
  deadline: AbortSignal,
): Promise<{ answer: PostAnswer; response: IncomingMessage }> {
  const content = Buffer.from(body);
  const options: RequestOptions = {
    method,
    agent: false,
    headers: { ...headers, 'content-length': String(content.length), connection: 'close' },
    maxHeaderSize: MAX_HEADER_BYTES,
    lookup: vettedLookup(rules, resolver),
    // Off: a listener on the socket must mean the one connection that is used.
    autoSelectFamily: false,
    signal: deadline,
  } as RequestOptions;
  return new Promise((resolvePromise, reject) => {
    let connected = false;
    let answered = false;
    const request = (url.protocol === 'https:' ? requestHttps : requestHttp)(url, options);
    request.on('socket', (socket) => {
      // Before this moment not a byte of the request can have left; after it nobody can tell.
      socket.once(url.protocol === 'https:' ? 'secureConnect' : 'connect', () => {
        connected = true;
      });
    });
    request.on('error', (error) => {
      if (!answered) reject(networkFailure(error, connected, url));
    });
    // An answer of its kind, which nobody asked for: node would close the connection and say nothing more.
    request.on('upgrade', (response, socket) => {
      answered = true;
      socket.destroy();
      resolvePromise({ answer: { status: response.statusCode ?? 0, text: '' }, response });
    });
    request.on('close', () => {
      if (!answered) reject(networkFailure(new Error('closed'), connected, url));
    });
    request.on('response', (response) => {
      // The status decides; a body that breaks off or never ends is only not read further.
      answered = true;
      void readCapped(response).then((text) => {
        request.destroy();
        resolvePromise({ answer: { status: response.statusCode ?? 0, text }, response });
      });
    });
    request.end(content);
  });
}

/**
 * Refuses the host if any of its addresses is not allowed: a name must not mix good and bad. What was vetted is what is
 * connected to; nothing is resolved a second time.
 */
function vettedLookup(rules: AddressRules, resolver: Resolver): LookupFunction {
  return (hostname, options, callback) => {
    resolver(hostname, (error, addresses) => {
      const [first] = addresses;
      if (error !== null || first === undefined) callback(error ?? new Error('no address'), '', 0);
      else if (!addresses.every(({ address }) => rules.allows(address)))
        callback(new DeliveryError(FINAL, 'an address of the host is private or reserved'), '', 0);
      else if (options.all === true) callback(null, [{ ...first }]);
      else callback(null, first.address, first.family);
    });
  };
}

function networkFailure(error: Error & { code?: string }, connected: boolean, url: URL): DeliveryError {
  if (error instanceof DeliveryError) return error;
  const what = tlsFailure(error)?.what ?? error.code ?? error.name;
  return new DeliveryError(connected ? AMBIGUOUS : TRANSIENT, `${what} calling ${url.host}`);
}

function readCapped(response: IncomingMessage): Promise<string> {
  return new Promise((resolvePromise) => {
    const chunks: Buffer[] = [];
    let size = 0;
    const end = (): void =>
      resolvePromise(Buffer.concat(chunks).subarray(0, MAX_ANSWER_BYTES).toString('utf8'));
    response.on('data', (chunk: Buffer) => {
      chunks.push(chunk);
      size += chunk.length;
      if (size >= MAX_ANSWER_BYTES) end();
    });
    response.on('end', end).on('error', end).on('close', end);
  });
}
