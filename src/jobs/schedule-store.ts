/**
 * The only file that runs the statements on schedules; a part of the store (store.ts), with the same rules. When a slot comes is
 * schedule.ts's answer.
 */
import { jobsOf, json, returnedIds, rows } from './answers.js';
import type { Job, Misfire, PreparedJob, Queryable, Schedule } from './job.js';
import { createScheduleStatements } from './schedule-statements.js';
import { withDates } from './times.js';

/** A prepared schedule: vetted, its first slot known (schedules.ts does both). */
export interface PreparedSchedule {
  readonly name: string;
  readonly job: PreparedJob;
  readonly cron: string;
  readonly timeZone: string;
  readonly misfire: Misfire;
  /** Undefined leaves it as it is; a new one is not paused. */
  readonly paused: boolean | undefined;
  readonly startAt: Date | null;
  readonly endAt: Date | null;
  /** Null: no slot is left before endAt. */
  readonly nextRunAt: Date | null;
  readonly slotsUntil: Date;
  readonly tzVersion: string;
}

/** A schedule whose slot has come or comes within a second. */
export interface DueRow {
  readonly id: string;
  readonly cron: string;
  readonly timeZone: string;
  readonly misfire: Misfire;
  /** Exact; what the firing compares with. */
  readonly runAtText: string;
  readonly runAtMs: number;
  readonly endAtMs: number | null;
  readonly nowMs: number;
}

/** One schedule to move, and the slots to fire on the way. */
export interface Move {
  readonly row: Pick<DueRow, 'id' | 'runAtText' | 'cron' | 'timeZone'>;
  readonly slotsMs: readonly number[];
  /** Null: it ends. */
  readonly nextMs: number | null;
}

/** A schedule that was moved; `jobs` are the ids that it fired. */
export interface Fired {
  readonly id: string;
  readonly name: string;
  readonly kind: string;
  readonly ended: boolean;
  readonly jobs: readonly string[];
}

/** A schedule computed with an older tzdata. */
export interface StaleRow extends Pick<DueRow, 'id' | 'cron' | 'timeZone' | 'runAtText'> {
  readonly slotsUntilMs: number;
}

export interface ScheduleFilter {
  readonly kind?: string;
  /** Schedules whose source starts with it. */
  readonly source?: string;
  /** The next page: names after it. */
  readonly afterName?: string;
  /** Default 50, at most 1000. */
  readonly limit?: number;
}

/** A schedule's name as its dedupe key, kept apart from the keys of jobs. */
const scheduleKey = (name: string): string => `schedule:${name}`;

async function schedules<Row extends Schedule>(
  db: Queryable,
  text: string,
  values: unknown[],
): Promise<Row[]> {
  return withDates<Row>(await rows(db, text, values), ['nextRunAt', 'endAt', 'slotsUntil', 'createdAt']);
}

export function scheduleStore(schema: string) {
  const sql = createScheduleStatements(schema);
  return {
    /** The database's clock, and how Postgres spells the first of these zones (lower case) that it knows; or null. */
    async clockAndZone(db: Queryable, zones: readonly string[]) {
      return (await rows<{ nowMs: number; timeZone: string | null }>(db, sql.clockAndZone, [zones]))[0] as {
        nowMs: number;
        timeZone: string | null;
      };
    },
    /** Epoch ms. */
    async clock(db: Queryable): Promise<number> {
      return (await rows<{ nowMs: number }>(db, sql.clock, []))[0]?.nowMs ?? 0;
    },

    /** Makes or changes a schedule by its name. */
    async putSchedule(db: Queryable, s: PreparedSchedule): Promise<Schedule & { readonly created: boolean }> {
      const { job } = s;
      const [row] = await schedules<Schedule & { created: boolean }>(db, sql.putSchedule, [
        job.kind,
        job.payloadText,
        job.priority ?? null,
        job.maxAttempts ?? null,
        json(job.headers),
        job.source ?? null,
        json(job.retryPolicy),
        scheduleKey(s.name),
        s.cron,
        s.timeZone,
        s.misfire,
        s.nextRunAt,
        s.endAt,
        s.slotsUntil,
        s.tzVersion,
        s.paused ?? null,
        s.startAt,
        job.orderingKey ?? null,
      ]);
      return row as Schedule & { created: boolean };
    },

    async findSchedule(db: Queryable, name: string): Promise<Schedule | null> {
      return (await schedules<Schedule>(db, sql.findSchedule, [scheduleKey(name)]))[0] ?? null;
    },

    listSchedules(db: Queryable, filter: ScheduleFilter = {}): Promise<Schedule[]> {
      const { kind = null, source = null, afterName, limit = 50 } = filter;
      const after = afterName === undefined ? null : scheduleKey(afterName);
      return schedules<Schedule>(db, sql.listSchedules, [kind, source, after, Math.min(limit, 1_000)]);
    },

    /** False when there is none. */
    async deleteSchedule(db: Queryable, name: string): Promise<boolean> {
      return (await returnedIds(db, sql.deleteSchedule, [scheduleKey(name)])).length === 1;
    },

    async pauseSchedule(db: Queryable, name: string): Promise<Schedule | null> {
      return (await schedules<Schedule>(db, sql.pauseSchedule, [scheduleKey(name)]))[0] ?? null;
    },

    /** Null when it is not paused (any more) or has another rule than `from`. */
    async resumeSchedule(
      db: Queryable,
      from: Pick<Schedule, 'name' | 'cron' | 'timeZone'>,
      to: Pick<PreparedSchedule, 'nextRunAt' | 'slotsUntil' | 'tzVersion'>,
    ): Promise<Schedule | null> {
      const values = [scheduleKey(from.name), from.cron, from.timeZone];
      const next = [to.nextRunAt, to.slotsUntil, to.tzVersion];
      return (await schedules<Schedule>(db, sql.resumeSchedule, [...values, ...next]))[0] ?? null;
    },

    /** The new job's id; null when there is no such schedule. */
    async triggerSchedule(db: Queryable, name: string): Promise<string | null> {
      return (await returnedIds(db, sql.triggerSchedule, [scheduleKey(name)]))[0] ?? null;
    },

    /** Jobs that a schedule fired, newest first. */
    scheduleHistory(db: Queryable, name: string, limit: number, beforeId: string | null): Promise<Job[]> {
      return jobsOf(db, sql.scheduleHistory, [scheduleKey(name), beforeId, Math.min(limit, 1_000)]);
    },

    /** Schedules due now or within a second, in order; not those of `except`. `at` stands in for the clock. */
    dueSchedules(
      db: Queryable,
      limit: number,
      except: readonly string[],
      at: Date | null,
    ): Promise<DueRow[]> {
      return rows<DueRow>(db, sql.dueSchedules, [at, limit, except]);
    },

    /** Fires and moves what is still as it was read. Every slot up to `nowMs` is settled by it. */
    async fireSchedules(
      db: Queryable,
      moves: readonly Move[],
      nowMs: number,
      tzVersion: string,
    ): Promise<Fired[]> {
      const slots = moves.flatMap(({ row, slotsMs }) =>
        slotsMs.map((ms) => ({ id: row.id, at: new Date(ms) })),
      );
      const moved = await rows<Fired>(db, sql.fireSchedules, [
        moves.map(({ row }) => row.id),
        moves.map(({ row }) => row.runAtText),
        moves.map(({ row }) => row.cron),
        moves.map(({ row }) => row.timeZone),
        moves.map(({ nextMs }) => (nextMs === null ? null : new Date(nextMs))),
        slots.map(({ id }) => id),
        slots.map(({ at }) => at),
        new Date(nowMs),
        tzVersion,
      ]);
      return moved.map(({ id, name, kind, ended, jobs }) => ({ id, name, kind, ended, jobs }));
    },

    /** Schedules computed with an older tzdata than `tzVersion`. */
    staleSchedules(db: Queryable, tzVersion: string, limit: number, except: readonly string[]) {
      return rows<StaleRow>(db, sql.staleSchedules, [tzVersion, limit, except]);
    },

    /** Gives them the run_at of newer tzdata; the ids of those that had not moved on. */
    rebaseSchedules(
      db: Queryable,
      moves: readonly { readonly row: StaleRow; readonly nextMs: number }[],
      tzVersion: string,
    ): Promise<string[]> {
      return returnedIds(db, sql.rebaseSchedules, [
        moves.map(({ row }) => row.id),
        moves.map(({ row }) => row.runAtText),
        moves.map(({ row }) => row.cron),
        moves.map(({ nextMs }) => new Date(nextMs)),
        tzVersion,
      ]);
    },
  };
}
