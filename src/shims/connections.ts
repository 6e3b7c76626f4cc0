/**
 * Who may hold a connection, and whose turn it is on one. Above the limit the connection that has kept us waiting longest
 * makes room, so that ten thousand slow clients do not shut out the others; when all are at work, the newcomer is told 503.
 * Requests that come together on one connection are served one after the other, and none behind an answer that closes it:
 * what was done could not be said. It knows sockets and refusals, no routes.
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { Server as TlsServer } from 'node:https';
import type { Socket } from 'node:net';
import { problem, Refusal } from './contract.js';

export interface ConnectionsOptions {
  readonly max: number;
  /** At most once in REPORT_EVERY_MS, when there were more than `max`. */
  readonly onFull: (since: TurnedAway) => void;
}

/** Connections since the last report. */
export interface TurnedAway {
  /** Told 503, or not even that. */
  readonly refused: number;
  /** Ended to make room for others. */
  readonly replaced: number;
}

interface Held {
  /** Whose turn has come and whose answer is not out. */
  current: IncomingMessage | null;
  /** Nothing that comes is served any more. */
  closing: boolean;
  readonly queue: (() => void)[];
}

/** Nobody is replaced who has not kept us waiting for so long. */
const GRACE_MS = 1_000;
/** Requests that wait behind another on one connection; a client that sends more is cut off. */
const MAX_QUEUED = 32;
const REPORT_EVERY_MS = 10_000;
/** How long a refusal may take to be read. */
const REFUSAL_MS = 200;
const FULL = new Refusal(503, 'too-many-connections', 'there are too many connections; come again later');

export class Connections {
  readonly #held = new Map<Socket, Held>();
  /** Whose request is not whole, or whose answer is not read: since when. Oldest first, as Maps are. */
  readonly #slow = new Map<Socket, number>();
  /** Between two requests. */
  readonly #idle = new Map<Socket, number>();
  /** Ended by us; a request may still come out of what was read before. */
  readonly #ended = new WeakSet<Socket>();
  #turnedAway = { refused: 0, replaced: 0 };
  #reportedAt = Number.NEGATIVE_INFINITY;

  constructor(
    server: Server,
    private readonly options: ConnectionsOptions,
  ) {
    // The framework's own listener is called by us, for those that are let in.
    const event = server instanceof TlsServer ? 'secureConnection' : 'connection';
    const admitted = server.listeners(event) as ((this: Server, socket: Socket) => void)[];
    server.removeAllListeners(event);
    server.on(event, (socket: Socket) => {
      if (!this.#admit(socket)) return;
      for (const listener of admitted) listener.call(server, socket);
    });
    // As many again may be on their way out, or in a handshake; more are dropped before we see them.
    server.maxConnections = options.max * 2;
    server.on('drop', () => this.#count('refused'));
  }

  /**
   * Calls `go` when the request's turn has come: at once, or after those before it on its connection. Never, when the
   * connection has ended or is about to; nothing may be done for it then. The turn ends with the answer.
   */
  enter(request: IncomingMessage, response: ServerResponse, go: () => void): void {
    const { socket } = request;
    const held = this.#held.get(socket);
    // The framework listens on `localhost` with a second server that we do not see: its connections go by.
    if (held === undefined && !this.#ended.has(socket)) go();
    if (held === undefined || held.closing) return;
    const start = (): void => {
      held.current = request;
      this.#isSlow(socket);
      response.once('close', () => this.#leave(socket, held));
      go();
    };
    if (held.current === null) start();
    else if (held.queue.length < MAX_QUEUED) held.queue.push(start);
    else held.closing = true;
  }

  /** The request is whole: whatever takes its time now is on our side. */
  working(socket: Socket): void {
    this.#slow.delete(socket);
  }

  /** The answer is written; reading it is up to the client. */
  answering(socket: Socket): void {
    if (this.#held.has(socket)) this.#isSlow(socket);
  }

  /** The answer under way is the last: what waits behind it is not done. */
  last(socket: Socket): void {
    const held = this.#held.get(socket);
    if (held === undefined) return;
    held.closing = true;
    held.queue.length = 0;
  }

  /** What came is no request. Those before it on the connection are answered first, if they are whole. */
  refuse(socket: Socket, refusal: Refusal): void {
    const held = this.#held.get(socket);
    if (held?.closing === true) return;
    if (held !== undefined) held.closing = true;
    if (held?.current?.complete === true) held.queue.push(() => refuseConnection(socket, refusal));
    else refuseConnection(socket, refusal);
  }

  #admit(socket: Socket): boolean {
    if (this.#held.size >= this.options.max && !this.#makeRoom()) {
      this.#count('refused');
      refuseConnection(socket, FULL);
      return false;
    }
    this.#held.set(socket, { current: null, closing: false, queue: [] });
    this.#isSlow(socket);
    socket.once('close', () => this.#forget(socket));
    return true;
  }

  #makeRoom(): boolean {
    const now = performance.now();
    for (const waiting of [this.#slow, this.#idle]) {
      const [oldest] = waiting;
      if (oldest === undefined || now - oldest[1] < GRACE_MS) continue;
      const [socket] = oldest;
      this.#forget(socket);
      this.#count('replaced');
      // Between two requests there is nothing to answer.
      if (waiting === this.#idle) socket.destroy();
      else refuseConnection(socket, FULL);
      return true;
    }
    return false;
  }

  #leave(socket: Socket, held: Held): void {
    held.current = null;
    this.#slow.delete(socket);
    if (!this.#held.has(socket)) return;
    const next = held.queue.shift();
    if (next !== undefined) next();
    else if (held.closing) socket.destroySoon();
    else this.#idle.set(socket, performance.now());
  }

  #isSlow(socket: Socket): void {
    this.#idle.delete(socket);
    this.#slow.delete(socket);
    this.#slow.set(socket, performance.now());
  }

  #forget(socket: Socket): void {
    this.#ended.add(socket);
    this.#held.delete(socket);
    this.#slow.delete(socket);
    this.#idle.delete(socket);
  }

  #count(what: keyof TurnedAway): void {
    this.#turnedAway[what] += 1;
    const now = performance.now();
    if (now - this.#reportedAt < REPORT_EVERY_MS) return;
    this.#reportedAt = now;
    this.options.onFull(this.#turnedAway);
    this.#turnedAway = { refused: 0, replaced: 0 };
  }
}

/** Says no to a connection, and ends it. */
function refuseConnection(socket: Socket, refusal: Refusal): void {
  const content = problem(refusal).body ?? '';
  const head = [
    `HTTP/1.1 ${refusal.status} Refused`,
    'content-type: application/problem+json',
    `content-length: ${Buffer.byteLength(content)}`,
    ...(refusal.status === 503 ? ['retry-after: 1'] : []),
    'connection: close',
  ];
  // Ended with bytes unread, it would be reset, and the answer lost with it.
  socket.on('error', () => undefined).resume();
  socket.end(`${head.join('\r\n')}\r\n\r\n${content}`);
  const timer = setTimeout(() => socket.destroy(), REFUSAL_MS).unref();
  socket.once('close', () => clearTimeout(timer));
}
