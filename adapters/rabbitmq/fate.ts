/**
 * What becomes of a message: a job to run, a dead one with its reason, or one that its own application would have dropped.
 * Decided from what dialect and rule have said; it reads no body and knows no queue but by its role.
 */
import { type ImportedJob, LIMITS } from '../../src/jobs/job.js';
import { storableText } from '../../src/jobs/text.js';
import { type BodyNote, MAX_EXPONENTS } from './body.js';
import type { Death, Delivery } from './delivery.js';
import type { DialectFields, MessageView, Reason } from './dialects/dialect.js';
import type { RuleAnswer } from './drain-config.js';
import { shortText } from './row-headers.js';

export const UNMAPPED = 'unmapped';

/** `row`: a job of a known kind. `excluded`: not a job. `expired`: the application itself would have dropped it. */
export type Outcome = 'row' | 'unmapped' | 'excluded' | 'expired';

export interface Fate {
  readonly state: ImportedJob['state'];
  readonly outcome: Outcome;
  /** Storable. */
  readonly error: Reason | null;
}

export interface FateInput {
  readonly fields: DialectFields;
  readonly rule: RuleAnswer;
  /** Null: nobody knows what it is. */
  readonly kind: string | null;
  /** Why there is no payload. */
  readonly unread: Reason | undefined;
  readonly attempts: number;
}

export function fateOf(view: MessageView, input: FateInput): Fate {
  const fate = decide(view, input);
  return fate.error === null ? fate : { ...fate, error: storableError(fate.error) };
}

function decide(view: MessageView, { fields, rule, kind, unread, attempts }: FateInput): Fate {
  if (kind === null) return { state: 'dead', outcome: 'unmapped', error: unmappedError(view.delivery) };
  const expiresMs = fields.expiresMs?.(view);
  if (expiresMs !== undefined && expiresMs < view.nowMs) {
    const message = `expired at ${new Date(expiresMs).toISOString()} by its own expiry`;
    return { state: 'cancelled', outcome: 'expired', error: { name: 'expired', message } };
  }
  const dead = view.role === 'dead' || fields.dead?.(view) === true;
  if ((dead && rule.deadLetters !== 'retry') || fields.unhandled?.(view) === true) {
    const error = fields.error?.(view) ?? deathError(view.delivery.queue, view.deaths, attempts);
    return { state: 'dead', outcome: 'row', error };
  }
  if (unread !== undefined && rule.body !== 'run') return { state: 'dead', outcome: 'row', error: unread };
  return { state: 'ready', outcome: 'row', error: null };
}

/** What a library put into its headers is anybody's text. */
const storableError = ({ name, message }: Reason): Reason => ({
  name: shortText(name),
  message: storableText(message, LIMITS.errorMessageLength),
});

function unmappedError({ exchange, routingKey, properties }: Delivery): Reason {
  const where = `exchange '${exchange}', routing key '${routingKey}', type '${properties.type ?? ''}'`;
  return { name: UNMAPPED, message: `no dialect and no rule gives it a kind (${where})` };
}

function deathError(queue: string, deaths: readonly Death[], attempts: number): Reason {
  const newest = deaths[0];
  if (newest === undefined) return { name: 'dead-letter', message: `found in ${queue}` };
  const times = attempts > 1 ? `, ${attempts} attempts` : '';
  return { name: `dead-letter-${newest.reason}`, message: `${newest.reason} from ${newest.queue}${times}` };
}

const BODY_REASONS: Readonly<Record<BodyNote, string>> = {
  'not-json': 'the body is not JSON',
  binary: 'the body is not UTF-8 text',
  nul: 'the body holds a NUL character, which jsonb cannot',
  'lone-surrogate': 'the body holds half a surrogate pair, which jsonb cannot',
  'too-large': `the body is larger than ${LIMITS.payloadBytes} bytes`,
  'huge-number':
    `the body has numbers whose exponents jsonb would write out as more than ${MAX_EXPONENTS} digits; ` +
    'whoever publishes it should send them smaller, or as strings',
  compressed: 'what the body inflates to is not UTF-8 text',
  'refused-by-database': 'the database does not take the body as jsonb',
};

export function bodyError(note: BodyNote): Reason {
  return { name: `body-${note}`, message: `${BODY_REASONS[note]}; its bytes are kept in body` };
}
