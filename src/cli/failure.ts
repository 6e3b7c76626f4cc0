/**
 * How a command fails: whatever was thrown becomes one line on stderr, with the next step and a code, and an exit status.
 * It names what the drivers' errors mean; an error that it does not know keeps its class and code, not its message.
 */
import { EXIT, type ExitStatus, UnbrokerError } from '../errors.js';
import { errorFields, placeOf } from '../thrown.js';
import { tlsFailure } from '../tls-failure.js';
import { printJson } from './output.js';
import { printable, withoutSecrets } from './printable.js';

/**
 * Prints the error's line on stderr and answers its exit status. With --json whoever reads stdout gets it, too:
 * `{ error: { code, message, hint } }`. `database`: which one was asked, as `localhost:5432/app`.
 */
export function report(error: unknown, database?: string): ExitStatus {
  const known = translate(error, database);
  const { code, message, hint } = known;
  process.stderr.write(`unbroker: ${shown(known.line)} [${code}]\n`);
  if (asksForJson(process.argv) && code !== 'answer-unwritten')
    printJson({ error: { code, message: shown(message), hint: shown(hint) } });
  const cause: unknown = known.code === 'uncaught-error' ? known.cause : error;
  if (process.env['UNBROKER_LOG_LEVEL'] === 'debug' && cause instanceof Error)
    process.stderr.write(`${withoutSecrets(cause.stack ?? '')}\n`);
  return known.exitStatus;
}

const shown = (text: string): string => printable(withoutSecrets(text));

/** Also where the parser could not say: it is what was misused. */
export function asksForJson(argv: readonly string[]): boolean {
  const end = argv.indexOf('--');
  return (end < 0 ? argv : argv.slice(0, end)).includes('--json');
}

/**
 * An error that no promise or listener took: a handler, a contract or a config started something and did not await it. Whose
 * it was nobody knows, so the process ends and what it held comes back as from one that was killed. By Node's own account
 * its message, which may quote a payload, would be in the log.
 */
export function uncaught(error: unknown): UnbrokerError {
  const { error: name, code } = errorFields(error);
  const place = placeOf(error);
  const where = place === undefined ? '' : ` at ${place}`;
  return new UnbrokerError(
    'uncaught-error',
    `Something failed that nobody waited for (${name}${code ? ` ${code}` : ''})${where}`,
    {
      hint: 'Await what a handler starts; UNBROKER_LOG_LEVEL=debug shows all of its stack.',
      cause: error,
    },
  );
}

/**
 * Where it was looked for, as Node says: an address or a name, a port, a socket's path; each address of a name that has several.
 * Of what says none, the database. Not the URL, which has a password.
 */
function serverOf(error: unknown, database: string | undefined): string {
  const all: readonly unknown[] = error instanceof AggregateError ? error.errors : [error];
  const addresses = new Set(all.map(addressOf).filter((address) => address !== undefined));
  if (addresses.size > 0) return `The server ${[...addresses].slice(0, 4).join(' or ')}`;
  return database === undefined ? 'The server' : `The server of the database ${database}`;
}

function addressOf(error: unknown): string | undefined {
  const { address, port, hostname } = Object(error) as {
    address?: unknown;
    port?: unknown;
    hostname?: unknown;
  };
  const host = typeof address === 'string' ? address : hostname;
  if (typeof host !== 'string') return undefined;
  if (typeof port !== 'number') return host;
  return `${host.includes(':') ? `[${host}]` : host}:${port}`;
}

interface Known {
  /** SQLSTATE or a Node error code. */
  readonly codes: readonly string[];
  readonly message?: RegExp;
  /** `database`: `The database`, with its place where that is known. */
  readonly error: (code: string, cause: unknown, database: string, place?: string) => UnbrokerError;
}

const KNOWN: readonly Known[] = [
  {
    codes: [],
    message: /uv_cwd/,
    error: (_code, cause) =>
      new UnbrokerError('directory-missing', 'The working directory does not exist any more', {
        hint: 'Change to one that does.',
        exitStatus: EXIT.badInput,
        cause,
      }),
  },
  {
    codes: ['ECONNREFUSED', 'ENOTFOUND', 'ETIMEDOUT', 'EHOSTUNREACH', 'ENETUNREACH', 'ECONNRESET', 'EPIPE']
      // 57P: the server is starting, stopping or has crashed.
      .concat(['EAI_AGAIN', 'ENOENT', '57P01', '57P02', '57P03']),
    message: /timeout exceeded when trying to connect|Connection terminated/,
    error: (code, cause, _database, place) =>
      new UnbrokerError(
        'server-unreachable',
        `${serverOf(cause, place)} does not answer (${code || 'timeout'})`,
        {
          hint: 'Check host and port in DATABASE_URL or AMQP_URL and that the server runs.',
          cause,
        },
      ),
  },
  {
    codes: [],
    message: /no pg_hba\.conf entry .*(?:no encryption|SSL off)/,
    error: (_code, cause, database) =>
      new UnbrokerError('database-login-refused', `${database} takes no login from here without encryption`, {
        hint: 'Add sslmode=verify-full to DATABASE_URL, or a line for this host to pg_hba.conf.',
        exitStatus: EXIT.badInput,
        cause,
      }),
  },
  {
    codes: [],
    message: /no pg_hba\.conf entry/,
    error: (_code, cause, database) =>
      new UnbrokerError('database-login-refused', `${database} takes no login of this user from here`, {
        hint: 'Check user and database in DATABASE_URL, or add a line for this host to pg_hba.conf.',
        exitStatus: EXIT.badInput,
        cause,
      }),
  },
  {
    codes: ['28P01', '28000'],
    message: /SASL|password must be a string/,
    error: (_code, cause, database) =>
      new UnbrokerError('database-login-refused', `${database} refused the login`, {
        hint: 'Check user and password in DATABASE_URL.',
        exitStatus: EXIT.badInput,
        cause,
      }),
  },
  {
    codes: ['3D000'],
    error: (_code, cause, database) =>
      new UnbrokerError('database-missing', `${database} does not exist`, {
        hint: 'Create it with createdb, or correct the name in DATABASE_URL.',
        exitStatus: EXIT.badInput,
        cause,
      }),
  },
  {
    codes: ['42501'],
    error: (_code, cause) =>
      new UnbrokerError('permission-denied', 'The database role lacks a permission', {
        hint: 'Run migrations as the owner of the schema; to others give rights with: unbroker roles --help. unbroker doctor names what is missing.',
        cause,
      }),
  },
  {
    codes: ['25006'],
    error: (_code, cause, database) =>
      new UnbrokerError('database-read-only', `${database} takes no writes`, {
        hint: 'It may be a standby: point DATABASE_URL at the primary.',
        cause,
      }),
  },
  {
    codes: ['53300'],
    error: (_code, cause, database) =>
      new UnbrokerError('database-full', `${database} has no connection left`, {
        hint: 'End idle clients, raise max_connections or the limit of the role, or put a pooler in between.',
        cause,
      }),
  },
  {
    codes: ['53100', '53200'],
    error: (code, cause) =>
      new UnbrokerError(
        'database-exhausted',
        `The database has no ${code === '53100' ? 'disk space' : 'memory'} left`,
        { hint: 'Free some, then run it again: what was committed stays.', cause },
      ),
  },
  {
    codes: ['57014'],
    error: (_code, cause) =>
      new UnbrokerError('statement-cut-short', 'The database cut a statement short', {
        hint: 'Give the role a longer statement_timeout, or look for who cancels its statements.',
        cause,
      }),
  },
  {
    codes: [],
    message: /does not support SSL/,
    error: (_code, cause) =>
      tlsRefused('the server speaks no TLS', 'Turn on ssl there, or correct sslmode in DATABASE_URL.', cause),
  },
  {
    codes: [],
    message: /sslmode=verify-ca requires/,
    error: (_code, cause) =>
      tlsRefused('sslmode=verify-ca needs sslrootcert', 'Name the CA file in DATABASE_URL.', cause),
  },
];

function tlsRefused(what: string, hint: string, cause: unknown): UnbrokerError {
  return new UnbrokerError('tls-refused', `No encrypted connection was made: ${what}`, {
    hint,
    exitStatus: EXIT.badInput,
    cause,
  });
}

/** Of what the command line connects to by a driver of its own: the database. */
function tlsError(error: unknown): UnbrokerError | null {
  const failure = tlsFailure(error);
  if (failure === null) return null;
  const hint =
    failure.kind === 'untrusted'
      ? 'Name the CA file in DATABASE_URL (sslmode=verify-full&sslrootcert=ca.crt) or in NODE_EXTRA_CA_CERTS.'
      : failure.hint;
  return tlsRefused(failure.what, hint, error);
}

/** Foreign errors as ours. `place`: of the database that was asked. */
export function translate(error: unknown, place?: string): UnbrokerError {
  if (error instanceof UnbrokerError) return error;
  const first: unknown = error instanceof AggregateError ? error.errors[0] : error;
  const tls = tlsError(first);
  if (tls !== null) return tls;
  const code = typeof first === 'object' && first !== null && 'code' in first ? String(first.code) : '';
  const message = first instanceof Error ? first.message : '';
  // A file that is missing is no server; a socket that is missing is.
  const isFile = code === 'ENOENT' && (first as { syscall?: unknown }).syscall !== 'connect';
  const known = KNOWN.find((k) => (!isFile && k.codes.includes(code)) || k.message?.test(message));
  const database = place === undefined ? 'The database' : `The database ${place}`;
  if (known !== undefined) return known.error(code, error, database, place);
  const name = first instanceof Error ? first.name : typeof first;
  return new UnbrokerError('unexpected', `Something unexpected failed (${name}${code ? ` ${code}` : ''})`, {
    hint: 'Run again with UNBROKER_LOG_LEVEL=debug to see where.',
    cause: error,
  });
}
