/**
 * A TCP proxy that injects faults between a client and a server: delay, cut, refuse, black hole; and, knowing how
 * Postgres frames its messages, the reply to a chosen statement dropped after the server has carried it out. It alters
 * no byte that it passes on.
 */
import { connect as connectTcp, createServer, type Socket } from 'node:net';

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
  /** Ends black hole, delay and refusal; what was held back passes. */
  heal(): void;
  /**
   * The next statement that matches is carried out; its reply is not delivered, the connection is cut instead. Resolves
   * once that has happened.
   */
  dropReply(pattern: RegExp): Promise<void>;
  close(): Promise<void>;
}

export async function startFaultProxy(url: string): Promise<FaultProxy> {
  const target = new URL(url);
  const pairs = new Set<Pair>();
  let accepted = 0;
  let refusing = false;
  const conditions: Conditions = { delayMs: 0, holed: false, drop: undefined };

  const server = createServer((client) => {
    accepted += 1;
    if (refusing) {
      client.resetAndDestroy();
      return;
    }
    const pair = new Pair(client, target.hostname, Number(target.port || 5432), conditions);
    pairs.add(pair);
    pair.closed.then(() => pairs.delete(pair));
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(0, '127.0.0.1', resolve);
  });
  const { port } = server.address() as { port: number };
  const own = new URL(url);
  own.hostname = '127.0.0.1';
  own.port = String(port);

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
      Object.assign(conditions, { holed: false, delayMs: 0 });
      refusing = false;
      for (const pair of pairs) pair.pass();
    },
    dropReply(pattern) {
      return new Promise((resolve) => {
        conditions.drop = { pattern, done: resolve };
      });
    },
    async close() {
      for (const pair of pairs) pair.cut();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

interface Conditions {
  delayMs: number;
  /** New connections are held from the start. */
  holed: boolean;
  drop: { readonly pattern: RegExp; readonly done: () => void } | undefined;
}

/** A client's connection and ours to the server. */
class Pair {
  readonly closed: Promise<void>;
  readonly #server: Socket;
  #held = false;
  #ends = 0;
  /** Set while the reply to a statement is awaited in order to be dropped. */
  #dropping: (() => void) | undefined;
  readonly #fromClient = new Frames(true);
  readonly #fromServer = new Frames(false);

  constructor(
    readonly client: Socket,
    host: string,
    port: number,
    private readonly conditions: Conditions,
  ) {
    this.#server = connectTcp(port, host);
    for (const socket of [client, this.#server]) socket.setNoDelay(true);
    this.closed = new Promise((resolve) => {
      for (const socket of [client, this.#server]) {
        socket.on('error', () => {});
        socket.on('close', () => {
          this.#ends += 1;
          this.cut();
          if (this.#ends === 2) resolve();
        });
      }
    });
    this.#pump(client, this.#server, (chunk) => this.#sees(chunk));
    this.#pump(this.#server, client, (chunk) => this.#answered(chunk));
    if (conditions.holed) this.hold();
  }

  hold(): void {
    this.#held = true;
    this.client.pause();
    this.#server.pause();
  }

  pass(): void {
    this.#held = false;
    this.client.resume();
    this.#server.resume();
  }

  cut(): void {
    for (const socket of [this.client, this.#server]) if (!socket.destroyed) socket.resetAndDestroy();
  }

  /** `inspect` answers false for a chunk that must not pass. */
  #pump(from: Socket, to: Socket, inspect: (chunk: Buffer) => boolean): void {
    let last = Promise.resolve();
    from.on('data', (chunk: Buffer) => {
      if (!inspect(chunk)) return;
      const { delayMs } = this.conditions;
      if (delayMs === 0) to.write(chunk);
      else
        last = last
          .then(() => new Promise((resolve) => setTimeout(resolve, delayMs)))
          .then(() => void to.write(chunk));
    });
    from.on('end', () => void last.then(() => to.end()));
    // A chunk that was in flight when it was paused comes all the same.
    from.on('resume', () => {
      if (this.#held) from.pause();
    });
  }

  #sees(chunk: Buffer): boolean {
    const { drop } = this.conditions;
    for (const { type, body } of this.#fromClient.push(chunk)) {
      if (drop === undefined || this.#dropping !== undefined || (type !== 'Q' && type !== 'P')) continue;
      const texts = body.toString('utf8').split('\0');
      // Parse begins with the name of the statement.
      if (drop.pattern.test((type === 'Q' ? texts[0] : texts[1]) ?? '')) {
        this.conditions.drop = undefined;
        this.#dropping = drop.done;
      }
    }
    return true;
  }

  #answered(chunk: Buffer): boolean {
    const frames = this.#fromServer.push(chunk);
    if (this.#dropping === undefined) return true;
    // ReadyForQuery: the statement is over, its transaction committed or not.
    if (frames.some(({ type }) => type === 'Z')) {
      this.#dropping();
      this.cut();
    }
    return false;
  }
}

interface Frame {
  readonly type: string;
  readonly body: Buffer;
}

/** Cuts a stream of Postgres messages: a type byte and a length; the client's first message has no type. */
class Frames {
  #rest: Buffer = Buffer.alloc(0);

  constructor(private startup: boolean) {}

  push(chunk: Buffer): Frame[] {
    this.#rest = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
    const frames: Frame[] = [];
    for (;;) {
      const header = this.startup ? 0 : 1;
      if (this.#rest.length < header + 4) return frames;
      const length = this.#rest.readUInt32BE(header);
      if (this.#rest.length < header + length) return frames;
      const type = this.startup ? '' : String.fromCharCode(this.#rest[0] as number);
      frames.push({ type, body: this.#rest.subarray(header + 4, header + length) });
      this.#rest = this.#rest.subarray(header + length);
      this.startup = false;
    }
  }
}
