/**
 * What a client's request did to rows that were there already, as a line for the audit table: which act, which rows. Pure.
 * It quotes nothing that a client sent but the names of schedules and templates; who it was is the core's to add.
 */
import { touchedBy } from '../notify/suppressions.js';
import type { DoorAct, Touched } from '../operations.js';
import type { Change, ChangeSchedule, Parsed, ResultOf } from './operations.js';

export interface DoorNote {
  readonly act: DoorAct;
  readonly touched: Touched;
  readonly changed: number;
}

/** As operators call them: what a replay does is a retry. */
const ACTS: Readonly<Record<Change['act'], DoorAct>> = {
  cancel: 'cancel',
  'run-now': 'run-now',
  replay: 'retry',
  dismiss: 'dismiss',
};

/** A schedule that is a job: it is cancelled and hurried like one. */
const JOB_ACTS: Readonly<Record<ChangeSchedule['act'], DoorAct>> = {
  pause: 'pause',
  resume: 'resume',
  trigger: 'run-now',
  delete: 'cancel',
};

/** null: it only added rows, or changed nothing. `result` is the core's to `parsed`. */
export function noteOf(parsed: Parsed, result: unknown): DoorNote | null {
  switch (parsed.type) {
    case 'change': {
      const { changed, job } = result as ResultOf<typeof parsed>;
      return changed && job !== null ? ofJobs(ACTS[parsed.act], [job.id]) : null;
    }
    case 'change-many': {
      const { changed } = result as ResultOf<typeof parsed>;
      return ofJobs(ACTS[parsed.act], changed);
    }
    case 'edit-job': {
      const { changed, job } = result as ResultOf<typeof parsed>;
      return changed && job !== null ? ofJobs('edit', [job.id]) : null;
    }
    case 'replace-job': {
      const { replaced = [] } = result as ResultOf<typeof parsed>;
      return ofJobs('cancel', replaced);
    }
    case 'put-schedule': {
      const { schedule, created } = result as ResultOf<typeof parsed>;
      return created ? null : ofSchedule('edit', schedule.name);
    }
    case 'change-schedule': {
      const { schedule, job, changed, fired } = result as ResultOf<typeof parsed>;
      if (!changed) return null;
      if (schedule === null) return ofJobs(JOB_ACTS[parsed.act], job === null ? [] : [job.id]);
      return ofSchedule(parsed.act, schedule.name, fired);
    }
    case 'edit-schedule': {
      const { schedule, job, changed } = result as ResultOf<typeof parsed>;
      if (!changed) return null;
      return schedule === null
        ? ofJobs('edit', job === null ? [] : [job.id])
        : ofSchedule('edit', schedule.name);
    }
    case 'put-template': {
      const { version } = result as ResultOf<typeof parsed>;
      return { act: 'edit', touched: { template: parsed.key, version }, changed: 1 };
    }
    case 'change-suppressions': {
      const changed = result as ResultOf<typeof parsed>;
      if (changed.length === 0) return null;
      return { act: parsed.act, touched: touchedBy(parsed.channel, changed), changed: changed.length };
    }
    default:
      return null;
  }
}

function ofJobs(act: DoorAct, ids: readonly string[]): DoorNote | null {
  return ids.length === 0 ? null : { act, touched: { ids }, changed: ids.length };
}

function ofSchedule(act: DoorAct, name: string, fired: string | null = null): DoorNote {
  return { act, touched: { schedule: name, ...(fired === null ? {} : { ids: [fired] }) }, changed: 1 };
}
