/**
 * The encrypted way to Postgres, from the command line: a `sslmode` that the driver warns of is checked as strictly as
 * it says and goes without a word. The server's TLS is ended here, its database is the real one behind.
 */
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { TLSSocket } from 'node:tls';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startCli } from '../support/cli.js';
import { type JobsDatabase, jobsDatabase } from '../support/jobs.js';

const folder = mkdtempSync(join(tmpdir(), 'unbroker-db-tls-'));
const file = (name: string): string => join(folder, name);
const servers: Server[] = [];
let db: JobsDatabase;

/** A certificate that signs itself, for that address. */
async function certificate(name: string, address: string): Promise<void> {
  await promisify(execFile)('openssl', [
    ...['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'],
    ...['-keyout', file(`${name}.key`), '-out', file(`${name}.crt`)],
    ...['-subj', `/CN=${name}`, '-addext', `subjectAltName=IP:${address}`],
  ]);
}

/** The URL of the database, through a server that answers the request for TLS with yes and this certificate. */
async function encrypted(name: string): Promise<URL> {
  const url = new URL(db.url);
  const cert = readFileSync(file(`${name}.crt`));
  const key = readFileSync(file(`${name}.key`));
  const server = createServer((socket: Socket) => {
    socket.once('data', () => {
      socket.write('S');
      const inside = new TLSSocket(socket, { isServer: true, cert, key });
      const behind = connect(Number(url.port), url.hostname);
      inside.pipe(behind).pipe(inside);
      // The client's refusal of the certificate, and its leaving.
      for (const end of [inside, behind])
        end.on('error', () => undefined).on('close', () => socket.destroy());
      inside.on('close', () => behind.destroy());
    });
  });
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const through = new URL(url);
  through.hostname = '127.0.0.1';
  through.port = String((server.address() as { port: number }).port);
  return through;
}

const urls: Record<string, URL> = {};
beforeAll(async () => {
  db = await jobsDatabase();
  await Promise.all([certificate('right', '127.0.0.1'), certificate('elsewhere', '192.0.2.1')]);
  for (const name of ['right', 'elsewhere']) urls[name] = await encrypted(name);
});
afterAll(async () => {
  for (const server of servers) server.close();
  await db.close();
  rmSync(folder, { recursive: true });
});

async function stats(name: string, ca?: string): Promise<{ code: number | null; stderr: string }> {
  const url = new URL(urls[name] as URL);
  url.searchParams.set('sslmode', 'require');
  if (ca !== undefined) url.searchParams.set('sslrootcert', file(`${ca}.crt`));
  const command = startCli(['jobs', 'stats'], { env: { DATABASE_URL: url.href } });
  command.endInput();
  const { code } = await command.waitForExit(90_000);
  return { code, stderr: command.stderr };
}

// prefer and verify-ca are read alike: test/unit/tls-mode.test.ts.
test.concurrent('require, and a certificate that is right', async () => {
  expect(await stats('right', 'right')).toEqual({ code: 0, stderr: '' });
});

test.concurrent.each([
  ['that nobody known has signed', 'right', undefined, 'DEPTH_ZERO_SELF_SIGNED_CERT'],
  ['for another host', 'elsewhere', 'elsewhere', 'ERR_TLS_CERT_ALTNAME_INVALID'],
] as const)('require, and a certificate %s', async (_name, server, ca, why) => {
  const { code, stderr } = await stats(server, ca);
  expect(stderr).toMatch(/^unbroker: [^\n]+ \[tls-refused\]\n$/);
  expect(stderr).toContain(why);
  expect(code).toBe(2);
});
