/**
 * The `drain` section of unbroker.config.ts: which queues belong together, and what a message is where no dialect says
 * so. Its type, its check, and the lookup of a rule. Pure.
 */
import { arrayOf, type Checker, integer, invalid, object, oneOf, record, string } from '../../src/check.js';
import { LIMITS } from '../../src/jobs/job.js';
import { DIALECT_NAMES, type DialectName } from './dialects/names.js';

/** `main`: worked by consumers. `wait`: holds messages back, then lets go. `dead`: dead letters, parked messages. */
export type QueueRole = 'main' | 'wait' | 'dead';

export interface DrainConfig {
  /** Groups by name: queues that dead-letter into each other. Without it they are derived from the broker's topology. */
  readonly groups?: { readonly [name: string]: GroupConfig };
  /** Read in order; of each setting the first rule that matches and gives it counts. */
  readonly rules?: readonly DrainRule[];
}

export interface GroupConfig {
  readonly queues: readonly string[];
}

export interface DrainRule {
  /** All given patterns must match. `*` stands for any text; what it stood for can be used in `kind`. */
  readonly match: {
    readonly queue?: string;
    /** Exchange and routing key as published first, as far as headers tell; of a schedule: where it would be fired to. */
    readonly exchange?: string;
    readonly routingKey?: string;
    /** The `type` property. */
    readonly type?: string;
  };
  /** Job kind. `{queue}`, `{exchange}`, `{routingKey}`, `{type}` and `{1}`, `{2}`, … (the stars, in order) are replaced. */
  readonly kind?: string;
  /** Not a job: acked, kept in the ledger, no row. The text is the reason. Alone with `queue`: the queue is left alone. */
  readonly exclude?: string;
  /** Read every message of it as this dialect instead of asking each dialect. */
  readonly dialect?: DialectName;
  readonly role?: QueueRole;
  /** For queues whose arguments cannot be seen (no management API). */
  readonly ttlMs?: number;
  /** A body that is not storable JSON: `dead` (default) waits for a person, `run` gives the handler the bytes. */
  readonly body?: 'dead' | 'run';
  /** What lies in a dead-letter queue: `dead` (default), or `retry`: due now with its attempts counted. */
  readonly deadLetters?: 'dead' | 'retry';
  /** When only bounds of a due time are known: their end (default, never early) or now. */
  readonly runAt?: 'latest' | 'now';
  readonly maxAttempts?: number;
  /**
   * Of a queue, for the bridge: `unique` (default): an id with the same contents is one job however often it is published.
   * `reused`: publishers use ids again on purpose, so they name nothing.
   */
  readonly ids?: 'unique' | 'reused';
}

const MAX_NAME = 255;
const PLACEHOLDER = /\{(\w+)\}/g;
const PARTS: readonly string[] = ['queue', 'exchange', 'routingKey', 'type'];
const name = string({ maxLength: MAX_NAME });

const match = object({
  queue: name,
  exchange: string({ maxLength: MAX_NAME }),
  routingKey: name,
  type: name,
});

const rule: Checker<DrainRule> = (value, path) => {
  const checked = object(
    {
      match,
      kind: string({ maxLength: LIMITS.kindLength }),
      exclude: string({ maxLength: 200 }),
      dialect: oneOf(...DIALECT_NAMES),
      role: oneOf('main', 'wait', 'dead'),
      ttlMs: integer(0, 2 ** 32),
      body: oneOf('dead', 'run'),
      deadLetters: oneOf('dead', 'retry'),
      runAt: oneOf('latest', 'now'),
      maxAttempts: integer(1, LIMITS.maxAttempts),
      ids: oneOf('unique', 'reused'),
    },
    ['match'],
  )(value, path);
  if (Object.keys(checked.match).length === 0) {
    throw invalid(`${path}.match`, "at least one of queue, exchange, routingKey, type ('*' matches all)");
  }
  if (checked.kind !== undefined) checkPlaceholders(checked.kind, checked.match, `${path}.kind`);
  return checked;
};

/** What nothing fills would be a kind of that very name, for every message. */
function checkPlaceholders(kind: string, patterns: DrainRule['match'], path: string): void {
  const stars = Object.values(patterns).join('').split('*').length - 1;
  for (const [whole, word = ''] of kind.matchAll(PLACEHOLDER)) {
    const known = /^\d+$/.test(word) ? Number(word) >= 1 && Number(word) <= stars : PARTS.includes(word);
    if (known) continue;
    const those = stars === 0 ? 'a star in match' : `{1} to {${stars}}`;
    throw invalid(
      path,
      `without ${whole}: known are {${PARTS.join('}, {')}} and ${stars === 0 ? `{1} for ${those}` : those}`,
    );
  }
}

const checkShape = object({
  groups: record(object({ queues: arrayOf(name) }, ['queues'])),
  rules: arrayOf(rule),
});

/** Throws `config-invalid` (exit 2). Composed into the whole config by src/config.ts. */
export const checkDrainConfig: Checker<DrainConfig> = (value, path) => {
  const config = checkShape(value, path);
  const seen = new Set<string>();
  for (const [group, { queues }] of Object.entries(config.groups ?? {})) {
    if (queues.length === 0) throw invalid(`${path}.groups.${group}.queues`, 'a list of at least one queue');
    for (const queue of queues) {
      if (seen.has(queue))
        throw invalid(
          `${path}.groups.${group}.queues`,
          `without ${queue}, which is in two groups, or in one twice`,
        );
      seen.add(queue);
    }
  }
  return config;
};

/** What a rule may ask about a message; for questions about a queue alone the other three are undefined. */
export interface RuleSubject {
  readonly queue: string;
  readonly exchange?: string | undefined;
  readonly routingKey?: string | undefined;
  readonly type?: string | undefined;
}

export interface RuleAnswer extends Omit<DrainRule, 'match'> {}

interface CompiledRule {
  readonly rule: DrainRule;
  readonly patterns: readonly { readonly part: keyof RuleSubject; readonly pattern: RegExp }[];
}

export interface Rules {
  /** The settings that hold for this subject; `kind` with its placeholders filled. */
  for(subject: RuleSubject): RuleAnswer;
}

/** Answers are remembered: a queue's messages nearly all look alike to the rules. */
const MAX_REMEMBERED = 2_000;
const NO_ANSWER: RuleAnswer = {};

export function compileRules(rules: readonly DrainRule[] = []): Rules {
  const compiled: CompiledRule[] = rules.map((each) => ({
    rule: each,
    patterns: Object.entries(each.match).map(([part, glob]) => ({
      part: part as keyof RuleSubject,
      pattern: globPattern(glob),
    })),
  }));
  const remembered = new Map<string, RuleAnswer>();
  // Message after message of a queue asks the same two questions, and even a key for the map costs.
  let ofQueue: Remembered | undefined;
  let ofMessage: Remembered | undefined;
  const ask = (subject: RuleSubject): RuleAnswer => {
    const key = `${subject.queue}\n${subject.exchange}\n${subject.routingKey}\n${subject.type}`;
    let answer = remembered.get(key);
    if (answer === undefined) {
      answer = answerFor(compiled, subject);
      if (remembered.size >= MAX_REMEMBERED) remembered.clear();
      remembered.set(key, answer);
    }
    return answer;
  };
  return {
    for(subject) {
      if (compiled.length === 0) return NO_ANSWER;
      const last = subject.exchange === undefined ? ofQueue : ofMessage;
      if (last !== undefined && isSame(subject, last.subject)) return last.answer;
      const now = { subject, answer: ask(subject) };
      if (subject.exchange === undefined) ofQueue = now;
      else ofMessage = now;
      return now.answer;
    },
  };
}

interface Remembered {
  readonly subject: RuleSubject;
  readonly answer: RuleAnswer;
}

function isSame(a: RuleSubject, b: RuleSubject): boolean {
  return (
    a.queue === b.queue && a.routingKey === b.routingKey && a.exchange === b.exchange && a.type === b.type
  );
}

function answerFor(compiled: readonly CompiledRule[], subject: RuleSubject): RuleAnswer {
  const answer: Record<string, unknown> = {};
  for (const { rule: each, patterns } of compiled) {
    const stars: string[] = [];
    const matches = patterns.every(({ part, pattern }) => {
      const found = pattern.exec(subject[part] ?? '\u0000');
      stars.push(...(found?.slice(1) ?? []));
      return found !== null;
    });
    if (!matches) continue;
    const { match: _, ...settings } = each;
    for (const [setting, value] of Object.entries(settings)) {
      answer[setting] ??= setting === 'kind' ? fill(String(value), subject, stars) : value;
    }
  }
  return answer;
}

function fill(template: string, subject: RuleSubject, stars: readonly string[]): string {
  return template.replace(PLACEHOLDER, (whole, part: string) => {
    if (/^\d+$/.test(part)) return stars[Number(part) - 1] ?? whole;
    return Object.hasOwn(subject, part) ? (subject[part as keyof RuleSubject] ?? '') : whole;
  });
}

/** A star never matches the mark of an absent part, so that `routingKey: '*'` does not speak about a bare queue. */
function globPattern(glob: string): RegExp {
  const parts = glob.split('*').map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'));
  return new RegExp(`^${parts.join('([^\\u0000]*)')}$`, 's');
}
