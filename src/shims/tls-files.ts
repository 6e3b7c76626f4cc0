/**
 * The files of `serve.tls`, read and tried before anybody connects: OpenSSL would say no more than PEM_NO_START_LINE, and of
 * a wrong authority nothing at all. It opens no port.
 */
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { createSecureContext } from 'node:tls';
import { EXIT, UnbrokerError } from '../errors.js';
import type { Log } from '../log.js';
import type { TlsConfig } from './config.js';

export interface TlsFiles {
  readonly cert: Buffer;
  readonly key: Buffer;
  readonly ca?: Buffer;
}

/** Throws `tls-unreadable`, naming the file's key in the config. A certificate that is not valid now is warned of. */
export function readTls({ certFile, keyFile, caFile }: TlsConfig, directory: string, log: Log): TlsFiles {
  const read = (name: keyof TlsConfig, file: string): Buffer =>
    attempt(`The file of serve.tls.${name} cannot be read`, 'Its path starts at the config file.', () =>
      readFileSync(resolve(directory, file)),
    );
  const cert = read('certFile', certFile);
  const key = read('keyFile', keyFile);
  const ca = caFile === undefined ? undefined : read('caFile', caFile);
  warnOfDates(certificateOf('certFile', cert), log);
  attempt(
    'serve.tls.keyFile holds no private key that can be used',
    'Give it as PEM without a passphrase (openssl pkey -in a.key -out plain.key takes it off).',
    () => createPrivateKey(key),
  );
  if (ca !== undefined) certificateOf('caFile', ca);
  attempt(
    'serve.tls: certificate and key do not belong together',
    'Name the key that the certificate was made for; in a chain the server’s own certificate comes first.',
    () => createSecureContext({ cert, key, ...(ca === undefined ? {} : { ca }) }),
  );
  return { cert, key, ...(ca === undefined ? {} : { ca }) };
}

function certificateOf(name: keyof TlsConfig, pem: Buffer): X509Certificate {
  return attempt(`serve.tls.${name} holds no certificate`, 'Give it as PEM.', () => new X509Certificate(pem));
}

function warnOfDates({ validFrom, validTo }: X509Certificate, log: Log): void {
  const now = Date.now();
  if (Date.parse(validFrom) <= now && now <= Date.parse(validTo)) return;
  log.warn({ validFrom, validTo }, 'the certificate of serve.tls is not valid now: clients will refuse it');
}

function attempt<T>(message: string, hint: string, act: () => T): T {
  try {
    return act();
  } catch (cause) {
    throw new UnbrokerError('tls-unreadable', message, { hint, exitStatus: EXIT.badInput, cause });
  }
}
