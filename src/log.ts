/**
 * The logger's one real implementation. Lines are JSON on stderr (stdout belongs to a command's answer);
 * payloads, bodies and anything that looks like a credential are removed before they are written.
 */
import { pino } from 'pino';
import type { Log } from './log-face.js';

export { type Log, SILENT } from './log-face.js';

/** The same log, whose own failures (a full disk, a closed pipe) stop nobody's work. */
export function unfailing(log: Log): Log {
  const guarded =
    (level: keyof Log) =>
    (fields: object, message: string): void => {
      try {
        quiet(log[level](fields, message), () => undefined);
      } catch {
        // There is no place left to say so.
      }
    };
  return { debug: guarded('debug'), info: guarded('info'), warn: guarded('warn'), error: guarded('error') };
}

/** What an `async` listener was given for: nobody waits for it, and its failure, unheard, would end the process. */
export function quiet(answer: unknown, onFailure: (error: unknown) => void): void {
  if (answer instanceof Promise) answer.catch(onFailure);
}

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

/** What of an error may be logged: its class and code, never its message (a handler's message may quote a payload). */
export function errorFields(error: unknown): { error: string; code?: string } {
  try {
    const name = error instanceof Error ? String(error.name) : typeof error;
    const code =
      typeof error === 'object' && error !== null && 'code' in error ? String(error.code) : undefined;
    return code === undefined ? { error: name } : { error: name, code };
  } catch {
    // A handler may throw anything, a revoked proxy too.
    return { error: 'unreadable' };
  }
}
