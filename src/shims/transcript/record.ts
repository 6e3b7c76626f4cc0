/**
 * A proxy before the old service: what goes through is answered by it, unchanged, and written down as a transcript. One
 * target, plain HTTP or HTTPS; bodies up to a megabyte; a line is on disk before the client has its answer.
 */
import { closeSync, openSync, writeSync } from 'node:fs';
import { createServer, type IncomingMessage, request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import type { AddressInfo } from 'node:net';
import { type Exchange, keptHeaders } from './exchange.js';

export interface Recorder {
  readonly url: string;
  /** Exchanges written so far. */
  readonly count: number;
  close(): Promise<void>;
}

export interface RecorderOptions {
  /** Base URL of the old service. */
  readonly target: string;
  /** Appended to; made if it is not there, for its owner alone. */
  readonly file: string;
  /** Default 127.0.0.1. */
  readonly host?: string;
  /** Default 0: any free one. */
  readonly port?: number;
}

const MAX_BODY = 1_048_576;
const TIMEOUT_MS = 60_000;

export async function startRecorder({
  target,
  file,
  host = '127.0.0.1',
  port = 0,
}: RecorderOptions): Promise<Recorder> {
  const base = new URL(target);
  const handle = openSync(file, 'a', 0o600);
  let count = 0;
  const write = (exchange: Exchange): void => {
    writeSync(handle, `${JSON.stringify(exchange)}\n`);
    count += 1;
  };
  const server = createServer((request, response) => {
    void forward(base, request, write).then(
      ({ status, headers, body }) => response.writeHead(status, headers).end(body),
      () =>
        response
          .writeHead(502, { 'content-type': 'text/plain' })
          .end('the service behind the recorder did not answer\n'),
    );
  });
  await new Promise<void>((resolve, reject) => server.once('error', reject).listen(port, host, resolve));
  const { port: listening } = server.address() as AddressInfo;
  return {
    url: `http://${host.includes(':') ? `[${host}]` : host}:${listening}`,
    get count() {
      return count;
    },
    async close() {
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
      closeSync(handle);
    },
  };
}

interface Answer {
  readonly status: number;
  readonly headers: Record<string, string | string[]>;
  readonly body: Buffer;
}

async function forward(
  base: URL,
  request: IncomingMessage,
  write: (exchange: Exchange) => void,
): Promise<Answer> {
  const body = await readAll(request);
  const { method = 'GET', url: target = '/', headers } = request;
  // The old service must see the path as it was sent: no URL is built from it.
  const prefix = base.pathname.replace(/\/+$/, '');
  const { connection: _connection, host: _host, ...passed } = headers;
  const answer = await new Promise<Answer>((resolve, reject) => {
    const outgoing = (base.protocol === 'https:' ? requestHttps : requestHttp)({
      hostname: base.hostname.replace(/^\[(.*)\]$/, '$1'),
      port: base.port === '' ? undefined : Number(base.port),
      method,
      path: `${prefix}${target}`,
      headers: { ...passed, host: base.host, 'accept-encoding': 'identity' },
      timeout: TIMEOUT_MS,
      agent: false,
    });
    outgoing.on('timeout', () => outgoing.destroy(new Error('timeout')));
    outgoing.on('error', reject);
    outgoing.on('response', (response) => {
      readAll(response).then((content) => {
        const { connection: _c, 'keep-alive': _k, 'transfer-encoding': _t, ...kept } = response.headers;
        const given = Object.entries(kept).filter(
          (entry): entry is [string, string | string[]] => entry[1] !== undefined,
        );
        resolve({ status: response.statusCode ?? 502, headers: Object.fromEntries(given), body: content });
      }, reject);
    });
    outgoing.end(body);
  });
  write({
    request: { method, target, headers: keptHeaders(headers), body: body.toString('utf8') },
    response: {
      status: answer.status,
      headers: keptHeaders(answer.headers),
      body: answer.body.toString('utf8'),
    },
  });
  return answer;
}

async function readAll(stream: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of stream) {
    size += (chunk as Buffer).length;
    if (size > MAX_BODY) throw new Error('too large');
    chunks.push(chunk as Buffer);
  }
  return Buffer.concat(chunks);
}
