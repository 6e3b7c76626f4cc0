/**
 * Schedules, for callers: put one by its name, pause, resume, trigger, look ahead. A schedule is a row of the jobs table;
 * each of its slots becomes a job of its kind. Every function takes the caller's transaction or pool first; the workers'
 * upkeep does the firing.
 */
import { suggestion } from './check.js';
import { prepare } from './enqueue.js';
import { EXIT, UnbrokerError } from './errors.js';
import { behind } from './jobs/behind.js';
import { checkHandle } from './jobs/handle.js';
import {
  type EnqueueOptions,
  type Job,
  LIMITS,
  type Misfire,
  type Queryable,
  type Schedule,
} from './jobs/job.js';
import { MISFIRES, nextAfter, parseRule, SCHEDULE_LIMITS, slotsAfter } from './jobs/schedule.js';
import type { ScheduleFilter } from './jobs/schedule-store.js';
import { DEFAULT_SCHEMA } from './jobs/schema-name.js';
import { createStore } from './jobs/store.js';
import { isStorable } from './jobs/text.js';
import { findZone, zoneUnknown } from './jobs/zone.js';

/** `priority`, `maxAttempts`, `headers`, `orderingKey` and `retryPolicy` are those of the jobs it fires; `source` is the schedule's own. */
export interface ScheduleOptions
  extends Pick<
    EnqueueOptions,
    'priority' | 'maxAttempts' | 'headers' | 'retryPolicy' | 'source' | 'orderingKey'
  > {
  /** Unique in the schema; 1 to 200 characters. */
  readonly name: string;
  readonly kind: string;
  /** Default null. */
  readonly payload?: unknown;
  /** The payload as exact JSON text instead, for doors that have read it (json-text.ts). */
  readonly payloadText?: string | undefined;
  /** 5 fields, 6 with seconds first, a nickname (`@daily`) or `@every 90s`. This or `everyMs`. */
  readonly cron?: string | undefined;
  /** The same as `@every`: multiples of it since 1970 UTC. 1,000 to 366 days. */
  readonly everyMs?: number | undefined;
  /** IANA name. Default UTC. */
  readonly timeZone?: string | undefined;
  /** For slots that passed while nobody fired them. Default `once`. */
  readonly misfire?: Misfire | undefined;
  /** No slot before it. Default: now. */
  readonly startAt?: Date | undefined;
  /** No slot at or after it. Default: never ends. */
  readonly endAt?: Date | undefined;
  /** Default: as it is; a new schedule is not paused. */
  readonly paused?: boolean | undefined;
}

/** The functions, bound to a schema. */
export interface Schedules {
  /**
   * Makes the schedule, or changes the one of that name; `created` tells which. The same rule put again keeps the next
   * slot, missed ones included. Throws `schedule-invalid`, `schedule-never`, `time-zone-unknown`, and TypeError as
   * enqueue does; nothing is written then.
   */
  schedule(db: Queryable, options: ScheduleOptions): Promise<Schedule & { readonly created: boolean }>;
  /** Removes it; jobs that it fired stay. False when there is none. */
  unschedule(db: Queryable, name: string): Promise<boolean>;
  /** No slot fires until it is resumed. Null when there is none. */
  pauseSchedule(db: Queryable, name: string): Promise<Schedule | null>;
  /** Goes on with the next slot; those that passed meanwhile are dropped. Null when there is none. */
  resumeSchedule(db: Queryable, name: string): Promise<Schedule | null>;
  /** One job now, beside its slots, even while paused; its id. Null when there is none. */
  triggerSchedule(db: Queryable, name: string): Promise<string | null>;
  findSchedule(db: Queryable, name: string): Promise<Schedule | null>;
  /** By name; 50 unless `limit` says otherwise. */
  listSchedules(db: Queryable, filter?: ScheduleFilter): Promise<Schedule[]>;
  /** The next `count` slots (default 5, at most 1,000), as if it were not paused. Null when there is no such schedule. */
  nextRuns(db: Queryable, name: string, count?: number): Promise<Date[] | null>;
  /** Jobs that it fired, newest first, while they are kept. */
  scheduleHistory(
    db: Queryable,
    name: string,
    options?: { readonly limit?: number | undefined; readonly beforeId?: string | undefined },
  ): Promise<Job[]>;
}

const MAX_RESUMES = 5;
const MAX_AT_MS = Date.UTC(9999, 0);

/** For a schema other than `unbroker`. Throws `schema-invalid`. */
export function createSchedules(schema: string = DEFAULT_SCHEMA): Schedules {
  const store = createStore(schema);
  /** Spelling in Postgres of the zones it was asked for: asking costs it 40 ms (it reads every zone file). */
  const spellings = new Map<string, string>();

  const nowAndZone = async (db: Queryable, name: string): Promise<{ nowMs: number; timeZone: string }> => {
    const { canonicalName } = findZone(name);
    const key = name.toLowerCase();
    const known = key === 'utc' ? 'UTC' : spellings.get(key);
    if (known !== undefined) return { nowMs: await store.clock(db), timeZone: known };
    // An older tzdata may have only the older name (Europe/Kiev). Only of an Area/City: ACT is Darwin to ICU alone.
    const names = key.includes('/') ? [key, canonicalName.toLowerCase()] : [key];
    const { nowMs, timeZone } = await store.clockAndZone(db, names);
    if (timeZone === null) throw zoneUnknown(name, 'Postgres');
    spellings.set(key, timeZone);
    return { nowMs, timeZone };
  };

  const functions: Schedules = {
    async schedule(db, options) {
      checkOptions(options);
      const { name, kind, payload, payloadText, timeZone = 'UTC', misfire = 'once' } = options;
      const { startAt, endAt, paused } = options;
      const { priority, maxAttempts, headers, retryPolicy, source, orderingKey } = options;
      const carried = { priority, maxAttempts, headers, retryPolicy, source, orderingKey };
      const job = prepare({ kind, payload, ...given(carried) });
      const rule = parseRule(options.cron ?? `@every ${options.everyMs}ms`, timeZone);
      const now = await nowAndZone(db, timeZone);
      const afterMs = Math.max(now.nowMs, (startAt?.getTime() ?? 0) - 1);
      const nextMs = nextAfter(rule, afterMs);
      if (nextMs === null) throw never(`in ${SCHEDULE_LIMITS.horizonYears} years`);
      return store.putSchedule(db, {
        name,
        job: payloadText === undefined ? job : { ...job, payloadText },
        cron: rule.text,
        timeZone: now.timeZone,
        misfire,
        paused,
        startAt: startAt ?? null,
        endAt: endAt ?? null,
        nextRunAt: endAt !== undefined && nextMs >= endAt.getTime() ? null : new Date(nextMs),
        slotsUntil: new Date(afterMs),
        tzVersion: tzVersion(),
      });
    },

    unschedule: (db, name) => store.deleteSchedule(db, name),
    pauseSchedule: (db, name) => store.pauseSchedule(db, name),

    async resumeSchedule(db, name) {
      for (let tries = 0; tries < MAX_RESUMES; tries += 1) {
        const found = await store.findSchedule(db, name);
        if (found === null || !found.paused) return found;
        const afterMs = Math.max(await store.clock(db), found.slotsUntil.getTime());
        const [nextMs] = slotsAfter(parseRule(found.cron, found.timeZone), afterMs, 1, endOf(found));
        const resumed = await store.resumeSchedule(db, found, {
          nextRunAt: nextMs === undefined ? null : new Date(nextMs),
          slotsUntil: new Date(afterMs),
          tzVersion: tzVersion(),
        });
        if (resumed !== null) return resumed;
      }
      throw new UnbrokerError('schedule-busy', 'The schedule was changed each time it was to be resumed', {
        hint: 'Resume it again; if it stays, look for who changes it.',
      });
    },

    triggerSchedule: (db, name) => store.triggerSchedule(db, name),
    findSchedule: (db, name) => store.findSchedule(db, name),
    listSchedules: (db, filter) => store.listSchedules(db, filter),

    async nextRuns(db, name, count = 5) {
      const found = await store.findSchedule(db, name);
      if (found === null || found.nextRunAt === null) return found === null ? null : [];
      const wanted = Math.max(1, Math.min(Math.trunc(count), 1_000));
      const nowMs = Math.max(await store.clock(db), found.slotsUntil.getTime());
      const rule = parseRule(found.cron, found.timeZone);
      // A run_at ahead may have been set by hand; the rule goes on from there.
      const ahead = found.paused || found.nextRunAt.getTime() <= nowMs ? [] : [found.nextRunAt.getTime()];
      const more = slotsAfter(rule, ahead[0] ?? nowMs, wanted - ahead.length, endOf(found));
      return [...ahead, ...more].map((ms) => new Date(ms));
    },

    scheduleHistory: (db, name, { limit = 50, beforeId } = {}) =>
      store.scheduleHistory(db, name, limit, beforeId ?? null),
  };
  return told(functions, schema);
}

const DEED = { what: 'do this with schedules', by: 'a worker or admin (to look: a reader)' };

/** The same, each of which refuses what is no connection, and says the next step where schema or rights are missing. */
function told(functions: Schedules, schema: string): Schedules {
  const of = Object.entries(functions as unknown as Record<string, (...all: unknown[]) => Promise<unknown>>);
  const saying = of.map(([name, run]) => [
    name,
    async (...all: unknown[]) => {
      checkHandle(all[0]);
      try {
        return await run(...all);
      } catch (error) {
        throw behind(error, schema, DEED);
      }
    },
  ]);
  return Object.fromEntries(saying) as Schedules;
}

const standard = createSchedules();

export const {
  schedule,
  unschedule,
  pauseSchedule,
  resumeSchedule,
  triggerSchedule,
  findSchedule,
  listSchedules,
  nextRuns,
  scheduleHistory,
} = standard;

const endOf = (schedule: Schedule): number | null => schedule.endAt?.getTime() ?? null;

const tzVersion = (): string => process.versions['tz'] ?? '';

/** Without the undefined ones: an option that is not given must not look given. */
function given<T extends object>(options: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as never;
}

/** All that a schedule may have; `satisfies` keeps the list whole. */
const OPTIONS = {
  ...{ name: true, kind: true, payload: true, payloadText: true, cron: true, everyMs: true, timeZone: true },
  ...{ misfire: true, startAt: true, endAt: true, paused: true, priority: true, maxAttempts: true },
  ...{ headers: true, retryPolicy: true, source: true, orderingKey: true },
} satisfies Record<keyof ScheduleOptions, true>;

const A_RULE = "cron, for example '0 7 * * *', or everyMs, for example 60_000.";
const GIVE_RULE = `Give ${A_RULE}`;

/** `timezone` for `timeZone` would fire by UTC and say nothing. */
function checkNames(options: unknown): void {
  if (typeof options !== 'object' || options === null)
    throw invalid('it has no options', `Give, after the pool or transaction, name, kind and ${A_RULE}`);
  const names = Object.keys(OPTIONS);
  for (const [name, value] of Object.entries(options)) {
    if (names.includes(name) || value === undefined) continue;
    const hint = `A schedule has ${names.join(', ')}${suggestion(name, names) || '.'}`;
    throw invalid(`${name.slice(0, 60)} is no option`, hint);
  }
}

function checkOptions(options: ScheduleOptions): void {
  checkNames(options);
  const { name, cron, everyMs, misfire, startAt, endAt } = options;
  const { nameLength } = SCHEDULE_LIMITS;
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is refused
  const plain = typeof name === 'string' && isStorable(name) && !/[\u0000-\u001f\u007f]/.test(name);
  if (!plain || name.length < 1 || name.length > nameLength) {
    throw invalid('its name cannot be used', `Use 1 to ${nameLength} characters without control characters.`);
  }
  if (!['string', 'undefined'].includes(typeof options.timeZone))
    throw invalid('its timeZone is not a text', 'Give the IANA name of one, for example Europe/Berlin.');
  if (!['boolean', 'undefined'].includes(typeof options.paused))
    throw invalid('paused is neither true nor false', 'Give one of them.');
  if ((options.payloadText?.length ?? 0) > LIMITS.payloadBytes) {
    throw invalid('its payload is too large', `It may have ${LIMITS.payloadBytes} bytes.`);
  }
  if (!['string', 'undefined'].includes(typeof cron)) throw invalid('its cron is not a text', GIVE_RULE);
  if (!['number', 'undefined'].includes(typeof everyMs))
    throw invalid('its everyMs is not a number', GIVE_RULE);
  if (cron === undefined && everyMs === undefined) throw invalid('nothing says when it fires', GIVE_RULE);
  if (cron !== undefined && everyMs !== undefined)
    throw invalid('it has both cron and everyMs', 'Give one of them.');
  if (misfire !== undefined && !MISFIRES.includes(misfire)) {
    throw invalid('its misfire policy is unknown', `Use ${MISFIRES.join(', ')}.`);
  }
  for (const [what, at] of Object.entries({ startAt, endAt })) {
    const ok = at === undefined || (at instanceof Date && at.getTime() >= 0 && at.getTime() < MAX_AT_MS);
    if (!ok) throw invalid(`its ${what} is not a date`, 'Give a Date from 1970 to 9998.');
  }
  if (startAt !== undefined && endAt !== undefined && endAt <= startAt) throw never('before its endAt');
}

function invalid(why: string, hint: string): UnbrokerError {
  return new UnbrokerError('schedule-invalid', `The schedule is not valid: ${why}`, {
    hint,
    exitStatus: EXIT.badInput,
  });
}

/** `when`: `in 50 years`, `before its endAt`. */
export function never(when: string): UnbrokerError {
  return new UnbrokerError('schedule-never', `The schedule would never fire ${when}`, {
    hint: 'Correct its cron expression or its dates; unbroker schedules next shows what an expression means.',
    exitStatus: EXIT.badInput,
  });
}
