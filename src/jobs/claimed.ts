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

/** Between the fields of a job and between jobs in the text of many (migrations/042_claim_lines.sql). */
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

/** `n`: how many jobs the text has. `token`: the lease's of each that has no numbers. */
export interface ClaimedTextRow {
  readonly n: number;
  readonly text: string | null;
  readonly body: ClaimedJob['body'];
  readonly token: string | null;
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

/** What a line leaves out. */
interface Usual {
  readonly kinds: readonly string[];
  readonly token: string;
}
/** The table's defaults, on a first start. */
const USUAL = { attempt: 1, maxAttempts: 20, priority: 0 } as const;

/** `kinds` as they were asked for. */
export function claimedJob(
  { id, payloadText, body, numbers, rest }: ClaimedRow,
  kinds: readonly string[],
): ClaimedJob {
  return numbered(id, payloadText, body, numbers, rest ?? NO_REST, kinds);
}

export function claimedMany(rows: readonly ClaimedTextRow[], kinds: readonly string[]): ClaimedMany {
  const [joined, ...others] = rows;
  const text = joined?.text ?? null;
  const usual = { kinds, token: joined?.token ?? '' };
  const count = (joined?.n ?? 0) + others.length;
  let jobs: readonly ClaimedJob[] | undefined;
  const takenApart = (): readonly ClaimedJob[] => {
    jobs ??= takeApart(text, others, usual);
    return jobs;
  };
  let length = text?.length ?? 0;
  for (const { text: line, body } of others) length += (line?.length ?? 0) + (body?.length ?? 0);
  return {
    ...{ count, length },
    byKind: () => (kinds.length === 1 ? new Map([[kinds[0] ?? '', count]]) : counted(takenApart())),
    last: () => (text === null ? [] : [lineOf(text, text.lastIndexOf(JOB) + 1, text.length, null, usual)]),
    jobs: takenApart,
  };
}

/** Characters of its text and bytes of its body. */
export const lengthOf = ({ payloadText, body }: Pick<ClaimedJob, 'payloadText' | 'body'>): number =>
  (payloadText?.length ?? 0) + (body?.length ?? 0);

/** The same of jobs that came as rows. */
export function claimedRows(jobs: readonly ClaimedJob[]): ClaimedMany {
  return {
    count: jobs.length,
    length: jobs.reduce((sum, job) => sum + lengthOf(job), 0),
    byKind: () => counted(jobs),
    last: () => jobs.slice(-1),
    jobs: () => jobs,
  };
}

function counted(jobs: readonly ClaimedJob[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const { kind } of jobs) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  return counts;
}

function takeApart(text: string | null, others: readonly ClaimedTextRow[], usual: Usual): ClaimedJob[] {
  const jobs: ClaimedJob[] = [];
  for (let from = 0; text !== null && from < text.length; ) {
    const next = text.indexOf(JOB, from);
    const end = next === -1 ? text.length : next;
    jobs.push(lineOf(text, from, end, null, usual));
    from = end + 1;
  }
  for (const { text: line, body } of others) jobs.push(lineOf(line ?? '', 0, line?.length ?? 0, body, usual));
  return inTableOrder(jobs, usual.kinds);
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

/**
 * From `from` to `end`: id, run_at, payload; then the numbers if one of them is unusual, else the kind's place if there are
 * several; and the rest, a JSON object, if there is one. Found by their places: taken apart into a list a line took twice as long.
 */
function lineOf(
  text: string,
  from: number,
  end: number,
  body: ClaimedJob['body'],
  { kinds, token }: Usual,
): ClaimedJob {
  const afterId = text.indexOf(FIELD, from);
  const afterRunAt = text.indexOf(FIELD, afterId + 1);
  const next = text.indexOf(FIELD, afterRunAt + 1);
  const afterPayload = next === -1 || next > end ? end : next;
  const id = text.slice(from, afterId);
  const payload = text.slice(afterRunAt + 1, afterPayload);
  const payloadText = payload === '' ? null : payload;
  const more = afterPayload === end ? [] : text.slice(afterPayload + 1, end).split(FIELD);
  const rest = more.at(-1)?.startsWith('{') ? JSON.parse(more.pop() as string) : NO_REST;
  const [numbers] = more;
  if (numbers?.includes(' ')) return numbered(id, payloadText, body, numbers, rest, kinds);
  const runAtMs = Number(text.slice(afterId + 1, afterRunAt));
  const { attempt, maxAttempts, priority } = USUAL;
  const kind = kinds[numbers === undefined ? 0 : Number(numbers) - 1] as string;
  return jobOf(id, kind, payloadText, body, attempt, maxAttempts, token, priority, runAtMs, runAtMs, rest);
}

/** `numbers`: the kind's place, attempt, most attempts, token, priority, run_at, created_at. */
function numbered(
  id: string,
  payloadText: string | null,
  body: ClaimedJob['body'],
  numbers: string,
  rest: Rest,
  kinds: readonly string[],
): ClaimedJob {
  const [place, attempt, most, token = '', priority, runAt, createdAt] = numbers.split(' ');
  const kind = kinds[Number(place) - 1] as string;
  const runAtMs = Number(runAt);
  // Mostly the same: to read such a number takes as long as all the others.
  const createdAtMs = createdAt === runAt ? runAtMs : Number(createdAt);
  const [first, last, level] = [Number(attempt), Number(most), Number(priority)];
  return jobOf(id, kind, payloadText, body, first, last, token, level, runAtMs, createdAtMs, rest);
}

/** By places, since each object between a text and its job was felt. */
function jobOf(
  id: string,
  kind: string,
  payloadText: string | null,
  body: ClaimedJob['body'],
  attempt: number,
  maxAttempts: number,
  leaseToken: string,
  priority: number,
  runAtMs: number,
  createdAtMs: number,
  { contentType, headers, progress, dedupeKey, source, retryPolicy, orderingKey }: Rest,
): ClaimedJob {
  return {
    id,
    kind,
    payloadText,
    body,
    contentType,
    attempt,
    maxAttempts,
    leaseToken,
    priority,
    runAtMs,
    createdAtMs,
    headers,
    progress,
    dedupeKey,
    source,
    retryPolicy,
    orderingKey,
  };
}
