/**
 * When a schedule fires: a cron expression or an interval, a time zone, what became due, what comes next. Pure: every
 * function is told the time, which is the database's. It stores nothing and fires nothing.
 *
 * The rule at a change of clocks. An expression that names hours fires at wall times, each of them once: one that falls in
 * a gap fires at the first instant after the gap, one that comes twice fires the first time. An expression whose hour
 * field is `*` names no hour and simply goes on: nothing is made up for a gap, and a repeated hour is an hour.
 */
import { Cron, CronPattern } from 'croner';
import { EXIT, UnbrokerError } from '../errors.js';
import type { Misfire } from './job.js';
import { findZone, type Zone } from './zone.js';

export const MISFIRES: readonly Misfire[] = ['skip', 'once', 'all'];

export const SCHEDULE_LIMITS = {
  /** Characters; `0,1,…,59` is 168. */
  cronLength: 500,
  nameLength: 200,
  minEveryMs: 1_000,
  maxEveryMs: 366 * 86_400_000,
  /** Missed slots that `all` makes up for; the oldest come first, the others are dropped. */
  maxMissed: 1_000,
  /** A slot that is later than this is missed. Deploys and restarts are shorter. */
  graceMs: 60_000,
  /** A Monday the 29th of February comes every 28 or 40 years. */
  horizonYears: 50,
} as const;

const DAY_MS = 86_400_000;
const HORIZON_MS = SCHEDULE_LIMITS.horizonYears * 365.25 * DAY_MS;

/** A parsed schedule. `text` is the expression in its one stored form. */
export type Rule =
  | { readonly type: 'every'; readonly text: string; readonly everyMs: number }
  | {
      readonly type: 'cron';
      readonly text: string;
      readonly zone: Zone;
      /** False when every hour fits. */
      readonly namesHours: boolean;
      /** Walks wall clocks: next match after one, or null. */
      readonly nextWall: (wallMs: number) => number | null;
    };

/**
 * `cron`: 5 fields, 6 with seconds first, `@hourly|daily|midnight|weekly|monthly|yearly|annually`, or `@every 90s`.
 * Throws `schedule-invalid`, `time-zone-unknown` (both exit 2).
 */
export function parseRule(cron: string, timeZone: string): Rule {
  if (cron.length > SCHEDULE_LIMITS.cronLength) {
    throw invalid(`it is longer than ${SCHEDULE_LIMITS.cronLength} characters`, 'Use ranges and steps.');
  }
  const text = cron.trim().replaceAll(/[ \t]+/g, ' ');
  const zone = findZone(timeZone);
  if (/^@every\b/i.test(text)) return { type: 'every', text, everyMs: parseEvery(text) };
  checkFields(text);
  const pattern = new CronPattern(text, undefined, { mode: '5-or-6-parts' });
  const walker = new Cron(text, { mode: '5-or-6-parts', utcOffset: 0, paused: true });
  return {
    type: 'cron',
    text,
    zone,
    namesHours: pattern.hour.includes(0),
    nextWall: (wallMs) => walker.nextRun(new Date(wallMs))?.getTime() ?? null,
  };
}

const NICKNAMES = ['@hourly', '@daily', '@midnight', '@weekly', '@monthly', '@yearly', '@annually'];

/** Names and forms of the fields, seconds first; the index is that of a 6-field expression. */
const FIELDS: readonly (readonly [name: string, takes: string])[] = [
  ['second', '0 to 59'],
  ['minute', '0 to 59'],
  ['hour', '0 to 23'],
  ['day of month', '1 to 31, L (last), 15W (weekday nearest to the 15th) or LW'],
  ['month', '1 to 12 or JAN to DEC'],
  ['day of week', '0 to 7 (0 and 7 are Sunday) or SUN to SAT, MON#2 (second) or FRIL (last)'],
];

/** Refuses what is not an expression, naming the field. */
function checkFields(text: string): void {
  if (text.startsWith('@')) {
    if (NICKNAMES.includes(text.toLowerCase())) return;
    const why = /^@reboot$/i.test(text) ? 'a table has no reboot' : 'there is no such nickname';
    throw invalid(why, `Use ${NICKNAMES.join(', ')} or @every 90s.`);
  }
  const fields = text.split(' ');
  if (fields.length !== 5 && fields.length !== 6) {
    throw invalid(
      text === '' ? 'it is empty' : `it has ${fields.length} field${fields.length === 1 ? '' : 's'}`,
      'Write 5 (minute hour day month weekday), or 6 with seconds first.',
    );
  }
  for (const [index, field] of fields.entries()) {
    const alone = ['*', '*', '*', '*', '*', '*'];
    const place = index + 6 - fields.length;
    alone[place] = field;
    const [name, takes] = FIELDS[place] as (typeof FIELDS)[number];
    try {
      // croner also takes letters and digits of other scripts; a stored expression should look like what it is.
      if (!/^[\w*/,?#+-]+$/.test(field)) throw new TypeError('illegal characters');
      new CronPattern(alone.join(' '), undefined, { mode: '6-part' });
    } catch {
      throw invalid(
        `its ${name} ${printable(field)} cannot be read`,
        `It takes ${takes}; lists (1,2), ranges (1-5), steps (*/5, 1-30/5) or *.`,
      );
    }
  }
}

function printable(field: string): string {
  return /^[\x21-\x7e]{1,40}$/.test(field) ? `"${field}"` : 'field';
}

const UNIT_MS: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

function parseEvery(text: string): number {
  const match = /^@every (\d{1,12})(ms|s|m|h|d)$/i.exec(text);
  const everyMs = match === null ? 0 : Number(match[1]) * (UNIT_MS[String(match[2]).toLowerCase()] ?? 0);
  if (everyMs >= SCHEDULE_LIMITS.minEveryMs && everyMs <= SCHEDULE_LIMITS.maxEveryMs) return everyMs;
  throw invalid(
    'its interval cannot be read or is out of range',
    'Write @every with a number and ms, s, m, h or d, from 1s to 366d.',
  );
}

function invalid(why: string, hint: string): UnbrokerError {
  return new UnbrokerError('schedule-invalid', `The cron expression is not valid: ${why}`, {
    hint,
    exitStatus: EXIT.badInput,
  });
}

/** The first slot after an instant, in epoch ms; null when there is none within fifty years. */
export function nextAfter(rule: Rule, afterMs: number): number | null {
  const slotMs = rule.type === 'every' ? nextMultiple(rule.everyMs, afterMs) : nextInZone(rule, afterMs);
  return slotMs === null || slotMs > afterMs + HORIZON_MS ? null : slotMs;
}

/** Multiples of the interval since 1970 in UTC: any two processes agree on them, and no start has to be kept. */
function nextMultiple(everyMs: number, afterMs: number): number {
  return (Math.floor(afterMs / everyMs) + 1) * everyMs;
}

type CronRule = Extract<Rule, { type: 'cron' }>;

function nextInZone(rule: CronRule, afterMs: number): number | null {
  const secondMs = Math.floor(afterMs / 1_000) * 1_000;
  const stretch = rule.zone.stretchAt(secondMs);
  const wallMs = secondMs + stretch.offsetMs;
  if (!rule.namesHours) return nextRunning(rule, stretch.fromMs, wallMs, afterMs + HORIZON_MS);
  // In a repeated hour the wall clock shows what was there before: go on from where it had come.
  const nextMs = rule.nextWall(Math.max(wallMs, stretch.reachedMs - 1_000));
  return nextMs === null ? null : rule.zone.firstInstant(nextMs);
}

/** For expressions of every hour: stretch by stretch, each by its own clock. */
function nextRunning(rule: CronRule, fromMs: number, wallMs: number, horizonMs: number): number | null {
  let stretch = rule.zone.stretchAt(fromMs);
  let afterWallMs = wallMs;
  while (stretch.fromMs <= horizonMs) {
    const nextMs = rule.nextWall(afterWallMs);
    if (nextMs === null) return null;
    if (nextMs < stretch.toMs + stretch.offsetMs) return nextMs - stretch.offsetMs;
    // Nothing fits on any clock until shortly before it: a slot twenty years ahead is not looked for stretch by stretch.
    stretch = rule.zone.stretchAt(Math.max(stretch.toMs, nextMs - 3 * DAY_MS));
    afterWallMs = stretch.fromMs + stretch.offsetMs - 1_000;
  }
  return null;
}

/** Up to `count` slots after an instant and before `endAtMs`. */
export function slotsAfter(rule: Rule, afterMs: number, count: number, endAtMs: number | null): number[] {
  const slots: number[] = [];
  let atMs = nextAfter(rule, afterMs);
  while (atMs !== null && slots.length < count && atMs < (endAtMs ?? Number.POSITIVE_INFINITY)) {
    slots.push(atMs);
    atMs = nextAfter(rule, atMs);
  }
  return slots;
}

/** A schedule whose run_at has come, as the table has it. */
export interface DueSchedule {
  readonly runAtMs: number;
  readonly nowMs: number;
  /** No slot at or after it. */
  readonly endAtMs: number | null;
  readonly misfire: Misfire;
}

/** The slots to fire, oldest first, and the run_at that follows; null = the schedule has ended. */
export interface Firing {
  readonly slotsMs: readonly number[];
  readonly nextMs: number | null;
}

/** What is due, by the misfire policy. Every slot up to now is then settled: fired or dropped. */
export function decideFiring(rule: Rule, due: DueSchedule): Firing {
  const endMs = due.endAtMs ?? Number.POSITIVE_INFINITY;
  if (due.runAtMs >= endMs) return { slotsMs: [], nextMs: null };
  const followingMs = nextAfter(rule, due.runAtMs);
  const onlyOne = followingMs === null || followingMs > due.nowMs;
  const nextMs = onlyOne ? followingMs : nextAfter(rule, due.nowMs);
  const lastMs = Math.min(due.nowMs, endMs - 1);
  return {
    slotsMs: onlyOne
      ? onTime(due, due.runAtMs)
      : due.misfire === 'all'
        ? [due.runAtMs, ...slotsAfter(rule, due.runAtMs, SCHEDULE_LIMITS.maxMissed - 1, lastMs + 1)]
        : onTime(due, latestSlot(rule, due.runAtMs, lastMs)),
    nextMs: nextMs === null || nextMs >= endMs ? null : nextMs,
  };
}

/** The one slot, unless the policy drops what is late. */
function onTime(due: DueSchedule, slotMs: number): number[] {
  return due.misfire === 'skip' && slotMs < due.nowMs - SCHEDULE_LIMITS.graceMs ? [] : [slotMs];
}

/** The last slot up to `untilMs`, which is `fromMs` at the earliest. By halving: an outage may hide a million slots. */
function latestSlot(rule: Rule, fromMs: number, untilMs: number): number {
  let latestMs = fromMs;
  let highMs = untilMs;
  while (latestMs < highMs) {
    const middleMs = Math.ceil((latestMs + highMs) / 2);
    const slotMs = nextAfter(rule, middleMs - 1);
    if (slotMs !== null && slotMs <= untilMs) latestMs = slotMs;
    else highMs = middleMs - 1;
  }
  return latestMs;
}
