/**
 * What the log says of how a job ended, where it is not simply done: whose doing it was, of what class, and where in the code.
 * Never a message: a handler's may quote a payload, and so may the places that a schema names (the row has both). Pure.
 */
import { errorFields, placeOf } from '../thrown.js';
import type { ClaimedJob } from './job.js';
import { Discard, type HandlerEnd, type Outcome, whyNotKept } from './settle.js';

/** A line of the log. */
export interface EndLine {
  readonly level: 'debug' | 'warn';
  readonly fields: object;
  readonly text: string;
  /** To be said once a minute for all jobs that have this in common: they are done, and may be thousands a second. */
  readonly cause?: string;
}

/** Undefined when there is nothing to say. */
export function endLine(
  { job: { id, kind, attempt }, snoozed }: { readonly job: ClaimedJob; readonly snoozed: boolean },
  end: HandlerEnd,
  outcome: Outcome,
): EndLine | undefined {
  const of = { job: id, kind, attempt };
  if (end.type === 'returned') {
    // Most jobs.
    if (end.value === undefined && !snoozed) return undefined;
    const line = snoozed ? CAUGHT : resultLine(end.value, outcome);
    return line && { ...line, fields: { ...of, ...line.fields }, cause: `${kind} ${line.text}` };
  }
  const { error } = end;
  const delay = 'delayMs' in outcome ? { delayMs: Math.round(outcome.delayMs) } : {};
  const fields = { ...of, outcome: outcome.type, ...delay, ...errorFields(error) };
  // It asked for a later start: nothing went wrong.
  if (outcome.type === 'snooze')
    return {
      level: 'debug',
      fields,
      text:
        end.before === undefined ? 'a handler snoozed' : 'the database did not say whether a job has expired',
    };
  const reason = reasonOf(error);
  return {
    level: 'warn',
    fields: { ...fields, ...(reason && { reason }), ...(end.before === undefined && { at: placeOf(error) }) },
    text: textOf(end.before, reason),
  };
}

const CAUGHT: EndLine = {
  level: 'warn',
  fields: {},
  text: 'a handler called snooze, caught what that throws and returned, so the job is done; let it through',
};

function textOf(before: 'expiry' | 'schema' | undefined, reason: string | undefined): string {
  if (before === undefined) return 'a handler threw';
  if (before === 'expiry') return 'a job had expired before its handler was called';
  return reason === 'payload-invalid'
    ? 'a payload does not fit the schema of its kind, so its handler was not called. unbroker jobs show says where'
    : 'the schema of a kind threw, so its handler was not called';
}

/** It stands for the class of an error in the row. What does not look like a code is not told: it may be a sentence. */
function reasonOf(error: unknown): string | undefined {
  try {
    const reason: unknown = error instanceof Discard ? error.reason : undefined;
    if (typeof reason === 'string' && /^[\w.:-]{1,60}$/.test(reason)) return reason;
  } catch {
    // Anything may be thrown, a revoked proxy too.
  }
  return undefined;
}

function resultLine(value: unknown, outcome: Outcome): EndLine | undefined {
  const why = whyNotKept(outcome);
  if (why !== undefined)
    return { level: 'warn', fields: {}, text: `a result was not kept, the job is done: ${why}` };
  if (!isError(value)) return undefined;
  const text = 'a handler returned an error, so the job is done; to fail it, or to snooze, throw it';
  return { level: 'warn', fields: errorFields(value), text };
}

function isError(value: unknown): boolean {
  try {
    return value instanceof Error;
  } catch {
    return false;
  }
}
