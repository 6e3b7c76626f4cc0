/** How the trio's clients see a schedule: a job that lies ahead, or a row with a cron. Pure. */
import type { Job, JobState, Schedule } from '../../jobs/job.js';
import { objectText } from '../../json-text.js';
import { headerOf, headerText, lastError, sentText, text, time } from './common.js';
import { SOURCE } from './schedule-body.js';

export const STATUSES: Readonly<Record<string, readonly JobState[]>> = {
  scheduled: ['ready', 'running'],
  fired: ['done'],
  cancelled: ['cancelled'],
  failed: ['dead'],
};

export function runText(job: Job): string {
  return objectText({
    id: text(job.id),
    status: text(statusOf(job)),
    runAt: time(job.runAt),
    attempts: String(job.attempts),
    error: text(lastError(job)),
    firedAt: time(job.state === 'done' ? job.finishedAt : null),
  });
}

export function statusOf(job: Job): string {
  return Object.entries(STATUSES).find(([, states]) => states.includes(job.state))?.[0] ?? job.state;
}

export function nameOf(job: Job): string {
  return job.source?.slice(SOURCE.length + 1) || job.id;
}

export function viewText(job: Job): string {
  return objectText({
    id: text(job.id),
    name: text(nameOf(job)),
    status: text(statusOf(job)),
    runAt: time(job.runAt),
    target: JSON.stringify(headerOf(job, 'target') ?? null),
    payload: sentText(job),
    attempts: String(job.attempts),
    error: text(lastError(job)),
    createdAt: time(job.createdAt),
    firedAt: time(job.state === 'done' ? job.finishedAt : null),
    expiresAt:
      headerText(job, 'expiresAt') === undefined ? undefined : text(headerText(job, 'expiresAt') ?? null),
  });
}

export function stateOf({ paused, nextRunAt }: Schedule): string {
  if (nextRunAt === null) return 'ended';
  return paused ? 'paused' : 'scheduled';
}

export function scheduleText(schedule: Schedule): string {
  return objectText({
    id: text(schedule.name),
    name: text(schedule.name),
    status: text(stateOf(schedule)),
    runAt: time(schedule.nextRunAt),
    cron: text(schedule.cron),
    timeZone: text(schedule.timeZone),
    misfire: text(schedule.misfire),
    expiresAt: time(schedule.endAt),
    target: JSON.stringify(headerOf(schedule, 'target') ?? null),
    payload: sentText(schedule),
    createdAt: time(schedule.createdAt),
  });
}
