/** `unbroker jobs …`: look at jobs and act on them. */
import { Command } from 'commander';
import { invalid } from '../check.js';
import { EXIT, UnbrokerError } from '../errors.js';
import { JOB_STATES, type Job } from '../jobs/job.js';
import type { JobFilter } from '../jobs/operator-store.js';
import { type Act, createOperations, type Operation } from '../operations.js';
import { type Context, printable, run } from './context.js';
import { actor, audit, type BulkOptions, bulk, checkState, resume, withFilter } from './jobs-bulk.js';
import { isCut, print, printJson, table } from './output.js';
import { wholeOption } from './whole-option.js';

interface ListOptions {
  readonly state?: string;
  readonly kind?: string;
  readonly source?: string;
  readonly before?: string;
  readonly limit: string;
}

const MAX_IDS = 1_000;

export function jobsCommand(): Command {
  const jobs = new Command('jobs').description('look at jobs, retry, discard or cancel them');
  jobs
    .command('list')
    .description('newest first')
    .option('--state <state>', JOB_STATES.join(', '))
    .option('--kind <kind>')
    .option('--source <prefix>', 'rows whose source starts with it, as rabbitmq:')
    .option('--before <id>', 'the page below this id')
    .option('--limit <n>', '1 to 1000', '50')
    .action(run(list));
  jobs.command('show').description('one job, its errors and its payload').argument('<id>').action(run(show));
  jobs.command('stats').description('rows by kind and state').action(run(stats));
  const acts = [
    ['retry', 'dead or cancelled jobs run again', retry],
    ['discard', 'waiting jobs become dead', discard],
    ['cancel', 'waiting jobs will not run', cancel],
  ] as const;
  for (const [name, description, act] of acts) {
    const command = withFilter(
      jobs.command(name).description(description).argument('[ids...]', `at most ${MAX_IDS}; or a filter`),
    );
    if (name === 'retry')
      command.option('--attempts <n>', 'more starts at least; those that a job had left stay', '1');
    command.action(run(act));
  }
  jobs
    .command('resume')
    .description('go on with an act by filter that was interrupted')
    .argument('<operation>')
    .action(run((context, id: string) => resume(context, checkId(id))));
  jobs
    .command('audit')
    .description('what was done to jobs from the command line, newest first')
    .option('--before <id>', 'the page below this operation')
    .option('--limit <n>', '1 to 1000', '50')
    .action(
      run((context, { limit, before }: { limit: string; before?: string }) =>
        audit(
          context,
          wholeOption(limit, '--limit', 1, 1_000),
          before === undefined ? null : checkId(before),
        ),
      ),
    );
  return jobs;
}

async function list(context: Context, options: ListOptions): Promise<undefined> {
  const filter: JobFilter = {
    ...(options.state === undefined ? {} : { state: checkState(options.state) }),
    ...(options.kind === undefined ? {} : { kind: options.kind }),
    ...(options.source === undefined ? {} : { source: options.source }),
    ...(options.before === undefined ? {} : { beforeId: checkId(options.before) }),
    limit: wholeOption(options.limit, '--limit', 1, 1_000),
  };
  const found = await context.store.list(await context.migratedPool(), filter);
  if (context.json) {
    printJson({ jobs: found });
    return;
  }
  const rows = found.map((job) => [
    job.id,
    job.kind,
    job.waitsForTurn ? 'ready, waits' : job.state,
    `${job.attempts}/${job.maxAttempts}`,
    job.runAt,
    job.source,
    job.errors.at(-1)?.name,
  ]);
  print(table(['id', 'kind', 'state', 'attempts', 'run at', 'source', 'last error'], rows));
  const more = found.length === filter.limit ? `; next page: --before ${found.at(-1)?.id}` : '';
  print(found.length === 0 ? 'No job matches.' : `${found.length} shown${more}`);
}

async function show(context: Context, id: string): Promise<undefined> {
  const vetted = checkId(id);
  const job = await context.store.show(await context.migratedPool(), vetted);
  if (job === null) {
    throw new UnbrokerError('job-missing', `There is no job ${id}`, {
      hint: 'It may have been pruned; run: unbroker jobs list',
      exitStatus: EXIT.badInput,
    });
  }
  if (context.json) printJson(job);
  else print(describe(job));
}

function describe(job: Job): string {
  const { errors, payloadText, ...fields } = job;
  const rows = Object.entries(fields)
    .filter(([, value]) => value !== null)
    .map(([name, value]) => [
      name,
      value instanceof Date || typeof value !== 'object' ? value : JSON.stringify(value),
    ]);
  const history = errors.map((e) => [e.attempt, timeOf(e.at), e.name, e.message]);
  const long = [
    ...rows.map(([name, value]) => [name, value] as const),
    ...errors.map(({ attempt, message }) => [`attempt ${attempt}`, message] as const),
  ].filter(([, value]) => typeof value === 'string' && isCut(value));
  return [
    table(['field', 'value'], rows),
    ...(history.length > 0 ? [table(['attempt', 'at', 'error', 'message'], history)] : []),
    ...long.map(([name, value]) => `${name}: ${printable(String(value))}`),
    `payload: ${payloadText === null ? `(${job.bodyBytes} bytes in body)` : printable(payloadText)}`,
  ].join('\n');
}

/** As other times are shown; what is none, as it is. */
function timeOf(text: string): Date | string {
  const at = new Date(text);
  return Number.isNaN(at.getTime()) ? text : at;
}

async function stats(context: Context): Promise<undefined> {
  const pool = await context.migratedPool();
  const found = await context.store.stats(pool);
  if (context.json) printJson({ stats: found });
  else
    print(
      table(
        ['kind', 'state', 'jobs', 'oldest due'],
        found.map((s) => [s.kind, s.state, s.count, s.oldestRunAt]),
      ),
    );
}

async function retry(
  context: Context,
  ids: string[],
  options: BulkOptions & { attempts: string },
): Promise<number> {
  const attempts = wholeOption(options.attempts, '--attempts', 1, 1_000);
  return actOn(context, 'retry', ids, options, { attempts });
}

const discard = (context: Context, ids: string[], options: BulkOptions): Promise<number> =>
  actOn(context, 'discard', ids, options, {});

const cancel = (context: Context, ids: string[], options: BulkOptions): Promise<number> =>
  actOn(context, 'cancel', ids, options, {});

const WORDS = {
  retry: { done: 'retried', from: 'dead or cancelled' },
  discard: { done: 'discarded', from: 'ready' },
  cancel: { done: 'cancelled', from: 'ready' },
} as const;

/** The named jobs, or those of a filter. */
async function actOn(
  context: Context,
  act: Act,
  ids: string[],
  options: BulkOptions,
  more: Operation['options'],
): Promise<number> {
  if (ids.length === 0) return bulk(context, act, options, more);
  const { dryRun, kind, state, source, error, tag, olderThan, newerThan } = options;
  if ([dryRun, kind, state, source, error, tag, olderThan, newerThan].some((given) => given !== undefined))
    throw invalid('The list of ids', 'given alone: a filter and --dry-run are for acts by filter');
  if (ids.length > MAX_IDS) throw invalid('The list of ids', `at most ${MAX_IDS} long`);
  const { done, from } = WORDS[act];
  const vetted = [...new Set(ids.map(checkId))];
  const pool = await context.migratedPool();
  const changed = await createOperations(context.schema).actOn(pool, act, vetted, actor(), more);
  const unchanged = vetted.filter((id) => !changed.includes(id));
  if (context.json) printJson({ [done]: changed, unchanged });
  else {
    print(`${changed.length} ${done}.`);
    if (unchanged.length > 0)
      print(`Left as they are (not ${from}, or no such job): ${unchanged.join(', ')}`);
  }
  return unchanged.length === 0 ? EXIT.ok : EXIT.failed;
}

function checkId(id: string): string {
  if (/^[1-9]\d{0,17}$/.test(id)) return id;
  throw invalid('The job id', 'a positive whole number, as unbroker jobs list prints it');
}
