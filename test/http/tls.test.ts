/** TLS that cannot be: what each side is told, and the files that `serve.tls` names. Certificates are made by openssl. */
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createServer as createTlsServer } from 'node:tls';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { smtpProvider } from '../../adapters/providers/smtp.js';
import { connectBroker } from '../../adapters/rabbitmq/broker.js';
import { askManagement } from '../../adapters/rabbitmq/management.js';
import { translate } from '../../src/cli/failure.js';
import { addressRules } from '../../src/notify/address.js';
import { post } from '../../src/notify/post.js';
import { readTls } from '../../src/shims/tls-files.js';
import { tlsFailure } from '../../src/tls-failure.js';

const folder = mkdtempSync(join(tmpdir(), 'unbroker-tls-'));
const openssl = (...args: string[]) => promisify(execFile)('openssl', args, { cwd: folder });
const pem = (name: string): Buffer => readFileSync(join(folder, name));
const newKey = (name: string): string[] => [
  ...['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-keyout', `${name}.key`],
  ...['-subj', `/CN=${name}`],
];

const servers: Server[] = [];
const sockets: Socket[] = [];
async function listening(server: Server): Promise<number> {
  servers.push(server);
  server
    .on('tlsClientError', () => undefined)
    .on('connection', (socket: Socket) => {
      sockets.push(socket.on('error', () => undefined));
    });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return (server.address() as { port: number }).port;
}

const ports = { self: 0, signed: 0, plain: 0 };
beforeAll(async () => {
  for (const name of ['self', 'ca']) await openssl('req', '-x509', ...newKey(name), '-out', `${name}.crt`);
  await openssl('req', ...newKey('signed'), '-out', 'signed.csr');
  await openssl(
    ...['x509', '-req', '-in', 'signed.csr', '-CA', 'ca.crt', '-CAkey', 'ca.key', '-CAcreateserial'],
    ...['-out', 'signed.crt'],
  );
  for (const name of ['self', 'signed'] as const)
    ports[name] = await listening(createTlsServer({ cert: pem(`${name}.crt`), key: pem(`${name}.key`) }));
  ports.plain = await listening(createServer((socket) => socket.end('HTTP/1.1 400 Bad Request\r\n\r\n')));
});
afterAll(async () => {
  for (const socket of sockets) socket.destroy();
  for (const server of servers) server.close();
  rmSync(folder, { recursive: true, force: true });
});

// By number: a name of two addresses is tried for a quarter of a second each, which a busy machine oversleeps.
describe('a connection that cannot be encrypted', () => {
  const cases = [
    ['self', 'its certificate is signed by itself (DEPTH_ZERO_SELF_SIGNED_CERT)'],
    ['signed', 'nobody known here has signed its certificate (UNABLE_TO_VERIFY_LEAF_SIGNATURE)'],
    ['plain', 'what listens there speaks no TLS ('],
  ] as const;

  it.each(cases)('%s: of a broker, exit 2, not to be tried again', async (server, what) => {
    const failed = await connectBroker(`amqps://u:canary@127.0.0.1:${ports[server]}`).catch(
      (e: unknown) => e,
    );
    expect(failed).toMatchObject({ code: 'tls-refused', exitStatus: 2 });
    const { line } = failed as { line: string };
    expect(line).toContain(`No encrypted connection to the broker at 127.0.0.1:${ports[server]}: ${what}`);
    expect(line).toMatch(server === 'plain' ? /AMQP_URL/ : /NODE_EXTRA_CA_CERTS/);
    expect(line).not.toContain('canary');
  });

  it('a handshake that a broker breaks off, as one does that is starting: to be tried again', async () => {
    const internalError = Buffer.from('15030300020250', 'hex');
    const port = await listening(createServer((socket) => socket.end(internalError)));
    await expect(connectBroker(`amqps://u:p@127.0.0.1:${port}`)).rejects.toMatchObject({
      code: 'amqp-unreachable',
      message: expect.stringContaining('the two could not agree (ERR_SSL_'),
    });
  });

  it.each(cases)('%s: of a URL that is called, tried again later', async (server, what) => {
    const called = post({
      ...{ url: `https://localhost:${ports[server]}/`, body: '{}', headers: {} },
      ...{ rules: addressRules(['127.0.0.0/8', '::1/128']), signal: AbortSignal.timeout(60_000) },
      resolver: (_host, found) => found(null, [{ address: '127.0.0.1', family: 4 }]),
    });
    await expect(called).rejects.toMatchObject({
      fate: { type: 'transient' },
      message: expect.stringContaining(what),
    });
  });

  it.each(cases)('%s: of the management API, by its host', async (server, what) => {
    const answer = await askManagement(`https://u:canary@127.0.0.1:${ports[server]}`);
    expect(answer).toEqual({ absent: expect.stringContaining(`at 127.0.0.1:${ports[server]}: ${what}`) });
    expect(JSON.stringify(answer)).not.toContain('canary');
  });

  it.each(cases)('%s: of a mail server, tried again later', async (server, what) => {
    const provider = smtpProvider({ url: `smtps://127.0.0.1:${ports[server]}`, from: 'a@example.org' });
    const message = {
      id: '1',
      channel: 'email',
      to: 'ann@example.org',
      parts: { subject: 's', text: 't' },
    } as const;
    const sent = provider.deliver(message, { idempotencyKey: '1', signal: AbortSignal.timeout(60_000) });
    await expect(sent).rejects.toMatchObject({
      fate: { type: 'transient' },
      message: expect.stringContaining(`SMTP ${what}`),
    });
  });

  it.each([
    ['CERT_HAS_EXPIRED', 'its certificate has expired', 'Renew'],
    ['CERT_NOT_YET_VALID', 'is not valid yet', 'clocks'],
    ['ERR_TLS_CERT_ALTNAME_INVALID', 'for another host name', 'subjectAltName'],
    ['UNABLE_TO_GET_ISSUER_CERT_LOCALLY', 'nobody known here has signed', 'sslrootcert'],
    ['ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION', 'the two could not agree', 'versions'],
  ])('%s of the database: %s', (code, what, hint) => {
    const known = translate(Object.assign(new Error('m'), { code }));
    expect(known).toMatchObject({ code: 'tls-refused', exitStatus: 2 });
    expect(known.message).toContain(`${what}`);
    expect(known.message).toContain(code);
    expect(known.hint).toContain(hint);
  });

  it.each([
    [{ code: 'EPROTO', message: 'write EPROTO' }],
    [{ code: 'ECONNREFUSED', message: 'SSL' }],
    [{ code: 'constructor', message: '' }],
    [new Error('SSL')],
    [null],
  ])('%j is not about TLS', (error) => expect(tlsFailure(error)).toBeNull());
});

describe('serve.tls', () => {
  const warned: string[] = [];
  const nothing = (): void => undefined;
  const log = {
    ...{ debug: nothing, info: nothing, error: nothing },
    warn: (_fields: object, message: string) => void warned.push(message),
  };
  const files = { certFile: 'signed.crt', keyFile: 'signed.key' };

  it('files that belong together', () => {
    const read = readTls({ ...files, caFile: 'ca.crt' }, folder, log);
    expect(read).toEqual({ cert: pem('signed.crt'), key: pem('signed.key'), ca: pem('ca.crt') });
    expect(warned).toEqual([]);
  });

  it.each([
    [{ certFile: 'nope.crt' }, 'serve.tls.certFile cannot be read'],
    [{ keyFile: '.' }, 'serve.tls.keyFile cannot be read'],
    [{ certFile: 'signed.key' }, 'serve.tls.certFile holds no certificate'],
    [{ keyFile: 'signed.crt' }, 'serve.tls.keyFile holds no private key'],
    [{ keyFile: 'locked.key' }, 'serve.tls.keyFile holds no private key'],
    [{ caFile: 'ca.key' }, 'serve.tls.caFile holds no certificate'],
    [{ keyFile: 'self.key' }, 'do not belong together'],
  ])('%j: %s', async (change, what) => {
    await openssl('ec', '-aes256', '-passout', 'pass:x', '-in', 'signed.key', '-out', 'locked.key');
    expect(() => readTls({ ...files, ...change }, folder, log)).toThrow(
      expect.objectContaining({
        ...{ code: 'tls-unreadable', exitStatus: 2 },
        message: expect.stringContaining(what),
      }),
    );
  });

  it('a certificate that is over is warned of: clients will refuse it', async () => {
    writeFileSync(
      join(folder, 'ca.cnf'),
      `[ca]\ndefault_ca = c\n[c]\ndatabase = ${folder}/index.txt\nnew_certs_dir = ${folder}\nrand_serial = yes\ndefault_md = sha256\npolicy = p\n[p]\ncommonName = supplied\n`,
    );
    writeFileSync(join(folder, 'index.txt'), '');
    await openssl(
      ...['ca', '-batch', '-config', 'ca.cnf', '-cert', 'ca.crt', '-keyfile', 'ca.key', '-in', 'signed.csr'],
      ...['-startdate', '20200101000000Z', '-enddate', '20210101000000Z', '-out', 'over.crt', '-notext'],
    );
    readTls({ certFile: 'over.crt', keyFile: 'signed.key' }, folder, log);
    expect(warned).toEqual([expect.stringContaining('not valid now')]);
  });
});
