/**
 * The logger's one real implementation. Lines are JSON on stderr (stdout belongs to a command's answer);
 * payloads, bodies and anything that looks like a credential are removed before they are written.
 */
import { pino } from 'pino';
import type { Log } from '../log-face.js';

const HIDDEN = [
  'payload',
  'payloadText',
  'body',
  'password',
  'authorization',
  'cookie',
  'token',
  'url',
  'connectionString',
  'secret',
  'apiKey',
];

/** `level`: debug, info (default), warn, error or silent; UNBROKER_LOG_LEVEL when not given. */
export function createLog(level: string = process.env['UNBROKER_LOG_LEVEL'] ?? 'info'): Log {
  return pino(
    {
      level,
      base: { pid: process.pid },
      redact: { paths: HIDDEN.flatMap((name) => [name, `*.${name}`, `*.*.${name}`]), censor: '[hidden]' },
    },
    pino.destination({ dest: 2, sync: true }),
  );
}
