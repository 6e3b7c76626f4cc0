/**
 * What a contract can ask of the core, and what it gets: data in, data out. Where a change depends on what is there, the
 * operation carries a pure function from the row to the change. It knows neither HTTP nor SQL.
 */

import type { Carried } from '../jobs/enqueue-store.js';
import type { Enqueued, EnqueueOptions, Job, Json, RetryPolicy, Schedule } from '../jobs/job.js';
import type { DeadFilter, DeadGroup, JobSearch } from '../jobs/operator-store.js';
import type { Channel } from '../notify/message.js';
import type { Suppression, SuppressionChange } from '../notify/suppressions.js';
import type { CurrentTemplate, TemplateChange, TemplateVersion } from '../notify/template-table.js';
import type { ScheduleOptions } from '../schedules.js';

export interface ShimResponse {
  readonly status: number;
  /** Lower-case names; content-type is application/json unless given. */
  readonly headers?: Readonly<Record<string, string>>;
  /** null: empty. */
  readonly body: string | null;
}

/** A job as a contract makes it: the payload stays the text the client sent. */
export interface ShimJob extends EnqueueOptions {
  readonly kind: string;
  readonly payloadText: string;
  /** Set when it was tried elsewhere before. */
  readonly carried?: Carried;
}

/** Why a request is not done. `code` is kebab-case; the detail never quotes the request. May be returned or thrown. */
export class Refusal extends Error {
  readonly type = 'refusal';
  constructor(
    readonly status: number,
    readonly code: string,
    readonly detail: string,
  ) {
    super(detail);
    this.name = 'Refusal';
  }
}

/** By its mark, not its class: a team's contract may have been loaded with another copy of this file. */
export function isRefusal(value: unknown): value is Refusal {
  return value instanceof Error && (value as { type?: unknown }).type === 'refusal';
}

/** Which jobs a route may see and touch. */
export interface Scope {
  readonly kindPrefix?: string;
  readonly sourcePrefix?: string;
  /** Only these; `notify.*` means all that start so. */
  readonly kinds?: readonly string[];
}

export function kindFits(patterns: readonly string[] | undefined, kind: string): boolean {
  if (patterns === undefined) return true;
  return patterns.some((pattern) =>
    pattern.endsWith('*') ? kind.startsWith(pattern.slice(0, -1)) : kind === pattern,
  );
}

export interface Enqueue {
  readonly type: 'enqueue';
  /** Up to LIMITS.enqueueBatch; all or none. */
  readonly jobs: readonly ShimJob[];
  /** True: render gets the rows as the database has them (a run_at counted by its clock). Default false. */
  readonly readBack?: boolean;
}

/** `id`: the job's id, or the key that a message or client gave it. */
export interface Find {
  readonly type: 'find';
  readonly id: string;
  readonly scope: Scope;
}

/** The newest first. The list ends early at 16 MiB of payloads; `beforeId` goes on. */
export interface List {
  readonly type: 'list';
  readonly search: JobSearch;
}

export interface ListDead {
  readonly type: 'list-dead';
  readonly filter: DeadFilter;
  readonly limit: number;
}

export interface ListDeadGroups {
  readonly type: 'list-dead-groups';
  readonly filter: DeadFilter;
}

/** `cancel`: ready to cancelled; `run-now`: due now; `replay`: dead to ready; `dismiss`: dead to cancelled. */
export interface Change {
  readonly type: 'change';
  readonly act: 'cancel' | 'run-now' | 'replay' | 'dismiss';
  readonly id: string;
  readonly scope: Scope;
}

/** The same for many: by ids, or by what they have in common; at most `limit` of them, the newest first. */
export interface ChangeMany {
  readonly type: 'change-many';
  readonly act: Change['act'];
  readonly of:
    | { readonly ids: readonly string[] }
    | { readonly dead: DeadFilter }
    | { readonly search: JobSearch };
  readonly scope: Scope;
  readonly limit: number;
}

/** What is not given stays. At most one of runAt and delayMs. */
export interface JobEdit {
  readonly kind?: string;
  readonly payloadText?: string;
  readonly headers?: Json;
  readonly runAt?: Date;
  readonly delayMs?: number;
  readonly maxAttempts?: number;
  readonly retryPolicy?: RetryPolicy;
}

/** Changes a job that is in one of these states; `edit` sees it as it is, under its lock. */
export interface EditJob {
  readonly type: 'edit-job';
  readonly id: string;
  readonly scope: Scope;
  readonly states: readonly Job['state'][];
  edit(job: Job): JobEdit;
}

/** Enqueues one job in place of those of its source that have not started. */
export interface ReplaceJob {
  readonly type: 'replace-job';
  readonly job: ShimJob & { readonly source: string };
}

/** A schedule's rule and the jobs it fires; `source` tells which door it belongs to. */
export type ScheduleDraft = Omit<ScheduleOptions, 'name' | 'payload' | 'source'> & {
  readonly source: string;
};

/** `name` null: a new one is drawn, with `prefix`. `create`: refuses (409) a name that is there. */
export interface PutSchedule {
  readonly type: 'put-schedule';
  readonly name: string | null;
  readonly prefix: string;
  readonly mode: 'create' | 'upsert';
  readonly draft: ScheduleDraft;
}

/** A schedule by its name, or a job by its id or key. */
export interface FindSchedule {
  readonly type: 'find-schedule';
  readonly id: string;
  readonly scope: Scope;
  /** How many slots ahead to compute, for a schedule; absent: none. */
  readonly nextRuns?: number;
  /** Jobs that it fired: at most so many, older than the id; absent: none. */
  readonly history?: { readonly limit: number; readonly beforeId?: string };
}

export interface FoundSchedule {
  readonly schedule: Schedule | null;
  readonly job: Job | null;
  readonly nextRuns: readonly Date[];
  readonly history: readonly Job[];
}

/** Schedules of the scope by name, and the jobs that `search` finds. */
export interface ListSchedules {
  readonly type: 'list-schedules';
  readonly scope: Scope;
  /** Only this one; undefined: all. */
  readonly name?: string | undefined;
  readonly limit: number;
  readonly search: JobSearch | null;
}

/**
 * `edit` sees the schedule, or the job that is one. A job: `cancel` for delete, `run-now` for trigger; pausing one is
 * refused with `unsupported` by the core.
 */
export interface ChangeSchedule {
  readonly type: 'change-schedule';
  readonly act: 'pause' | 'resume' | 'trigger' | 'delete';
  readonly id: string;
  readonly scope: Scope;
}

export interface ChangedSchedule {
  readonly schedule: Schedule | null;
  readonly job: Job | null;
  readonly changed: boolean;
  /** Of the job that was triggered. */
  readonly fired: string | null;
}

export interface EditSchedule {
  readonly type: 'edit-schedule';
  readonly id: string;
  readonly scope: Scope;
  editSchedule(schedule: Schedule): ScheduleDraft;
  editJob(job: Job): JobEdit;
}

/** A new version with these variants; `remove`: all that the key has now. */
export interface PutTemplate {
  readonly type: 'put-template';
  readonly key: string;
  readonly changes: readonly TemplateChange[];
}

export interface ListTemplateVersions {
  readonly type: 'list-template-versions';
  readonly key: string;
  readonly limit: number;
}

/** By channel and recipient; `after`: the page behind that one. */
export interface ListSuppressions {
  readonly type: 'list-suppressions';
  readonly channel?: Channel;
  readonly after?: Pick<Suppression, 'channel' | 'recipient'>;
  readonly limit: number;
}

/** Recipients have been checked. */
export interface ChangeSuppressions extends SuppressionChange {
  readonly type: 'change-suppressions';
}

/** All that the table has now; what is only a file, parse knows. */
export interface ListTemplates {
  readonly type: 'list-templates';
  readonly limit: number;
}

/** Answered without the database. */
export interface Answer {
  readonly type: 'answer';
  readonly response: ShimResponse;
}

export type Parsed =
  | Enqueue
  | Find
  | List
  | ListDead
  | ListDeadGroups
  | Change
  | ChangeMany
  | EditJob
  | ReplaceJob
  | PutSchedule
  | FindSchedule
  | ListSchedules
  | ChangeSchedule
  | EditSchedule
  | PutTemplate
  | ListTemplateVersions
  | ListTemplates
  | ListSuppressions
  | ChangeSuppressions
  | Answer;

export interface EnqueueResult {
  readonly enqueued: readonly Enqueued[];
  /** Empty unless `readBack` was asked for. */
  readonly jobs: readonly Job[];
  /** Ids of those whose place they took. */
  readonly replaced?: readonly string[];
}

export interface ChangeResult {
  readonly changed: boolean;
  /** As it is now; null when there is no such job in the scope. */
  readonly job: Job | null;
}

export interface ChangedMany {
  readonly changed: readonly string[];
  /** Of those asked for by id: not there, or in a state that cannot be changed so. */
  readonly missed: readonly string[];
  /** There may be more that the filter finds. */
  readonly more: boolean;
}

interface Results {
  readonly enqueue: EnqueueResult;
  readonly find: Job | null;
  readonly list: readonly Job[];
  /** `more`: there may be more below the last. */
  readonly 'list-dead': { readonly jobs: readonly Job[]; readonly total: number; readonly more: boolean };
  readonly 'list-dead-groups': readonly DeadGroup[];
  readonly change: ChangeResult;
  readonly 'change-many': ChangedMany;
  readonly 'edit-job': ChangeResult;
  readonly 'replace-job': EnqueueResult;
  readonly 'put-schedule': { readonly schedule: Schedule; readonly created: boolean };
  readonly 'find-schedule': FoundSchedule;
  readonly 'list-schedules': { readonly schedules: readonly Schedule[]; readonly jobs: readonly Job[] };
  readonly 'change-schedule': ChangedSchedule;
  readonly 'edit-schedule': ChangedSchedule;
  readonly 'put-template': { readonly version: number };
  readonly 'list-template-versions': readonly TemplateVersion[];
  readonly 'list-templates': readonly CurrentTemplate[];
  readonly 'list-suppressions': readonly Suppression[];
  /** Those that it changed. */
  readonly 'change-suppressions': readonly string[];
  readonly answer: never;
}

export type ResultOf<P extends Parsed> = Results[P['type']];
