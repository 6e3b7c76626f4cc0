/**
 * A shim server on a fresh database, and a socket that sends bytes exactly as given: fetch would never send most of what
 * these tests send.
 */
import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createStore } from '../../src/jobs/store.js';
import type { Log } from '../../src/log.js';
import type { NotifyConfig } from '../../src/notify/config.js';
import { createShims, type ShimsOptions } from '../../src/shims/index.js';
import { type FreshDatabase, freshMigratedDatabase } from '../support/services.js';

export interface ShimWorld {
  readonly url: string;
  readonly port: number;
  readonly database: FreshDatabase;
  /** Every line that was logged, as JSON. */
  readonly lines: string[];
  /** Folder with the old service's templates. */
  readonly templates: string;
  jobCount(): Promise<number>;
  payloadText(id: string): Promise<string>;
  close(): Promise<void>;
}

export type WorldOptions = Partial<Pick<ShimsOptions, 'serve' | 'environment' | 'limits'>> & {
  /** Written into the config's folder first. */
  readonly files?: Readonly<Record<string, Buffer>>;
  readonly notify?: Omit<NotifyConfig, 'templates'>;
};

const LEGACY_TEMPLATES = join(import.meta.dirname, '..', 'legacy', 'notification', 'templates');

/** All channels, loopback allowed. */
export const NOTIFY: Omit<NotifyConfig, 'templates'> = {
  email: { url: 'smtp://127.0.0.1:9', from: 'Shop <shop@example.org>' },
  sms: { url: 'http://127.0.0.1:9' },
  push: { url: 'http://127.0.0.1:9' },
  webhook: {},
  allowedNetworks: ['127.0.0.0/8'],
};

export async function startShimWorld(options: WorldOptions = {}): Promise<ShimWorld> {
  const database = await freshMigratedDatabase();
  const folder = mkdtempSync(join(tmpdir(), 'unbroker-shims-'));
  const templates = join(folder, 'templates');
  cpSync(LEGACY_TEMPLATES, templates, { recursive: true });
  for (const [name, bytes] of Object.entries(options.files ?? {})) writeFileSync(join(folder, name), bytes);
  const lines: string[] = [];
  const note = (fields: object, message: string): void =>
    void lines.push(JSON.stringify({ ...fields, message }));
  const log: Log = { debug: note, info: note, warn: note, error: note };
  const server = createShims(
    {
      pool: database.pool,
      store: createStore(),
      serve: options.serve ?? {},
      notify: { templates: './templates', ...(options.notify ?? NOTIFY) },
      directory: folder,
      log,
      ...(options.environment === undefined ? {} : { environment: options.environment }),
      ...(options.limits === undefined ? {} : { limits: options.limits }),
    },
    '127.0.0.1',
  );
  const url = await server.listen({ host: '127.0.0.1', port: 0 });
  return {
    ...{ url, port: Number(new URL(url).port), database, lines, templates },
    async jobCount() {
      const { rows } = await database.pool.query<{ n: number }>(
        'select count(*)::int as n from unbroker.jobs',
      );
      return rows[0]?.n ?? -1;
    },
    async payloadText(id) {
      const { rows } = await database.pool.query<{ text: string }>(
        'select payload::text as text from unbroker.jobs where id = $1',
        [id],
      );
      return rows[0]?.text ?? '';
    },
    async close() {
      await server.close({ deadlineMs: 1_000 });
      await database.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

export interface RawAnswer {
  /** 0 when the connection ended without an answer. */
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  /** The other side closed. */
  readonly closed: boolean;
  readonly ms: number;
}

/**
 * Writes the parts one after the other and reads one answer: until the connection ends, or the answer is complete and
 * `untilClosed` is not asked for. For `maxMs` at most; default 30 000, since on a busy machine things take ten times as long.
 */
export async function sendRaw(
  port: number,
  parts: readonly (string | Buffer)[],
  options: {
    readonly pauseMs?: number;
    readonly untilClosed?: boolean;
    readonly maxMs?: number;
    /** A 100 is an answer. */
    readonly interim?: boolean;
  } = {},
): Promise<RawAnswer> {
  const startedAt = performance.now();
  const socket = connect(port, '127.0.0.1');
  const chunks: Buffer[] = [];
  let closed = false;
  const ended = new Promise<void>((resolve) => {
    const end = (): void => {
      closed = true;
      resolve();
    };
    socket.on('error', end).on('close', end).on('end', end);
  });
  const complete = new Promise<void>((resolve) => {
    socket.on('data', (chunk: Buffer) => {
      chunks.push(chunk);
      if (options.untilClosed !== true && isComplete(Buffer.concat(chunks), options.interim)) resolve();
    });
  });
  void writeParts(socket, parts, options.pauseMs ?? 0, () => closed);
  await Promise.race([ended, complete, timeout(options.maxMs ?? 30_000)]);
  socket.destroy();
  return { ...parse(Buffer.concat(chunks)), closed, ms: performance.now() - startedAt };
}

async function writeParts(
  socket: Socket,
  parts: readonly (string | Buffer)[],
  pauseMs: number,
  ended: () => boolean,
): Promise<void> {
  for (const part of parts) {
    if (ended()) return;
    const roomy = socket.write(part);
    if (pauseMs > 0) await timeout(pauseMs);
    else if (!roomy)
      await Promise.race([new Promise((resolve) => socket.once('drain', resolve)), timeout(500)]);
  }
}

const timeout = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms).unref());

function isComplete(bytes: Buffer, interim = false): boolean {
  const whole = bytes.toString('latin1');
  const text = interim ? whole : whole.replace(/^HTTP\/1\.1 100 [\s\S]*?\r\n\r\n/, '');
  const end = text.indexOf('\r\n\r\n');
  if (end === -1) return false;
  const length = /content-length: (\d+)/i.exec(text.slice(0, end))?.[1];
  return length === undefined || text.length - end - 4 >= Number(length);
}

function parse(bytes: Buffer): Pick<RawAnswer, 'status' | 'headers' | 'body'> {
  const text = bytes.toString('utf8');
  const status = Number(/^HTTP\/1\.1 (\d{3})/.exec(text)?.[1] ?? 0);
  const end = text.indexOf('\r\n\r\n');
  const headers: Record<string, string> = {};
  for (const line of text.slice(0, Math.max(0, end)).split('\r\n').slice(1)) {
    const colon = line.indexOf(':');
    headers[line.slice(0, colon).toLowerCase()] = line.slice(colon + 1).trim();
  }
  return { status, headers, body: end === -1 ? '' : text.slice(end + 4) };
}

/** A POST as bytes, with the headers that a well-behaved client sends unless others are given. */
export function rawPost(
  path: string,
  body: string | Buffer,
  headers: Readonly<Record<string, string>> = {},
): Buffer {
  const content = Buffer.from(body as string);
  const all = {
    host: 'localhost',
    'content-type': 'application/json',
    'content-length': String(content.length),
    ...headers,
  };
  const head = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`);
  return Buffer.concat([Buffer.from(`POST ${path} HTTP/1.1\r\n${head.join('')}\r\n`), content]);
}
