/**
 * A TCP proxy that injects faults between a client and a server: delay, cut, refuse, black hole, silence one way, a slow
 * farewell; and, knowing how Postgres and AMQP frame their messages, one chosen message dropped: the reply to a statement
 * that the server has carried out, an acknowledgement, a confirm. It alters no byte that it passes on.
 */
import { connect as connectTcp, createServer, type Socket } from 'node:net';
import { type Reader, readerFor, type WireMessage } from './fault-protocols.js';

export interface FaultProxy {
  /** The given URL with the proxy's host and port. */
  readonly url: string;
  /** Connections open now. */
  readonly open: number;
  /** Connections accepted so far. */
  readonly accepted: number;
  /** Both ends stay open and nothing passes, as when a network drops packets; `onlyOpen`: new connections work. */
  blackHole(options?: { readonly onlyOpen?: boolean }): void;
  /** Each chunk passes after `ms`, in order, both ways. */
  delay(ms: number): void;
  /** Resets every open connection, on both sides. */
  cut(): void;
  /** New connections are reset at once. */
  refuse(): void;
  /** Ends black hole, silence, delay, slow closing and refusal; what was held back passes. */
  heal(): void;
  /**
   * The next statement that matches is carried out; its reply is not delivered, the connection is cut instead. Resolves
   * once that has happened.
   */
  dropReply(pattern: RegExp): Promise<void>;
  /** AMQP: the client's next basic.ack does not arrive, the connection is cut instead. Resolves once that has happened. */
  dropAck(): Promise<void>;
  /** Nothing is dropped: resolves once the client's next basic.ack has been passed on. */
  passAck(): Promise<void>;
  /** AMQP: the server's next confirm does not arrive: the message is stored, its publisher does not hear of it. Then the cut. */
  dropConfirm(): Promise<void>;
  /** Open connections hear no more from that side, heartbeats included, while the other way goes on. */
  silence(side: Side): void;
  /** Whoever leaves is seen to leave only after `ms`: the other side keeps what it holds for the leaver until then. */
  slowClose(ms: number): void;
  close(): Promise<void>;
}

export type Side = 'client' | 'server';

export async function startFaultProxy(url: string): Promise<FaultProxy> {
  const target = new URL(url);
  const pairs = new Set<Pair>();
  let accepted = 0;
  let refusing = false;
  const conditions: Conditions = { delayMs: 0, closeMs: 0, holed: false, drop: undefined };
  const port = Number(target.port || (/^amqp/.test(target.protocol) ? 5672 : 5432));

  const server = createServer((client) => {
    accepted += 1;
    if (refusing) {
      client.resetAndDestroy();
      return;
    }
    const pair = new Pair(client, target.hostname, port, target.protocol, conditions);
    pairs.add(pair);
    pair.closed.then(() => pairs.delete(pair));
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(0, '127.0.0.1', resolve);
  });
  const own = new URL(url);
  own.hostname = '127.0.0.1';
  own.port = String((server.address() as { port: number }).port);

  return {
    url: own.href,
    get open() {
      return pairs.size;
    },
    get accepted() {
      return accepted;
    },
    blackHole({ onlyOpen = false } = {}) {
      conditions.holed = !onlyOpen;
      for (const pair of pairs) pair.hold();
    },
    delay(ms) {
      conditions.delayMs = ms;
    },
    cut() {
      for (const pair of pairs) pair.cut();
    },
    refuse() {
      refusing = true;
    },
    heal() {
      Object.assign(conditions, { holed: false, delayMs: 0, closeMs: 0 });
      refusing = false;
      for (const pair of pairs) pair.pass();
    },
    dropReply: (pattern) =>
      new Promise((done) => {
        conditions.drop = { what: 'reply', pattern, done };
      }),
    dropAck: () =>
      new Promise((done) => {
        conditions.drop = { what: 'message', side: 'client', type: BASIC_ACK, done };
      }),
    passAck: () =>
      new Promise((done) => {
        conditions.drop = { what: 'nothing', type: BASIC_ACK, done };
      }),
    dropConfirm: () =>
      new Promise((done) => {
        conditions.drop = { what: 'message', side: 'server', type: BASIC_ACK, done };
      }),
    silence(side) {
      for (const pair of pairs) pair.silence(side);
    },
    slowClose(ms) {
      conditions.closeMs = ms;
    },
    async close() {
      for (const pair of pairs) pair.cut();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** Class and method; from the server it is a confirm. */
const BASIC_ACK = '60.80';

interface Conditions {
  delayMs: number;
  closeMs: number;
  /** New connections are held from the start. */
  holed: boolean;
  drop: Drop | undefined;
}

type Drop =
  | { readonly what: 'nothing'; readonly type: string; readonly done: () => void }
  | { readonly what: 'reply'; readonly pattern: RegExp; readonly done: () => void }
  | { readonly what: 'message'; readonly side: Side; readonly type: string; readonly done: () => void };

/** A client's connection and ours to the server. */
class Pair {
  readonly closed: Promise<void>;
  readonly #server: Socket;
  readonly #held = new Set<Socket>();
  #ends = 0;
  /** Set while the reply to a statement is awaited in order to be dropped. */
  #dropping: (() => void) | undefined;
  readonly #fromClient: Reader;
  readonly #fromServer: Reader;

  constructor(
    readonly client: Socket,
    host: string,
    port: number,
    protocol: string,
    private readonly conditions: Conditions,
  ) {
    this.#fromClient = readerFor(protocol, true);
    this.#fromServer = readerFor(protocol, false);
    this.#server = connectTcp(port, host);
    for (const socket of [client, this.#server]) socket.setNoDelay(true);
    this.closed = new Promise((resolve) => {
      for (const socket of [client, this.#server]) {
        socket.on('error', () => {});
        socket.on('close', () => {
          this.#ends += 1;
          this.#afterwards(() => this.cut());
          if (this.#ends === 2) resolve();
        });
      }
    });
    this.#pump(client, this.#server, (chunk) => this.#sees(chunk));
    this.#pump(this.#server, client, (chunk) => this.#answered(chunk));
    if (conditions.holed) this.hold();
  }

  hold(): void {
    for (const socket of [this.client, this.#server]) this.#hold(socket);
  }

  silence(side: Side): void {
    this.#hold(side === 'client' ? this.client : this.#server);
  }

  #hold(socket: Socket): void {
    this.#held.add(socket);
    socket.pause();
  }

  pass(): void {
    this.#held.clear();
    this.client.resume();
    this.#server.resume();
  }

  cut(): void {
    for (const socket of [this.client, this.#server]) if (!socket.destroyed) socket.resetAndDestroy();
  }

  #afterwards(act: () => void): void {
    const { closeMs } = this.conditions;
    if (closeMs === 0) act();
    else setTimeout(act, closeMs);
  }

  /** `inspect` answers how much of a chunk may pass. */
  #pump(from: Socket, to: Socket, inspect: (chunk: Buffer) => number): void {
    let last = Promise.resolve();
    from.on('data', (whole: Buffer) => {
      const chunk = whole.subarray(0, inspect(whole));
      if (chunk.length === 0) return;
      const { delayMs } = this.conditions;
      if (delayMs === 0) to.write(chunk);
      else
        last = last
          .then(() => new Promise((resolve) => setTimeout(resolve, delayMs)))
          .then(() => void to.write(chunk));
    });
    from.on('end', () => void last.then(() => this.#afterwards(() => to.end())));
    // A chunk that was in flight when it was paused comes all the same.
    from.on('resume', () => {
      if (this.#held.has(from)) from.pause();
    });
  }

  #sees(chunk: Buffer): number {
    const { drop } = this.conditions;
    const messages = this.#fromClient.push(chunk);
    if (drop === undefined || this.#dropping !== undefined) return chunk.length;
    if (drop.what === 'nothing') {
      if (messages.some(({ type }) => type === drop.type)) {
        this.conditions.drop = undefined;
        setImmediate(drop.done);
      }
      return chunk.length;
    }
    if (drop.what === 'message')
      return drop.side === 'client' ? this.#without(messages, chunk, drop) : chunk.length;
    for (const { type, body } of messages) {
      if (type !== 'Q' && type !== 'P') continue;
      const texts = body.toString('utf8').split('\0');
      // Parse begins with the name of the statement.
      if (!drop.pattern.test((type === 'Q' ? texts[0] : texts[1]) ?? '')) continue;
      this.conditions.drop = undefined;
      this.#dropping = drop.done;
      break;
    }
    return chunk.length;
  }

  #answered(chunk: Buffer): number {
    const { drop } = this.conditions;
    const messages = this.#fromServer.push(chunk);
    if (drop?.what === 'message' && drop.side === 'server') return this.#without(messages, chunk, drop);
    if (this.#dropping === undefined) return chunk.length;
    // ReadyForQuery: the statement is over, its transaction committed or not.
    if (messages.some(({ type }) => type === 'Z')) {
      this.#dropping();
      this.cut();
    }
    return 0;
  }

  /** What comes before the message passes; then both ends are gone. */
  #without(
    messages: readonly WireMessage[],
    chunk: Buffer,
    { type, done }: { readonly type: string; readonly done: () => void },
  ): number {
    const found = messages.find((message) => message.type === type);
    if (found === undefined) return chunk.length;
    this.conditions.drop = undefined;
    // After what passes has been written.
    setImmediate(() => {
      this.cut();
      done();
    });
    return Math.max(found.at, 0);
  }
}
