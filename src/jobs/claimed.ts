/**
 * Claimed jobs on their way from the server: what the claim selects, and how a worker takes it apart. A few come as rows of
 * five columns, since each text in a row costs this process 0.1 us: the numbers travel as one text, and what most jobs have
 * not as one JSON; that is 1 us of 2.4 a job less, and no more for the server (measured). Many come as one text: how many
 * there are is known, and the next claim on its way, before any of them is taken apart.
 */
import { compareNumbers } from './held.js';
import type { ClaimedJob } from './job.js';

const numbers = (
  kinds: string,
): string => `array_position(${kinds}, kind), attempts, max_attempts, lease_token, priority,
            date_part('epoch', run_at) * 1000, date_part('epoch', created_at) * 1000`;

const REST = `
  case when num_nonnulls(content_type, headers, progress, dedupe_key, source, retry_policy,
                         ordering_key) > 0 then
    json_build_object('contentType', content_type, 'headers', headers, 'progress', progress, 'dedupeKey', dedupe_key,
                      'source', source, 'retryPolicy', retry_policy, 'orderingKey', ordering_key)
  end`;

/** Of the rows of the function claim or claim_solo; `kinds` is the parameter that names the kinds asked for. */
export const claimedColumns = (kinds: string): string => `
  id::text, payload as "payloadText", body, concat_ws(' ', ${numbers(kinds)}) as numbers, ${REST} as rest`;

/** Between the fields of a job and between jobs in the text of many (migrations/038_claim_in_place.sql). */
const FIELD = '\x1f';
const JOB = '\x1e';

type Rest = Pick<
  ClaimedJob,
  'contentType' | 'headers' | 'progress' | 'dedupeKey' | 'source' | 'retryPolicy' | 'orderingKey'
>;

export interface ClaimedRow extends Pick<ClaimedJob, 'id' | 'payloadText' | 'body'> {
  readonly numbers: string;
  readonly rest: Rest | null;
}

const NO_REST: Rest = {
  contentType: null,
  headers: null,
  progress: null,
  dedupeKey: null,
  source: null,
  retryPolicy: null,
  orderingKey: null,
};

/** `n`: how many jobs the text has. */
export interface ClaimedTextRow {
  readonly n: number;
  readonly text: string | null;
  readonly body: ClaimedJob['body'];
}

/** An answer that is taken apart when somebody asks for the jobs, or for their kinds when there may be several. */
export interface ClaimedMany {
  readonly count: number;
  /** Characters of the texts and bytes of the bodies, not looked at. */
  readonly length: number;
  readonly byKind: () => ReadonlyMap<string, number>;
  /** The last of them that is in the text; none when there is none. */
  readonly last: () => readonly ClaimedJob[];
  readonly jobs: () => readonly ClaimedJob[];
}

/** `kinds` as they were asked for. */
export function claimedJob(
  { id, payloadText, body, numbers, rest }: ClaimedRow,
  kinds: readonly string[],
): ClaimedJob {
  return named(id, numbers.split(' '), 0, payloadText, body, rest ?? NO_REST, kinds);
}

export function claimedMany(rows: readonly ClaimedTextRow[], kinds: readonly string[]): ClaimedMany {
  const [joined, ...others] = rows;
  const text = joined?.text ?? null;
  const count = (joined?.n ?? 0) + others.length;
  let jobs: readonly ClaimedJob[] | undefined;
  const takenApart = (): readonly ClaimedJob[] => {
    jobs ??= takeApart(text, others, kinds);
    return jobs;
  };
  let length = text?.length ?? 0;
  for (const { text: job, body } of others) length += (job?.length ?? 0) + (body?.length ?? 0);
  return {
    ...{ count, length },
    byKind: () => (kinds.length === 1 ? new Map([[kinds[0] ?? '', count]]) : counted(takenApart())),
    last: () => (text === null ? [] : [jobOfText(text.slice(text.lastIndexOf(JOB) + 1), null, kinds)]),
    jobs: takenApart,
  };
}

function counted(jobs: readonly ClaimedJob[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const { kind } of jobs) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  return counts;
}

function takeApart(
  text: string | null,
  others: readonly ClaimedTextRow[],
  kinds: readonly string[],
): ClaimedJob[] {
  const jobs = text === null ? [] : text.split(JOB).map((job) => jobOfText(job, null, kinds));
  for (const { text: job, body } of others) jobs.push(jobOfText(job ?? '', body, kinds));
  return inTableOrder(jobs, kinds);
}

/** By kind as asked, falling priority, run_at and id. Mostly they are in order already. */
export function inTableOrder(jobs: ClaimedJob[], kinds: readonly string[]): ClaimedJob[] {
  const order = (a: ClaimedJob, b: ClaimedJob): number =>
    (a.kind === b.kind ? 0 : kinds.indexOf(a.kind) - kinds.indexOf(b.kind)) ||
    b.priority - a.priority ||
    a.runAtMs - b.runAtMs ||
    compareNumbers(a.id, b.id);
  for (let i = 1; i < jobs.length; i += 1)
    if (order(jobs[i - 1] as ClaimedJob, jobs[i] as ClaimedJob) > 0) return jobs.sort(order);
  return jobs;
}

/** Before the payload: the id and seven numbers. */
const PAYLOAD = 8;

function jobOfText(text: string, body: ClaimedJob['body'], kinds: readonly string[]): ClaimedJob {
  const fields = text.split(FIELD);
  const payload = fields[PAYLOAD] ?? '';
  const rest = fields[PAYLOAD + 1];
  return named(
    fields[0] as string,
    fields,
    1,
    payload === '' ? null : payload,
    body,
    rest === undefined ? NO_REST : JSON.parse(rest),
    kinds,
  );
}

/** `fields` from `at` on: the kind's place, attempt, most attempts, token, priority, run_at, created_at. */
function named(
  id: string,
  fields: readonly string[],
  at: number,
  payloadText: string | null,
  body: ClaimedJob['body'],
  { contentType, headers, progress, dedupeKey, source, retryPolicy, orderingKey }: Rest,
  kinds: readonly string[],
): ClaimedJob {
  const [runAt, createdAt] = [fields[at + 5], fields[at + 6]];
  const runAtMs = Number(runAt);
  return {
    id,
    kind: kinds[Number(fields[at]) - 1] as string,
    payloadText,
    body,
    contentType,
    attempt: Number(fields[at + 1]),
    maxAttempts: Number(fields[at + 2]),
    leaseToken: fields[at + 3] as string,
    priority: Number(fields[at + 4]),
    runAtMs,
    // Mostly the same: to read such a number takes as long as all the others.
    createdAtMs: createdAt === runAt ? runAtMs : Number(createdAt),
    headers,
    progress,
    dedupeKey,
    source,
    retryPolicy,
    orderingKey,
  };
}
