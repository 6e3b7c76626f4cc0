/**
 * Free loopback ports for private servers. They lie below the range from which the kernel takes ports for outgoing
 * connections: otherwise a client that reconnects to a killed server could occupy the server's own port, or even
 * connect to itself. A port may be taken between the look and the use, so whoever starts a server tries again.
 */
import { randomInt } from 'node:crypto';
import { createServer } from 'node:net';

const LOWEST = 15_000;
const HIGHEST = 30_000;

function canBind(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.once('error', () => resolve(false));
    probe.listen({ port, host: '127.0.0.1', exclusive: true }, () => probe.close(() => resolve(true)));
  });
}

export async function freePort(): Promise<number> {
  for (let attempt = 0; attempt < 200; attempt++) {
    const port = randomInt(LOWEST, HIGHEST);
    if (await canBind(port)) return port;
  }
  throw new Error(`no free loopback port found between ${LOWEST} and ${HIGHEST} in 200 attempts`);
}
