/** `unbroker schedules …`: what fires when, and acting on it. */
import { Command } from 'commander';
import { invalid, oneOf } from '../check.js';
import { EXIT, UnbrokerError } from '../errors.js';
import { LIMITS, type Schedule } from '../jobs/job.js';
import { MISFIRES, parseRule, SCHEDULE_LIMITS, slotsAfter } from '../jobs/schedule.js';
import { JsonError, readJson } from '../json-text.js';
import { createSchedules, never, type ScheduleOptions, type Schedules } from '../schedules.js';
import { type Context, run } from './context.js';
import { print, printJson, table } from './output.js';
import { readBounded } from './read-bounded.js';
import { wholeOption } from './whole-option.js';

interface ListOptions {
  readonly kind?: string;
  readonly source?: string;
  readonly after?: string;
  readonly limit: string;
}

interface CreateOptions {
  readonly kind: string;
  readonly cron: string;
  readonly timeZone: string;
  readonly misfire: string;
  readonly payloadFile?: string;
  readonly priority?: string;
  readonly maxAttempts?: string;
  readonly startAt?: string;
  readonly endAt?: string;
  readonly paused?: boolean;
}

interface NextOptions {
  readonly cron?: string;
  readonly timeZone: string;
  readonly from?: string;
  readonly count: string;
}

export function schedulesCommand(): Command {
  const schedules = new Command('schedules').description(
    'jobs that come back: list, make, pause, look ahead',
  );
  schedules
    .command('list')
    .description('by name')
    .option('--kind <kind>')
    .option('--source <prefix>', 'schedules whose source starts with it')
    .option('--after <name>', 'the page after this name')
    .option('--limit <n>', '1 to 1000', '50')
    .action(run(list));
  schedules
    .command('create')
    .description('make a schedule, or change the one of that name')
    .argument('<name>')
    .requiredOption('--kind <kind>', 'kind of the jobs it fires')
    .requiredOption('--cron <expression>', '5 or 6 fields, @daily, or @every 90s')
    .option('--time-zone <zone>', 'IANA name', 'UTC')
    .option('--misfire <policy>', `for missed slots: ${MISFIRES.join(', ')}`, 'once')
    .option('--payload-file <file>', 'JSON; - reads standard input')
    .option('--priority <n>', 'higher first')
    .option('--max-attempts <n>', 'of each job')
    .option('--start-at <time>', 'no slot before it, as 2030-01-31T09:00:00Z')
    .option('--end-at <time>', 'no slot at or after it')
    .option('--paused', 'do not fire until resumed')
    .action(run(create));
  schedules
    .command('pause')
    .description('no slot fires')
    .argument('<name>')
    .action(run(changing('pauseSchedule', 'Paused')));
  schedules
    .command('resume')
    .description('go on with the next slot')
    .argument('<name>')
    .action(run(changing('resumeSchedule', 'Resumed')));
  schedules.command('trigger').description('one job now').argument('<name>').action(run(trigger));
  schedules.command('delete').description('its jobs stay').argument('<name>').action(run(remove));
  schedules
    .command('next')
    .description('the next slots of a schedule, or of an expression given with --cron')
    .argument('[name]')
    .option('--cron <expression>')
    .option('--time-zone <zone>', 'for --cron', 'UTC')
    .option('--from <time>', 'for --cron: slots after it (default: now)')
    .option('--count <n>', '1 to 1000', '5')
    .action(run(next));
  return schedules;
}

async function list(context: Context, options: ListOptions): Promise<undefined> {
  const found = await createSchedules(context.schema).listSchedules(await context.migratedPool(), {
    ...(options.kind === undefined ? {} : { kind: options.kind }),
    ...(options.source === undefined ? {} : { source: options.source }),
    ...(options.after === undefined ? {} : { afterName: options.after }),
    limit: wholeOption(options.limit, '--limit', 1, 1_000),
  });
  if (context.json) return void printJson({ schedules: found });
  const rows = found.map((s) => [s.name, s.kind, s.cron, s.timeZone, s.misfire, stateOf(s), s.nextRunAt]);
  print(table(['name', 'kind', 'cron', 'zone', 'missed', 'state', 'next'], rows));
  if (found.length === 0) print('There is no schedule.');
}

function stateOf(schedule: Schedule): string {
  if (schedule.nextRunAt === null) return 'ended';
  return schedule.paused ? 'paused' : 'active';
}

async function create(context: Context, name: string, options: CreateOptions): Promise<undefined> {
  const { kind, cron, timeZone, payloadFile, priority, maxAttempts, startAt, endAt, paused } = options;
  const asked: ScheduleOptions = {
    name: checkName(name),
    kind: checkKind(kind),
    cron,
    timeZone,
    misfire: oneOf(...MISFIRES)(options.misfire, '--misfire'),
    ...(payloadFile === undefined ? {} : { payloadText: readPayload(payloadFile) }),
    ...(priority === undefined
      ? {}
      : { priority: wholeOption(priority, '--priority', LIMITS.minPriority, LIMITS.maxPriority) }),
    ...(maxAttempts === undefined
      ? {}
      : { maxAttempts: wholeOption(maxAttempts, '--max-attempts', 1, LIMITS.maxAttempts) }),
    ...(startAt === undefined ? {} : { startAt: checkTime(startAt, '--start-at') }),
    ...(endAt === undefined ? {} : { endAt: checkTime(endAt, '--end-at') }),
    ...(paused === undefined ? {} : { paused }),
  };
  const made = await createSchedules(context.schema).schedule(await context.migratedPool(), asked);
  if (context.json) return void printJson(made);
  const when =
    made.nextRunAt === null ? 'has ended' : `fires next at ${shown(made.nextRunAt, made.timeZone)}`;
  print(
    `${made.created ? 'Created' : 'Changed'}: ${made.name} ${when}${made.paused ? ', once resumed' : ''}.`,
  );
}

function changing(act: 'pauseSchedule' | 'resumeSchedule', done: string) {
  return async (context: Context, name: string): Promise<undefined> => {
    const schedules: Schedules = createSchedules(context.schema);
    const changed = await schedules[act](await context.migratedPool(), checkName(name));
    if (changed === null) throw missing(name);
    if (context.json) return void printJson(changed);
    const when = changed.nextRunAt === null ? 'ended' : shown(changed.nextRunAt, changed.timeZone);
    print(`${done}: ${changed.name}; next slot: ${when}.`);
  };
}

async function trigger(context: Context, name: string): Promise<undefined> {
  const pool = await context.migratedPool();
  const job = await createSchedules(context.schema).triggerSchedule(pool, checkName(name));
  if (job === null) throw missing(name);
  if (context.json) printJson({ job });
  else print(`Job ${job}. Look at it: unbroker jobs show ${job}`);
}

async function remove(context: Context, name: string): Promise<undefined> {
  const removed = await createSchedules(context.schema).unschedule(
    await context.migratedPool(),
    checkName(name),
  );
  if (!removed) throw missing(name);
  if (context.json) printJson({ deleted: name });
  else print('Deleted. Jobs that it fired stay.');
}

async function next(context: Context, name: string | undefined, options: NextOptions): Promise<undefined> {
  const count = wholeOption(options.count, '--count', 1, 1_000);
  if ((name === undefined) === (options.cron === undefined)) {
    throw invalid('schedules next', 'given the name of a schedule, or --cron');
  }
  let slots: readonly Date[];
  let timeZone = options.timeZone;
  if (options.cron !== undefined) {
    const fromMs = options.from === undefined ? Date.now() : checkTime(options.from, '--from').getTime();
    const rule = parseRule(options.cron, timeZone);
    slots = slotsAfter(rule, fromMs, count, null).map((ms) => new Date(ms));
    if (slots.length === 0) throw never(`in ${SCHEDULE_LIMITS.horizonYears} years`);
  } else {
    const pool = await context.migratedPool();
    const schedules = createSchedules(context.schema);
    const found = await schedules.findSchedule(pool, checkName(name ?? ''));
    if (found === null) throw missing(name ?? '');
    timeZone = found.timeZone;
    slots = (await schedules.nextRuns(pool, found.name, count)) ?? [];
  }
  if (context.json) return void printJson({ timeZone, next: slots });
  const rows = slots.map((slot) => [local(slot, timeZone), slot]);
  print(table([timeZone, 'UTC'], rows));
  if (slots.length === 0) print('No slot is left.');
}

const shown = (at: Date, timeZone: string): string =>
  `${at.toISOString()} (${local(at, timeZone)} ${timeZone})`;

/** `Sun 2025-03-09 03:00:00`. */
function local(at: Date, timeZone: string): string {
  const day = at.toLocaleDateString('en-GB', { timeZone, weekday: 'short' });
  return `${day} ${at.toLocaleString('sv-SE', { timeZone })}`;
}

function missing(name: string): UnbrokerError {
  return new UnbrokerError('schedule-missing', `There is no schedule ${name.slice(0, 200)}`, {
    hint: 'Run: unbroker schedules list',
    exitStatus: EXIT.badInput,
  });
}

function checkName(name: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is refused
  if (name.length >= 1 && name.length <= 200 && !/[\u0000-\u001f\u007f]/.test(name) && name.isWellFormed())
    return name;
  throw invalid('The name', '1 to 200 characters without control characters');
}

function checkKind(kind: string): string {
  if (kind.length >= 1 && kind.length <= LIMITS.kindLength && kind.isWellFormed() && !kind.includes('\u0000'))
    return kind;
  throw invalid('--kind', `1 to ${LIMITS.kindLength} characters`);
}

/** With a zone: a time without one means something else on each machine. */
function checkTime(text: string, name: string): Date {
  const at = new Date(text);
  const written = /^(\d{4}-\d{2}-\d{2})T\d{2}:\d{2}(:\d{2}(\.\d{1,3})?)?(Z|[+-]\d{2}:\d{2})$/.exec(text);
  // Date reads the 30th of February as the 2nd of March.
  const day = new Date(`${written?.[1]}T00:00:00Z`);
  const real = Number.isFinite(day.getTime()) && day.toISOString().startsWith(written?.[1] ?? ' ');
  if (real && Number.isFinite(at.getTime())) return at;
  throw invalid(name, 'a time with its zone, as 2030-01-31T09:00:00Z or 2030-01-31T09:00:00+01:00');
}

/** Not an argument: arguments are seen by everybody on the machine. */
function readPayload(file: string): string {
  let text: string;
  try {
    text = readBounded(file, LIMITS.payloadBytes);
  } catch (error) {
    const { code } = error as { code?: string };
    const what = code === 'EFBIG' ? `at most ${LIMITS.payloadBytes} bytes` : 'a file that can be read';
    throw invalid('--payload-file', what);
  }
  try {
    return readJson(text).raw;
  } catch (error) {
    if (error instanceof JsonError) throw invalid('--payload-file', `JSON (${error.message})`);
    throw error;
  }
}
