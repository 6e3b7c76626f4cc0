/**
 * The one error type that crosses our public doors. It says what went wrong, what to do next, and with which
 * status a command ends. It refuses to know about Postgres, RabbitMQ or HTTP: whoever meets a foreign error
 * translates it into one of these.
 */

/** Exit statuses of every command. Documented in docs/lookup/exit-statuses.md. */
export const EXIT = {
  ok: 0,
  failed: 1,
  badInput: 2,
  unbalanced: 3,
  interrupted: 130,
} as const;

export type ExitStatus = (typeof EXIT)[keyof typeof EXIT];

export interface UnbrokerErrorOptions {
  /** The next step, as one sentence in the imperative. */
  readonly hint: string;
  /** Default 1 (failed). */
  readonly exitStatus?: ExitStatus;
  readonly cause?: unknown;
}

/**
 * `code` is stable and kebab-case (`schema-newer`); `message` is one line without secrets or payloads; `hint` is the
 * next step. Every code is listed in docs/lookup/errors.md (a test compares the two).
 */
export class UnbrokerError extends Error {
  readonly code: string;
  readonly hint: string;
  readonly exitStatus: ExitStatus;

  constructor(code: string, message: string, options: UnbrokerErrorOptions) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = 'UnbrokerError';
    this.code = code;
    this.hint = options.hint;
    this.exitStatus = options.exitStatus ?? EXIT.failed;
  }

  /** `message. hint` on one line: what a command prints. */
  get line(): string {
    return `${this.message.replace(/[.\s]+$/, '')}. ${this.hint}`;
  }
}
