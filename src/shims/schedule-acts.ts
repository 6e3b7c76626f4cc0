/**
 * What contracts ask of schedules, done: rows with a cron by the schedules API, one-off ones as the jobs they are. It
 * knows no contract and no HTTP; a name that another door owns is as good as none.
 */
import { randomUUID } from 'node:crypto';
import type { Job, Queryable, Schedule } from '../jobs/job.js';
import type { JobSearch } from '../jobs/operator-store.js';
import type { Store } from '../jobs/store.js';
import type { Schedules } from '../schedules.js';
import {
  type ChangedSchedule,
  type ChangeSchedule,
  type EditSchedule,
  type FindSchedule,
  type FoundSchedule,
  kindFits,
  type ListSchedules,
  type PutSchedule,
  Refusal,
  type ScheduleDraft,
  type Scope,
} from './operations.js';
import { type Page, readPage } from './page.js';

export interface ScheduleActs {
  readonly store: Store;
  readonly schedules: Schedules;
  /** A job by its id or key, if it is in the scope. */
  findJob(db: Queryable, of: { readonly id: string; readonly scope: Scope }): Promise<Job | null>;
  search(db: Queryable, search: JobSearch): Promise<readonly Job[]>;
}

/** A schedule of this scope, by name. */
async function findOwn(
  { schedules }: ScheduleActs,
  db: Queryable,
  name: string,
  scope: Scope,
): Promise<Schedule | null> {
  const found = await schedules.findSchedule(db, name);
  if (found === null || !kindFits(scope.kinds, found.kind)) return null;
  return (found.source ?? '').startsWith(scope.sourcePrefix ?? '') ? found : null;
}

/** Throws Refusal 409 for a name that is there (`create`) or another door's. */
export async function putSchedule(
  acts: ScheduleActs,
  db: Queryable,
  { name, prefix, mode, draft }: PutSchedule,
): Promise<{ schedule: Schedule; created: boolean }> {
  const there = name === null ? null : await acts.schedules.findSchedule(db, name);
  if (there !== null && (mode === 'create' || there.source !== draft.source)) throw taken();
  const put = { ...draft, name: name ?? `${prefix}${randomUUID()}` };
  const { created, ...schedule } = await acts.schedules.schedule(db, put);
  // Made by somebody else since we looked; the caller's transaction goes back.
  if (mode === 'create' && !created) throw taken();
  if (schedule.nextRunAt === null)
    throw new Refusal(422, 'schedule-never', 'the schedule would never fire before it expires');
  return { schedule, created };
}

const taken = (): Refusal => new Refusal(409, 'conflict', 'a schedule of that name is there already');

export async function findSchedule(
  acts: ScheduleActs,
  db: Queryable,
  { id, scope, nextRuns, history }: FindSchedule,
): Promise<FoundSchedule> {
  const schedule = await findOwn(acts, db, id, scope);
  if (schedule === null) {
    return { schedule, job: await acts.findJob(db, { id, scope }), nextRuns: [], history: [] };
  }
  return {
    schedule,
    job: null,
    nextRuns: nextRuns === undefined ? [] : ((await acts.schedules.nextRuns(db, id, nextRuns)) ?? []),
    history: history === undefined ? [] : (await readHistory(acts, db, id, history)).jobs,
  };
}

function readHistory(
  { schedules }: ScheduleActs,
  db: Queryable,
  name: string,
  { limit, beforeId }: NonNullable<FindSchedule['history']>,
): Promise<Page> {
  return readPage(limit, beforeId, (count, before) =>
    schedules.scheduleHistory(db, name, {
      limit: count,
      ...(before === undefined ? {} : { beforeId: before }),
    }),
  );
}

export async function listSchedules(
  acts: ScheduleActs,
  db: Queryable,
  { scope, name, limit, search }: ListSchedules,
): Promise<{ schedules: readonly Schedule[]; jobs: readonly Job[] }> {
  const one = name === undefined ? null : await findOwn(acts, db, name, scope);
  const schedules =
    name !== undefined
      ? one === null
        ? []
        : [one]
      : await acts.schedules.listSchedules(db, { source: scope.sourcePrefix ?? '', limit });
  return { schedules, jobs: search === null ? [] : await acts.search(db, search) };
}

const UNCHANGED = { schedule: null, job: null, changed: false, fired: null };

export async function changeSchedule(
  acts: ScheduleActs,
  db: Queryable,
  { act, id, scope }: ChangeSchedule,
): Promise<ChangedSchedule> {
  const { schedules } = acts;
  const found = await findOwn(acts, db, id, scope);
  if (found === null) return changeJob(acts, db, act, await acts.findJob(db, { id, scope }));
  if (act === 'delete') return { ...UNCHANGED, schedule: found, changed: await schedules.unschedule(db, id) };
  if (act === 'trigger') {
    const fired = await schedules.triggerSchedule(db, id);
    return { ...UNCHANGED, schedule: found, changed: fired !== null, fired };
  }
  const schedule = await (act === 'pause'
    ? schedules.pauseSchedule(db, id)
    : schedules.resumeSchedule(db, id));
  return { ...UNCHANGED, schedule, changed: schedule !== null };
}

async function changeJob(
  { store }: ScheduleActs,
  db: Queryable,
  act: ChangeSchedule['act'],
  job: Job | null,
): Promise<ChangedSchedule> {
  if (job === null) return UNCHANGED;
  if (act === 'pause' || act === 'resume')
    throw new Refusal(
      409,
      'unsupported',
      'a one-off schedule cannot be paused; change its time or delete it',
    );
  const changed = await (act === 'delete' ? store.cancel(db, [job.id]) : store.runNow(db, [job.id]));
  const fired = act === 'trigger' && changed.length === 1 ? job.id : null;
  return { schedule: null, job: await store.show(db, job.id), changed: changed.length === 1, fired };
}

/** `db` is inside a transaction. */
export async function editSchedule(
  acts: ScheduleActs,
  db: Queryable,
  { id, scope, editSchedule: edit, editJob }: EditSchedule,
): Promise<ChangedSchedule> {
  const found = await findOwn(acts, db, id, scope);
  if (found !== null) {
    const draft: ScheduleDraft = edit(found);
    const { created: _created, ...schedule } = await acts.schedules.schedule(db, { ...draft, name: id });
    return { ...UNCHANGED, schedule, changed: true };
  }
  const job = await acts.findJob(db, { id, scope });
  const held = job === null ? null : await acts.store.holdJob(db, job.id);
  if (held === null) return UNCHANGED;
  const changed = held.state === 'ready' && (await acts.store.editJob(db, held.id, editJob(held)));
  return { ...UNCHANGED, job: await acts.store.show(db, held.id), changed };
}
