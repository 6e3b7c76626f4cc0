/**
 * The HTTP door: mounts contracts, and owns what none of them should think about: limits, authentication, strict JSON,
 * idempotency keys, errors that never quote the request, log lines without payload, stopping. The only file that knows
 * the HTTP framework.
 */
import { createHash } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import Fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify';
import { UnbrokerError } from '../errors.js';
import { within } from '../jobs/signal.js';
import { errorFields, type Log } from '../log.js';
import { type ApiKey, mayEnqueue, mayUse, type Principal, presentedKey, principalOf } from './auth.js';
import {
  type AnyRoute,
  type Contract,
  type ContractContext,
  isRefusal,
  type Parsed,
  problem,
  Refusal,
  type ShimResponse,
} from './contract.js';
import { type Core, parseWith } from './core.js';
import {
  hasBody,
  idempotencyKeyOf,
  isLoopbackHost,
  readBody,
  readQuery,
  refuseBodyHead,
  refuseHead,
  SERVER_LIMITS,
  tooLarge,
  traceparentOf,
} from './request-rules.js';
import type { RequestKey } from './requests.js';

export interface ShimServerOptions {
  readonly contracts: readonly Contract[];
  readonly context: ContractContext;
  readonly core: Core;
  /** Empty: anybody on this machine is let in. */
  readonly keys: readonly ApiKey[];
  readonly log: Log;
  /** Does the database answer? For /readyz. */
  readonly ping: () => Promise<unknown>;
  readonly limits?: Partial<Record<keyof typeof SERVER_LIMITS, number>>;
}

export interface ShimServer {
  /** Resolves with the base URL once it takes connections. Port 0: any free one. */
  listen(options: { readonly host: string; readonly port: number }): Promise<string>;
  /**
   * /readyz says no, no new connection is taken, what is under way is finished; after `deadlineMs` (default 10,000)
   * connections are cut. A request that still comes on an open connection is served, not sent away.
   */
  close(options?: { readonly deadlineMs?: number }): Promise<void>;
}

/** What a mounted route knows of itself. */
interface Mounted {
  readonly route: AnyRoute;
  readonly contract: Contract;
  readonly verb: 'read' | 'write';
  readonly wantsBody: boolean;
}

declare module 'fastify' {
  interface FastifyContextConfig {
    mounted?: Mounted;
  }
  interface FastifyRequest {
    principal: Principal | null;
  }
}

const PING_TIMEOUT_MS = 2_000;
/** After a refusal that leaves a body unread: how much of it, and how long, is read away before the connection goes. */
const LINGER = { bytes: 2_097_152, ms: 1_000 } as const;

export function createShimServer(options: ShimServerOptions): ShimServer {
  const limits = { ...SERVER_LIMITS, ...options.limits };
  const app = createApp(limits);
  const door = new Door(options, limits.bodyBytes, limits.answerTimeoutMs);
  let draining = false;

  app.decorateRequest('principal', null);
  // Bodies are read as bytes, whatever they call themselves: what they are is decided by request-rules.
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', { parseAs: 'buffer' }, (_request, body, done) => done(null, body));
  app.addHook('onRequest', (request, reply, next) => {
    const refusal = door.admit(request);
    if (refusal === null) next();
    else refuseUnread(request, reply, door.render(refusal, request), door.linger(request));
  });
  app.setErrorHandler((error, request, reply) => door.fail(error, request, reply));
  app.setNotFoundHandler((request, reply) => {
    send(reply, door.render(new Refusal(404, 'not-found', 'no such route'), request));
  });
  app.addHook('onResponse', (request, reply, next) => {
    door.note(request, reply.statusCode, reply.elapsedTime);
    next();
  });

  app.get('/livez', (_request, reply) => send(reply, { status: 200, body: '{"status":"live"}' }));
  app.get('/readyz', async (_request, reply) => {
    const ready = !draining && (await door.answers());
    return send(reply, ready ? { status: 200, body: '{"status":"ready"}' } : NOT_READY);
  });
  for (const contract of options.contracts)
    for (const route of contract.routes) mount(app, door, contract, route);
  answerExpectations(app, door);

  return {
    async listen({ host, port }) {
      await app.listen({ host, port });
      const address = app.server.address() as AddressInfo;
      return `http://${address.family === 'IPv6' ? `[${address.address}]` : address.address}:${address.port}`;
    },
    async close({ deadlineMs = 10_000 } = {}) {
      draining = true;
      const cut = setTimeout(() => app.server.closeAllConnections(), deadlineMs);
      // Closing closes what is idle now; a connection that finishes its request later would be kept for a minute.
      const idle = setInterval(() => app.server.closeIdleConnections(), 50);
      await app.close();
      clearTimeout(cut);
      clearInterval(idle);
    },
  };
}

const NOT_READY: ShimResponse = { status: 503, body: '{"status":"not ready"}' };

function createApp(limits: Record<keyof typeof SERVER_LIMITS, number>): FastifyInstance {
  const app = Fastify({
    logger: false,
    exposeHeadRoutes: false,
    bodyLimit: limits.bodyBytes,
    requestTimeout: limits.requestTimeoutMs,
    keepAliveTimeout: limits.keepAliveTimeoutMs,
    return503OnClosing: false,
    forceCloseConnections: 'idle',
    routerOptions: { maxParamLength: 600 },
    http: {
      maxHeaderSize: limits.headerBytes,
      headersTimeout: limits.headersTimeoutMs,
      requestTimeout: limits.requestTimeoutMs,
      // Node looks for slow connections only this often, and its default is half a minute.
      connectionsCheckingInterval: 1_000,
      requireHostHeader: true,
    },
    clientErrorHandler: onClientError,
    // A path that cannot be decoded never reaches a hook; the framework's own answer would quote it.
    frameworkErrors: (_error, _request, reply) => {
      send(reply, problem(new Refusal(404, 'not-found', 'no such route')));
    },
  });
  app.server.maxConnections = limits.connections;
  return app;
}

/** A request that was never one: the parser refused it, or it came too slowly. */
function onClientError(error: Error & { code?: string }, socket: Socket): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy();
    return;
  }
  const refusal =
    error.code === 'HPE_HEADER_OVERFLOW'
      ? new Refusal(431, 'headers-too-large', 'the headers are too large')
      : error.code === 'ERR_HTTP_REQUEST_TIMEOUT'
        ? new Refusal(408, 'too-slow', 'the request did not arrive in time')
        : new Refusal(400, 'malformed', 'this is not an HTTP request');
  const { status, body } = problem(refusal);
  const text = body ?? '';
  socket.end(
    `HTTP/1.1 ${status} ${status === 431 ? 'Request Header Fields Too Large' : status === 408 ? 'Request Timeout' : 'Bad Request'}\r\n` +
      `content-type: application/problem+json\r\ncontent-length: ${Buffer.byteLength(text)}\r\nconnection: close\r\n\r\n${text}`,
  );
  socket.destroySoon();
}

function mount(app: FastifyInstance, door: Door, contract: Contract, route: AnyRoute): void {
  const wantsBody =
    (route.body ?? (['POST', 'PUT', 'PATCH'].includes(route.method) ? 'json' : 'none')) === 'json';
  const verb = route.verb ?? (route.method === 'GET' ? 'read' : 'write');
  const mounted: Mounted = { route, contract, verb, wantsBody };
  app.route({
    method: route.method,
    url: route.path,
    config: { mounted },
    handler: async (request, reply) => send(reply, await door.serve(mounted, request)),
  });
}

/** `Expect: 100-continue`: say no before the body is sent, or let it come. */
function answerExpectations(app: FastifyInstance, door: Door): void {
  app.server.on('checkContinue', (request: IncomingMessage, response: ServerResponse) => {
    const refusal = door.admitHead(request);
    if (refusal === null) {
      response.writeContinue();
      app.server.emit('request', request, response);
      return;
    }
    const { status, headers, body } = problem(refusal);
    response.writeHead(status, { ...headers, connection: 'close' }).end(body);
  });
  app.server.on('checkExpectation', (_request, response: ServerResponse) => {
    const { status, headers, body } = problem(
      new Refusal(417, 'expectation', 'only 100-continue can be expected'),
    );
    response.writeHead(status, { ...headers, connection: 'close' }).end(body);
  });
}

/** The rules between the framework and a contract. */
class Door {
  readonly #options: ShimServerOptions;

  constructor(
    options: ShimServerOptions,
    private readonly maxBodyBytes: number,
    private readonly answerTimeoutMs: number,
  ) {
    this.#options = options;
  }

  /** Before the body is read. */
  admit(request: FastifyRequest): Refusal | null {
    const head = request.raw;
    const mounted = request.routeOptions.config.mounted;
    const refused = refuseHead(head);
    if (refused !== null) return refused;
    // Health is asked by machines that have no key.
    if (
      mounted === undefined &&
      (request.routeOptions.url === '/livez' || request.routeOptions.url === '/readyz')
    )
      return null;
    const unknown = this.#authenticate(head, request);
    if (unknown !== null) return unknown;
    if (mounted === undefined) return null;
    if (!mayUse(request.principal as Principal, mounted.contract.service, mounted.verb))
      return new Refusal(403, 'not-allowed', 'this key may not do that');
    return refuseBodyHead(head, this.maxBodyBytes);
  }

  /** The same for a request that waits for leave to send its body. */
  admitHead(head: IncomingMessage): Refusal | null {
    return refuseHead(head) ?? this.#authenticate(head, null) ?? refuseBodyHead(head, this.maxBodyBytes);
  }

  #authenticate(head: IncomingMessage, request: FastifyRequest | null): Refusal | null {
    const { keys } = this.#options;
    if (keys.length === 0 && !isLoopbackHost(head))
      return new Refusal(403, 'host-refused', 'without API keys only localhost is served');
    const principal = principalOf(presentedKey(head.headers), keys);
    if (principal === null)
      return new Refusal(401, 'key-missing', 'a valid API key is needed, as Authorization: Bearer');
    if (request !== null) request.principal = principal;
    return null;
  }

  async serve(mounted: Mounted, request: FastifyRequest): Promise<ShimResponse> {
    const { core, context } = this.#options;
    const bytes = Buffer.isBuffer(request.body) ? request.body : null;
    if (!mounted.wantsBody && bytes !== null && bytes.length > 0)
      throw new Refusal(400, 'unexpected-body', 'this route takes no body');
    const parsed = parseWith(
      mounted.route,
      {
        params: request.params as Record<string, string>,
        query: readQuery(request.raw.url ?? ''),
        headers: request.headers as Record<string, string | undefined>,
        body: mounted.wantsBody ? readBody(bytes ?? Buffer.alloc(0)) : null,
      },
      context,
    );
    this.#checkKinds(parsed, request);
    const key = this.#requestKey(request, bytes);
    return within(core.run(mounted.route, traced(parsed, request.raw), key), this.answerTimeoutMs);
  }

  #checkKinds(parsed: Parsed, request: FastifyRequest): void {
    if (parsed.type !== 'enqueue') return;
    const principal = request.principal as Principal;
    if (!parsed.jobs.every(({ kind }) => mayEnqueue(principal, kind)))
      throw new Refusal(403, 'not-allowed', 'this key may not enqueue that kind');
  }

  #requestKey(request: FastifyRequest, bytes: Buffer | null): RequestKey | null {
    const key = idempotencyKeyOf(request.raw);
    if (key === null) return null;
    const hash = createHash('sha256').update(`${request.method} ${request.raw.url}\n`);
    if (bytes !== null) hash.update(bytes);
    return { principal: request.principal?.name ?? '', key, bodyHash: hash.digest() };
  }

  /** Whatever was thrown, as an answer. */
  fail(error: unknown, request: FastifyRequest, reply: FastifyReply): void {
    const refusal = this.#refusalOf(error);
    if (refusal.status >= 500) {
      const route = request.routeOptions.url;
      this.#options.log.error({ request: request.id, route, ...errorFields(error) }, 'a request failed');
    }
    if (refusal.status === 503) reply.header('retry-after', '1');
    const response = this.render(refusal, request);
    if (refusal.status === 413) refuseUnread(request, reply, response, true);
    else send(reply, response);
  }

  #refusalOf(error: unknown): Refusal {
    if (isRefusal(error)) return error;
    const { code, statusCode } = error as { code?: unknown; statusCode?: unknown };
    if (code === 'FST_ERR_CTP_BODY_TOO_LARGE') return tooLarge(this.maxBodyBytes);
    if (typeof statusCode === 'number' && statusCode < 500)
      return new Refusal(statusCode, 'malformed', 'the request is malformed');
    // Read and found good by us, refused by the server: a limit of jsonb that we do not know.
    if (typeof code === 'string' && /^(22|54)...$/.test(code))
      return new Refusal(422, 'unstorable', 'the database cannot hold this');
    if (isUnavailable(error, code))
      return new Refusal(
        503,
        'unavailable',
        'the database does not answer; send it again with the same Idempotency-Key',
      );
    return new Refusal(500, 'internal', 'something failed here; the log says what');
  }

  render(refusal: Refusal, request: FastifyRequest): ShimResponse {
    const mounted = request.routeOptions.config.mounted;
    if (mounted === undefined) return problem(refusal);
    return (mounted.route.errors ?? mounted.contract.errors)(refusal);
  }

  /** Is there a body on its way that nobody will read? */
  linger(request: FastifyRequest): boolean {
    return hasBody(request.raw);
  }

  note(request: FastifyRequest, status: number, ms: number): void {
    const route = request.routeOptions.url;
    if (route === '/livez' || route === '/readyz') return;
    // The route's pattern, not the path: ids and keys in it may be somebody's.
    this.#options.log.info(
      {
        request: request.id,
        method: request.method,
        route,
        status,
        ms: Math.round(ms),
        principal: request.principal?.name,
      },
      'request',
    );
  }

  async answers(): Promise<boolean> {
    return within(this.#options.ping(), PING_TIMEOUT_MS).then(
      () => true,
      () => false,
    );
  }
}

/**
 * Connection trouble (08, 53, 57, whatever ends a connection as FATAL), a lock not got in time (55P03), a network error,
 * or no answer in time.
 */
function isUnavailable(error: unknown, code: unknown): boolean {
  if (error instanceof UnbrokerError)
    return error.code === 'database-slow' || error.code === 'dedupe-unsettled';
  if ((error as { severity?: unknown }).severity === 'FATAL') return true;
  if (typeof code === 'string' && /^(08...|53...|57...|55P03|40...|25006|E[A-Z]+)$/.test(code)) return true;
  const message = error instanceof Error ? error.message : '';
  return /timeout exceeded when trying to connect|Connection terminated|Client has encountered a connection error/.test(
    message,
  );
}

function traced(parsed: Parsed, head: IncomingMessage): Parsed {
  const traceparent = traceparentOf(head);
  if (traceparent === null || parsed.type !== 'enqueue') return parsed;
  return {
    ...parsed,
    jobs: parsed.jobs.map((job) => ({ ...job, headers: { ...job.headers, traceparent } })),
  };
}

function send(reply: FastifyReply, { status, headers = {}, body }: ShimResponse): FastifyReply {
  reply.code(status);
  for (const [name, value] of Object.entries(headers)) reply.header(name, value);
  if (body === null) return reply.send();
  if (headers['content-type'] === undefined) reply.header('content-type', 'application/json; charset=utf-8');
  return reply.send(body);
}

/**
 * Answers although a body is still coming, then closes. Closing with unread bytes resets the connection, and a client
 * that is still writing would see the reset instead of the answer: so the answer goes out whole, a bounded rest is
 * read away, and then the connection ends.
 */
function refuseUnread(
  request: FastifyRequest,
  reply: FastifyReply,
  response: ShimResponse,
  linger: boolean,
): void {
  if (!linger) {
    send(reply, response);
    return;
  }
  const { status, headers, body } = response;
  const content = Buffer.from(body ?? '');
  reply.hijack();
  const { raw } = reply;
  raw.writeHead(status, {
    'content-type': 'application/json; charset=utf-8',
    ...headers,
    'content-length': content.length,
    connection: 'close',
  });
  raw.write(content);
  let left = LINGER.bytes;
  const end = (): void => {
    clearTimeout(timer);
    raw.end();
  };
  const timer = setTimeout(end, LINGER.ms);
  request.raw.on('data', (chunk: Buffer) => {
    left -= chunk.length;
    if (left < 0) end();
  });
  request.raw.on('end', end).on('close', end).on('error', end);
  request.raw.resume();
}
