/**
 * The HTTP server: mounts contracts on the framework and keeps what is about requests as such: limits, timeouts, refusals
 * that leave a body unread, log lines without payload, stopping. The only file that knows the framework; the rules a
 * request passes are door.ts, those of a connection connections.ts.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import Fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify';
import { within } from '../jobs/signal.js';
import { errorFields, type Log } from '../log.js';
import { AccessLog, type Answered } from './access-log.js';
import { ANONYMOUS, type Principal } from './auth.js';
import { Connections } from './connections.js';
import { type Contract, isRefusal, problem, Refusal, type ShimResponse } from './contract.js';
import { Door, type DoorOptions, type Mounted, mountedRoute, renderRefusal } from './door.js';
import { openApi } from './openapi.js';
import { hasBody, refuseHead, SERVER_LIMITS } from './request-rules.js';

export interface ShimServerOptions extends Pick<DoorOptions, 'context' | 'core' | 'keys' | 'loadTemplate'> {
  readonly contracts: readonly Contract[];
  readonly log: Log;
  /** Rejects while the database does not answer, or takes no writes. For /readyz. */
  readonly ping: () => Promise<unknown>;
  readonly limits?: Partial<Limits>;
  /** HTTPS; `ca`: clients are asked for a certificate that it has signed. */
  readonly tls?: { readonly cert: Buffer; readonly key: Buffer; readonly ca?: Buffer };
  /** After each answer but those about health. */
  readonly onAnswered?: ((answered: Answered) => void) | undefined;
}

export interface ShimServer {
  /** What /readyz says. */
  ready(): Promise<boolean>;
  /** Resolves with the base URL once it takes connections. Port 0: any free one. */
  listen(options: { readonly host: string; readonly port: number }): Promise<string>;
  /**
   * /readyz says no, no new connection is taken, what is under way is finished; after `deadlineMs` (default 10,000)
   * connections are cut. A request that still comes on an open connection is served, not sent away.
   */
  close(options?: { readonly deadlineMs?: number }): Promise<void>;
}

type Limits = Record<keyof typeof SERVER_LIMITS, number>;

declare module 'fastify' {
  interface FastifyContextConfig {
    mounted?: Mounted;
  }
  interface FastifyRequest {
    principal: Principal | null;
  }
}

const PING_TIMEOUT_MS = 2_000;
const HEALTH: readonly (string | undefined)[] = ['/livez', '/readyz'];
const NOT_READY: ShimResponse = { status: 503, body: '{"status":"not ready"}' };
/** Characters; shorter answers are not counted. */
const LONG_ANSWER = 65_536;
/** Connections that the system keeps for us until we look; it may allow fewer. */
const BACKLOG = 4_096;
/** After a refusal that leaves a body unread: how much of it, and how long, is read away before the connection goes. */
const LINGER = { bytes: 2_097_152, ms: 1_000 } as const;

export function createShimServer(options: ShimServerOptions): ShimServer {
  const limits: Limits = { ...SERVER_LIMITS, ...options.limits };
  const app = createApp(limits, options.tls);
  const { context, core, keys, loadTemplate } = options;
  const door = new Door({
    context,
    core,
    keys,
    ...(loadTemplate === undefined ? {} : { loadTemplate }),
    bodyBytes: limits.bodyBytes,
    answerTimeoutMs: limits.answerTimeoutMs,
  });
  let draining = false;

  app.decorateRequest('principal', null);
  // Bodies are read as bytes, whatever they call themselves: what they are is decided by request-rules.
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', { parseAs: 'buffer' }, (_request, body, done) => done(null, body));
  const access = new AccessLog(options.log);
  const connections = new Connections(app.server, {
    max: limits.connections,
    onFull: (since) =>
      options.log.warn({ ...since }, 'there are more connections than serve.maxConnections allows'),
  });
  addTurns(app, connections);
  limitAnswers(app, limits.answerBytes);
  addHooks(app, door, options, access, connections);
  for (const contract of options.contracts) {
    for (const route of contract.routes) mount(app, door, mountedRoute(contract, route));
  }
  app.get('/livez', (_request, reply) => send(reply, { status: 200, body: '{"status":"live"}' }));
  const isReady = async (): Promise<boolean> => !draining && (await answers(options.ping));
  app.get('/readyz', async (_request, reply) =>
    send(reply, (await isReady()) ? { status: 200, body: '{"status":"ready"}' } : NOT_READY),
  );
  const document = JSON.stringify(openApi(options.contracts, keys.length > 0));
  app.get('/openapi.json', (_request, reply) => send(reply, { status: 200, body: document }));
  answerExpectations(app, door, connections);

  return {
    ready: isReady,
    async listen({ host, port }) {
      await app.listen({ host, port, backlog: BACKLOG });
      const address = app.server.address() as AddressInfo;
      return `${options.tls === undefined ? 'http' : 'https'}://${address.family === 'IPv6' ? `[${address.address}]` : address.address}:${address.port}`;
    },
    async close({ deadlineMs = 10_000 } = {}) {
      draining = true;
      const cut = setTimeout(() => app.server.closeAllConnections(), deadlineMs);
      // Closing closes what is idle now; a connection that finishes its request later would be kept for a minute.
      const idle = setInterval(() => app.server.closeIdleConnections(), 50);
      await app.close();
      clearTimeout(cut);
      clearInterval(idle);
      access.close();
    },
  };
}

function createApp(limits: Limits, tls: ShimServerOptions['tls']): FastifyInstance {
  const http = {
    maxHeaderSize: limits.headerBytes,
    headersTimeout: limits.headersTimeoutMs,
    requestTimeout: limits.requestTimeoutMs,
    // Node looks for slow connections only this often, and its default is half a minute.
    connectionsCheckingInterval: 1_000,
    // Refused by us: Node's own answer has no body.
    requireHostHeader: false,
  };
  // Who has no certificate may have a key: it is asked for, and refused by the door.
  const verified = { requestCert: tls?.ca !== undefined, rejectUnauthorized: false };
  const https = {
    ...http,
    ...tls,
    ...verified,
    minVersion: 'TLSv1.2',
    handshakeTimeout: limits.headersTimeoutMs,
  } as const;
  const app = Fastify({
    logger: false,
    exposeHeadRoutes: false,
    bodyLimit: limits.bodyBytes,
    requestTimeout: limits.requestTimeoutMs,
    connectionTimeout: limits.stalledMs,
    keepAliveTimeout: limits.keepAliveTimeoutMs,
    return503OnClosing: false,
    forceCloseConnections: 'idle',
    routerOptions: { maxParamLength: 600 },
    ...(tls === undefined ? { http } : { https }),
    // A path that cannot be decoded never reaches a hook; the framework's own answer would quote it.
    frameworkErrors: (_error, _request, reply) => {
      send(reply, problem(new Refusal(404, 'not-found', 'no such route')));
    },
  });
  return app;
}

/** Before anything else: one request at a time on a connection. */
function addTurns(app: FastifyInstance, connections: Connections): void {
  app.server.removeAllListeners('clientError').on('clientError', (error, socket) => {
    onClientError(error, socket as Socket, connections);
  });
  app.addHook('onRequest', (request, reply, next) => connections.enter(request.raw, reply.raw, () => next()));
  app.addHook('preHandler', (request, _reply, next) => {
    connections.working(request.raw.socket);
    next();
  });
  app.addHook('onSend', ({ raw: { socket } }, reply, _payload, next) => {
    connections.answering(socket);
    if (!reply.raw.shouldKeepAlive || reply.getHeader('connection') === 'close') connections.last(socket);
    next();
  });
}

/** Long lists that clients do not read, or read slowly, stay in our memory: no more than so much at once. */
function limitAnswers(app: FastifyInstance, maxLength: number): void {
  let length = 0;
  app.addHook('onSend', ({ method }, reply, payload, next) => {
    if (method !== 'GET' || typeof payload !== 'string' || payload.length < LONG_ANSWER) {
      next(null, payload);
      return;
    }
    if (length + payload.length > maxLength) {
      const { status, headers, body } = problem(
        new Refusal(503, 'overloaded', 'too many long lists at once'),
      );
      reply.code(status).headers({ ...headers, 'retry-after': '1' });
      next(null, body);
      return;
    }
    length += payload.length;
    reply.raw.once('close', () => {
      length -= payload.length;
    });
    next(null, payload);
  });
}

/** What every request passes on its way in and out. */
function addHooks(
  app: FastifyInstance,
  door: Door,
  { log, onAnswered }: ShimServerOptions,
  access: AccessLog,
  connections: Connections,
): void {
  const refuse = (request: FastifyRequest, reply: FastifyReply, response: ShimResponse, unread: boolean) => {
    if (unread) connections.last(request.raw.socket);
    sayNo(request, reply, response, unread);
  };
  app.addHook('onRequest', (request, reply, next) => {
    const { mounted } = request.routeOptions.config;
    // Health is asked by machines that have no key.
    const health = HEALTH.includes(request.routeOptions.url);
    const admitted = health
      ? (refuseHead(request.raw) ?? ANONYMOUS)
      : door.admit(request.raw, mounted, certificateOf(request.raw));
    if (isRefusal(admitted)) {
      refuse(request, reply, renderRefusal(admitted, mounted), hasBody(request.raw));
      return;
    }
    request.principal = admitted;
    next();
  });
  app.setErrorHandler((error, request, reply) => {
    const refusal = door.refusalOf(error);
    // A client that left in the middle of its body is no failure of ours.
    if (refusal.status >= 500 && (request.raw.complete || !request.raw.socket.destroyed)) {
      const route = request.routeOptions.url;
      log.error({ request: request.id, route, ...errorFields(error) }, 'a request failed');
    }
    if (refusal.status === 503) reply.header('retry-after', '1');
    refuse(
      request,
      reply,
      renderRefusal(refusal, request.routeOptions.config.mounted),
      refusal.status === 413,
    );
  });
  app.setNotFoundHandler((_request, reply) => {
    send(reply, problem(new Refusal(404, 'not-found', 'no such route')));
  });
  app.addHook('onResponse', (request, reply, next) => {
    const { id, method, principal } = request;
    const { url: route } = request.routeOptions;
    const { statusCode: status, elapsedTime: ms } = reply;
    if (!HEALTH.includes(route)) {
      const answered = { id, method, route, status, ms, principal: principal?.name };
      access.note(answered);
      onAnswered?.(answered);
    }
    next();
  });
}

/** Fingerprint of a client's certificate that was verified; null without TLS or without one. */
function certificateOf({ socket }: IncomingMessage): string | null {
  if (!(socket instanceof TLSSocket) || !socket.authorized) return null;
  const { fingerprint256 } = socket.getPeerCertificate();
  return fingerprint256 === undefined ? null : fingerprint256.replaceAll(':', '').toLowerCase();
}

function mount(app: FastifyInstance, door: Door, mounted: Mounted): void {
  app.route({
    method: mounted.route.method,
    url: mounted.route.path,
    config: { mounted },
    handler: async (request, reply) => {
      const response = await door.serve(mounted, {
        head: request.raw,
        params: request.params as Record<string, string>,
        bytes: Buffer.isBuffer(request.body) ? request.body : null,
        principal: request.principal ?? ANONYMOUS,
      });
      return send(reply, response);
    },
  });
}

function answers(ping: () => Promise<unknown>): Promise<boolean> {
  return within(ping(), PING_TIMEOUT_MS).then(
    () => true,
    () => false,
  );
}

/** A request that was never one: the parser refused it, or it came too slowly. */
function onClientError(error: Error & { code?: string }, socket: Socket, connections: Connections): void {
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
  connections.refuse(socket, refusal);
}

/** `Expect: 100-continue`: say no before the body is sent, or let it come. */
function answerExpectations(app: FastifyInstance, door: Door, connections: Connections): void {
  const refuse = (request: IncomingMessage, response: ServerResponse, refusal: Refusal): void =>
    connections.enter(request, response, () => {
      connections.last(request.socket);
      const { status, headers, body } = problem(refusal);
      response.writeHead(status, { ...headers, connection: 'close' }).end(body);
    });
  app.server.on('checkContinue', (request: IncomingMessage, response: ServerResponse) => {
    const admitted = door.admit(request, null, certificateOf(request));
    if (isRefusal(admitted)) {
      refuse(request, response, admitted);
      return;
    }
    response.writeContinue();
    app.server.emit('request', request, response);
  });
  app.server.on('checkExpectation', (request: IncomingMessage, response: ServerResponse) => {
    refuse(request, response, new Refusal(417, 'expectation', 'only 100-continue can be expected'));
  });
}

function send(reply: FastifyReply, { status, headers = {}, body }: ShimResponse): FastifyReply {
  reply.code(status);
  for (const [name, value] of Object.entries(headers)) reply.header(name, value);
  if (body === null) return reply.send();
  if (headers['content-type'] === undefined) reply.header('content-type', 'application/json; charset=utf-8');
  return reply.send(body);
}

/**
 * Says no. With a body still coming (`unread`) the connection must end, and ending it with unread bytes resets it: a
 * client that is still writing would see the reset instead of the answer. So the answer goes out whole, a bounded rest
 * is read away, and then the connection ends.
 */
function sayNo(request: FastifyRequest, reply: FastifyReply, response: ShimResponse, unread: boolean): void {
  if (!unread) {
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
