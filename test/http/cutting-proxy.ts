/**
 * A TCP proxy that loses answers: a connection is cut when the first byte comes back after `armed` said so. What was
 * asked has happened by then; who asked never hears of it.
 */

import type { AddressInfo } from 'node:net';
import { connect, createServer, type Socket } from 'node:net';

export interface CuttingProxy {
  readonly port: number;
  /** Connections that were cut so far. */
  readonly cuts: number;
  close(): Promise<void>;
}

/** `armed(sent)` is asked with what a client just sent; true = lose the next answer on this connection. */
export async function startCuttingProxy(
  target: { readonly host: string; readonly port: number },
  armed: (sent: Buffer) => boolean,
): Promise<CuttingProxy> {
  let cuts = 0;
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    const upstream = connect(target.port, target.host);
    let cut = false;
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.setNoDelay(true);
      socket
        .on('error', () => undefined)
        .on('close', () => {
          sockets.delete(socket);
          client.destroy();
          upstream.destroy();
        });
    }
    client.on('data', (chunk: Buffer) => {
      if (armed(chunk)) cut = true;
      upstream.write(chunk);
    });
    upstream.on('data', (chunk: Buffer) => {
      if (!cut) {
        client.write(chunk);
        return;
      }
      cuts += 1;
      client.resetAndDestroy();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    port: (server.address() as AddressInfo).port,
    get cuts() {
      return cuts;
    },
    close: () =>
      new Promise((resolve) => {
        for (const socket of sockets) socket.destroy();
        server.close(() => resolve());
      }),
  };
}
