/** The logger's face, apart from the logger: who only names it loads no package. */

/** pino's shape, so that a caller's own pino fits. */
export interface Log {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

export const LOG_LEVELS = ['debug', 'info', 'warn', 'error', 'silent'] as const;

export const SILENT: Log = { debug() {}, info() {}, warn() {}, error() {} };
