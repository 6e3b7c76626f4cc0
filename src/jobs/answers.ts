/** What a statement answers, and JSON as a parameter of one. For the stores, which know what was asked. */
import { EXIT, UnbrokerError } from '../errors.js';
import { WRAP } from './handle.js';
import type { Job, Queryable } from './job.js';
import { withDates } from './times.js';

export const json = (value: unknown): string | null =>
  value === undefined || value === null ? null : JSON.stringify(value);

export async function rows<T>(db: Queryable, text: string, values: unknown[]): Promise<T[]> {
  const answer: Partial<Awaited<ReturnType<Queryable['query']>>> | undefined = await db.query(text, values);
  if (Array.isArray(answer?.rows)) return answer.rows as T[];
  throw new UnbrokerError('answer-unusable', 'The statement was sent, but its answer has no rows', {
    hint: `Roll back. The first argument's query must answer { rows }, as pg's does: ${WRAP}`,
    exitStatus: EXIT.badInput,
  });
}

/** Of a statement with `jobColumns`. */
export async function jobsOf(db: Queryable, text: string, values: unknown[]): Promise<Job[]> {
  return withDates<Job>(await rows(db, text, values), ['runAt', 'lockedUntil', 'createdAt', 'finishedAt']);
}

export async function returnedIds(db: Queryable, text: string, values: unknown[]): Promise<string[]> {
  return (await rows<{ id: string }>(db, text, values)).map((row) => row.id);
}

/** Of a statement that answers with all ids in one text. */
export async function joinedIds(db: Queryable, text: string, values: unknown[]): Promise<string[]> {
  const [answer] = await rows<{ ids: string | null }>(db, text, values);
  return answer?.ids?.split(',') ?? [];
}
