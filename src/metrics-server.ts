/**
 * A door of its own for whoever watches a process: metrics, and whether it lives and is ready. It has no keys, so it
 * listens on this machine alone unless told otherwise, and what it says names kinds and never a payload.
 */
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { METRICS_CONTENT_TYPE } from './metrics.js';

export interface MetricsServerOptions {
  readonly host: string;
  /** 0: any free one. */
  readonly port: number;
  readonly text: () => Promise<string>;
  /** For /readyz: does the database answer, and take what is to be written? */
  readonly ready: () => boolean | Promise<boolean>;
}

export interface MetricsServer {
  readonly url: string;
  close(): Promise<void>;
}

/** Rejects with Node's error when the address cannot be listened on. */
export async function serveMetrics({
  host,
  port,
  text,
  ready,
}: MetricsServerOptions): Promise<MetricsServer> {
  const answer: RequestListener = (request, response) => {
    const path = (request.url ?? '').split('?')[0];
    const plain = { 'content-type': 'text/plain; charset=utf-8' };
    if (request.method !== 'GET' && request.method !== 'HEAD') response.writeHead(405, plain).end();
    else if (path === '/livez') response.writeHead(200, plain).end('live\n');
    else if (path === '/readyz') {
      const say = (is: boolean) =>
        response.writeHead(is ? 200 : 503, plain).end(is ? 'ready\n' : 'not ready\n');
      Promise.resolve(ready()).then(say, () => say(false));
    } else if (path === '/metrics') {
      text().then(
        (body) => response.writeHead(200, { 'content-type': METRICS_CONTENT_TYPE }).end(body),
        () => response.writeHead(500, plain).end(),
      );
    } else response.writeHead(404, plain).end('/metrics, /livez, /readyz\n');
  };
  const server = createServer(
    { requestTimeout: 5_000, headersTimeout: 5_000, keepAliveTimeout: 5_000 },
    answer,
  );
  server.maxConnections = 20;
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, host, resolve);
  });
  // Only a process that has something to do is kept alive.
  server.unref();
  const address = server.address() as AddressInfo;
  return {
    url: `http://${address.family === 'IPv6' ? `[${address.address}]` : address.address}:${address.port}`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}
