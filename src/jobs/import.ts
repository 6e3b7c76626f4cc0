/**
 * Writes jobs with their history, in any state: what a drain brings. A thousand rows are one COPY, which costs the server
 * a third less than an insert and this process far less than arrays of values. Ids are drawn first, so that a
 * ledger can name the jobs in the same transaction.
 */
import { copyIn } from './copy-in.js';
import {
  type CopyRows,
  copyData,
  FIELDS_BYTES,
  LENGTH_BYTES,
  putEight,
  type WrittenRow,
} from './copy-rows.js';
import { type ImportedJob, type Json, LIMITS, type Queryable } from './job.js';
import { quoteSchema } from './schema-name.js';
import { storableText } from './text.js';

/** What the server must say before rows can be sent. */
export interface Drawn {
  /** Eight bytes each. */
  readonly ids: Buffer;
  /** The transaction's now(), eight bytes. */
  readonly now: Buffer;
}

/** A job's row; the two flags say where now() belongs. */
export interface JobRow extends WrittenRow {
  readonly startsNow: boolean;
  readonly ended: boolean;
}

const COLUMNS = [
  ...[
    'id',
    'run_at',
    'finished_at',
    'attempts',
    'max_attempts',
    'priority',
    'state',
    'kind',
    'payload',
    'body',
  ],
  ...['content_type', 'dedupe_key', 'headers', 'source', 'errors', 'dead'],
];
const DEFAULT_MAX_ATTEMPTS = 20;
const ID_AT = FIELDS_BYTES + LENGTH_BYTES;
const RUN_AT = ID_AT + 8 + LENGTH_BYTES;
const FINISHED_AT = RUN_AT + 8 + LENGTH_BYTES;

export function writeJob(rows: CopyRows, job: ImportedJob): JobRow {
  const ended = job.state !== 'ready';
  rows.begin(COLUMNS.length);
  rows.later();
  if (job.runAtMs === null) rows.later();
  else rows.time(job.runAtMs);
  if (ended) rows.later();
  else rows.none();
  rows.int4(job.attempts);
  rows.int4(job.maxAttempts ?? DEFAULT_MAX_ATTEMPTS);
  rows.int2(job.priority);
  rows.text(job.state);
  rows.text(job.kind);
  rows.json(job.payloadText);
  rows.bytes(job.body);
  rows.text(job.contentType);
  rows.text(job.dedupeKey);
  if (job.headers === null) rows.none();
  else rows.jsonValue(job.headers);
  rows.text(job.source);
  rows.json(job.error === null ? null : errorsOf(job.error, job.attempts));
  // The mark that the index of the dead goes by (migrations/034_open.sql).
  if (job.state === 'dead') rows.boolean(true);
  else rows.none();
  const { bytes, start, end } = rows.end();
  return { bytes, start, end, startsNow: job.runAtMs === null, ended };
}

function errorsOf(error: NonNullable<ImportedJob['error']>, attempt: number): string {
  const entry: Json = {
    at: new Date().toISOString(),
    attempt,
    name: storableText(error.name, 100),
    message: storableText(error.message, LIMITS.errorMessageLength),
  };
  return JSON.stringify([entry]);
}

export function createImport(schema: string) {
  const s = quoteSchema(schema);
  const drawIds = `
select coalesce(string_agg(int8send(nextval((select pg_get_serial_sequence('${s}.jobs', 'id')::regclass))), ''), '') as ids,
       timestamptz_send(now()) as now
from generate_series(1, $1)`;
  const copyJobs = `copy ${s}.jobs (${COLUMNS.join(', ')}) from stdin with (format binary)`;
  return {
    /** Ids for so many jobs, and the time of this transaction. */
    async draw(db: Queryable, count: number): Promise<Drawn> {
      return (await db.query(drawIds, [count])).rows[0] as Drawn;
    },

    /** Inserts the jobs with these ids. `client`: one connection inside a transaction. */
    async insert(client: Queryable, jobs: readonly JobRow[], { ids, now }: Drawn): Promise<void> {
      if (jobs.length === 0) return;
      jobs.forEach(({ bytes, start, startsNow, ended }, index) => {
        putEight(bytes, start + ID_AT, ids, index * 8);
        if (startsNow) putEight(bytes, start + RUN_AT, now, 0);
        if (ended) putEight(bytes, start + FINISHED_AT, now, 0);
      });
      await copyIn(client, copyJobs, copyData(jobs));
    },
  };
}
