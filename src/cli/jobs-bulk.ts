/**
 * `unbroker jobs retry|discard|cancel` by filter, `resume` and `audit`: what the command line adds to operations.ts: a look
 * first, a yes for many, an end between two chunks at Ctrl-C, and whose name is written down.
 */
import { hostname, userInfo } from 'node:os';
import type { Command } from 'commander';
import { invalid, parseDuration, suggestion } from '../check.js';
import { EXIT, UnbrokerError } from '../errors.js';
import { JOB_STATES, type JobState } from '../jobs/job.js';
import {
  type Act,
  type BulkFilter,
  checkFilter,
  createOperations,
  MAX_PREVIEW,
  type Operation,
  type Preview,
} from '../operations.js';
import type { Context } from './context.js';
import { hearEnd } from './end-signals.js';
import { print, printJson, table } from './output.js';

export interface BulkOptions {
  readonly state?: string;
  readonly kind?: string;
  readonly source?: string;
  readonly error?: string;
  readonly tag?: string;
  readonly olderThan?: string;
  readonly newerThan?: string;
  readonly dryRun?: boolean;
  readonly yes?: boolean;
}

/** More than that only with --yes. */
const MAX_UNASKED = 100;
const MAX_AGE_MS = 100 * 366 * 86_400_000;

export function withFilter(command: Command): Command {
  return command
    .option('--kind <kind>', 'by filter: exact, or notify.* for all that start so')
    .option('--state <state>', 'by filter: dead (default) or cancelled for retry; ready for the others')
    .option('--source <prefix>', 'by filter: rows whose source starts with it')
    .option('--error <text>', 'by filter: part of the name or message of the last error')
    .option('--tag <tag>', 'by filter: one of the tags of the payload')
    .option('--older-than <duration>', 'by filter: finished (else created) longer ago, as 2h')
    .option('--newer-than <duration>', 'by filter: finished (else created) since then')
    .option('--dry-run', 'count and show samples; change nothing')
    .option('--yes', `needed when a filter takes more than ${MAX_UNASKED}`);
}

/** Who acts, as it is written down. */
export function actor(): string {
  let user = 'unknown';
  try {
    user = userInfo().username;
  } catch {
    // A user without a name, as in some containers.
  }
  return `${user}@${hostname()}`.slice(0, 300);
}

export async function bulk(
  context: Context,
  act: Act,
  options: BulkOptions,
  more: Operation['options'],
): Promise<number> {
  const filter = readFilter(options);
  checkFilter(act, filter);
  const operations = createOperations(context.schema);
  const pool = await context.migratedPool();
  const preview = await operations.preview(pool, act, filter);
  if (options.dryRun === true) {
    if (context.json) printJson({ act, filter, dryRun: true, ...preview });
    else print(describe(act, preview));
    return EXIT.ok;
  }
  if (preview.count > MAX_UNASKED && options.yes !== true) {
    throw new UnbrokerError('operation-unconfirmed', `${act} would change ${amount(preview)}`, {
      hint: 'Look at them with --dry-run, then add --yes.',
      exitStatus: EXIT.badInput,
    });
  }
  const { id } = await operations.begin(pool, act, filter, actor(), more);
  return resume(context, id);
}

/** Runs an operation from where it stands. 130 when it was interrupted: the same command goes on. */
export async function resume(context: Context, id: string): Promise<number> {
  const operations = createOperations(context.schema);
  const pool = await context.migratedPool();
  const interrupt = new AbortController();
  const stop = (): void => interrupt.abort();
  const hearNoMore = hearEnd(stop);
  try {
    const onChunk = ({ position, upto, changed }: Operation): void =>
      context.log.info({ operation: id, position, upto, changed }, 'a chunk is done');
    const end = await operations.run(pool, id, { signal: interrupt.signal, onChunk });
    if (context.json) printJson(end);
    else print(`Operation ${id}, ${end.act}: ${jobs(end.changed)} changed.`);
    if (end.finishedAt !== null) return EXIT.ok;
    if (!context.json) print(`Interrupted at job ${end.position}. Go on: unbroker jobs resume ${id}`);
    return EXIT.interrupted;
  } finally {
    hearNoMore();
  }
}

export async function audit(context: Context, limit: number, before: string | null): Promise<undefined> {
  const pool = await context.migratedPool();
  const found = await createOperations(context.schema).list(pool, limit, before);
  if (context.json) {
    printJson({ operations: found });
    return;
  }
  const rows = found.map((each) => [
    each.id,
    each.startedAt,
    each.by,
    each.act,
    JSON.stringify(each.filter),
    each.changed,
    each.finishedAt ?? `at job ${each.position}`,
  ]);
  print(table(['id', 'started', 'by', 'act', 'filter', 'changed', 'finished'], rows));
}

function readFilter(options: BulkOptions): BulkFilter {
  const { kind, source, error, tag } = options;
  const age = (text: string | undefined, name: string): number | undefined =>
    text === undefined ? undefined : parseDuration(text, name, 0, MAX_AGE_MS);
  const olderThanMs = age(options.olderThan, '--older-than');
  const newerThanMs = age(options.newerThan, '--newer-than');
  const state = options.state === undefined ? undefined : checkState(options.state);
  const given = { state, kind, source, error, tag, olderThanMs, newerThanMs };
  for (const [name, value] of Object.entries(given)) {
    const fits =
      typeof value !== 'string' || (value.length > 0 && value.length <= 1_000 && !value.includes('\0'));
    if (!fits) throw invalid(`--${name}`, '1 to 1000 characters');
  }
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
}

export function checkState(state: string): JobState {
  if (JOB_STATES.includes(state as JobState)) return state as JobState;
  throw invalid('--state', `one of ${JOB_STATES.join(', ')}${suggestion(state, JOB_STATES)}`);
}

const jobs = (count: number): string => `${count} ${count === 1 ? 'job' : 'jobs'}`;

const amount = ({ count, more }: Preview): string => (more ? `more than ${MAX_PREVIEW} jobs` : jobs(count));

function describe(act: Act, preview: Preview): string {
  const rows = preview.groups.map(({ kind, error, count, samples }) => [
    kind,
    error,
    count,
    samples.join(', '),
  ]);
  return [
    ...(rows.length > 0 ? [table(['kind', 'last error', 'jobs', 'for example'], rows)] : []),
    `${act} would change ${amount(preview)}. Nothing was changed.`,
  ].join('\n');
}
