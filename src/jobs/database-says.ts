/**
 * What a worker's log says of an error of the database: what it means, and the next step, told by its SQLSTATE alone. A server's
 * own message may quote a payload, and is in whatever language its lc_messages says. Each cause is said once a minute.
 */
import { isSchemaMissing, missedBy, UPGRADE_HINT } from './behind.js';
import { codeOf, isConflict } from './sqlstate.js';
import { TAKES_NO_WRITES, WHERE_IT_DOES } from './writable.js';

/** One line for a log. */
export interface Saying {
  /** `warn`: it goes on by itself. */
  readonly level: 'warn' | 'error';
  readonly text: string;
}

/** [what it means, the next step] by SQLSTATE. */
const MEANINGS: Readonly<Record<string, readonly [meaning: string, next: string]>> = {
  '53100': ['the disk of the database is full', 'Free space there: nothing is claimed or ended until then'],
  '53200': ['the database is out of memory', 'Give it more, or lower work_mem and max_connections'],
  '53300': [
    'the database has no connection left',
    'End idle clients, raise max_connections or the role’s limit, or put a pooler in between',
  ],
  '57014': [
    'the database cut a statement short',
    'Give the worker’s role a statement_timeout of a second or more, or look for who cancels its statements',
  ],
  '55P03': [
    'another transaction holds a row locked that is to be written',
    'Look for an old xact_start in pg_stat_activity: what it holds is written when it ends',
  ],
  '25006': [TAKES_NO_WRITES, WHERE_IT_DOES],
  '42501': ['the database role lacks a permission', 'Run: unbroker roles'],
  '3D000': ['the database does not exist', 'Create it, or correct the name in DATABASE_URL'],
  '57P01': ['the database ended the connection', 'If it was restarted that is all: another one is opened'],
  '57P02': ['the database crashed and recovers', 'Look at its log'],
  '57P03': ['the database is starting or stopping', 'Look at its log if that is not meant'],
};

const NOT_MIGRATED = [
  'the schema has no jobs table',
  'Run: unbroker migrate, or give the worker the schema that has it',
] as const;
const AWAY = ['the database did not answer', 'Look whether its server runs, and at host and port'] as const;
const LOGIN_REFUSED = ['the database refused the login', 'Check user and password in DATABASE_URL'] as const;

export function sayingOf(error: unknown): Saying {
  if (isConflict(error)) return { level: 'warn', text: 'another transaction was in the way; trying again' };
  const code = codeOf(error);
  const meaning = meaningOf(code, error);
  if (meaning === undefined) return { level: 'error', text: 'the database did not answer; trying again' };
  const level = code === '55P03' ? 'warn' : 'error';
  return { level, text: `${meaning[0]}; trying again. ${meaning[1]}` };
}

function meaningOf(code: string, error: unknown): readonly [string, string] | undefined {
  const known = MEANINGS[code];
  if (known !== undefined) return known;
  if (/^(ECONNREFUSED|ENOTFOUND|EAI_AGAIN)$/.test(code)) return AWAY;
  if (isSchemaMissing(error)) return NOT_MIGRATED;
  // A function, table or column that is not there.
  if (/^(42883|42P01|42703)$/.test(code)) {
    const missed = missedBy(error);
    const what = missed === null ? '' : `: it has no ${missed}`;
    return [`the schema is older than this package${what}`, UPGRADE_HINT];
  }
  if (/^28...$/.test(code)) return LOGIN_REFUSED;
  // Class 08 is the connection's; the rest of five characters was answered.
  if (/^(?!08)[0-9A-Z]{5}$/.test(code) && /\d/.test(code))
    return ['the database refused a statement', `Look up SQLSTATE ${code}, and the server’s log`];
  return undefined;
}

const SAY_AGAIN_MS = 60_000;
const MAX_CAUSES = 100;

/** Says each cause at once, then no more than once a minute, with how often it came meanwhile. */
export class OncePerCause {
  readonly #said = new Map<string, { at: number; unsaid: number }>();

  /** How often it came since it was said last; null when it is to be passed over now. */
  times(cause: string, nowMs: number): number | null {
    const last = this.#said.get(cause);
    if (last !== undefined && nowMs - last.at < SAY_AGAIN_MS) {
      last.unsaid += 1;
      return null;
    }
    if (this.#said.size >= MAX_CAUSES) this.#said.clear();
    this.#said.set(cause, { at: nowMs, unsaid: 0 });
    return (last?.unsaid ?? 0) + 1;
  }
}
