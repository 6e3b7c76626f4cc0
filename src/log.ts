/**
 * What is done with a log by who was given one: it stops nobody's work, and of an error it hears what may be told. Who
 * makes one is the command line (cli/json-log.ts): pino, imported here, was a third of a caller's bundle (450 kB, now
 * 296) and ended an ESM one at its start ("Dynamic require is not supported").
 */
import { type Log, SILENT } from './log-face.js';

export { type Log, SILENT } from './log-face.js';
export { errorFields } from './thrown.js';

/** The same log, whose own failures (a full disk, a closed pipe) stop nobody's work. */
export function unfailing(log: Log): Log {
  // Known again by who builds what is said only if somebody hears it: the place of an error costs 10 us.
  if (log === SILENT) return log;
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
