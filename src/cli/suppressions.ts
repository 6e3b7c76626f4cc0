/** `unbroker suppressions …`: who gets nothing any more, put on the list and taken off it. */
import { Command } from 'commander';
import { invalid, oneOf } from '../check.js';
import { EXIT } from '../errors.js';
import { CHANNELS, type Channel } from '../notify/message.js';
import { createSuppressions, SUPPRESSION_LIMITS } from '../notify/suppressions.js';
import { type Context, run } from './context.js';
import { actor } from './jobs-bulk.js';
import { print, printJson, table } from './output.js';
import { readBounded } from './read-bounded.js';
import { wholeOption } from './whole-option.js';

interface ListOptions {
  readonly channel?: string;
  readonly after?: string;
  readonly limit: string;
}

interface ChangeOptions {
  readonly channel: string;
  readonly file?: string;
  readonly reason?: string;
}

export function suppressionsCommand(): Command {
  const suppressions = new Command('suppressions').description(
    'recipients who get nothing: list, add, remove',
  );
  suppressions
    .command('list')
    .description('by channel and recipient')
    .option('--channel <channel>', CHANNELS.join(', '))
    .option('--after <recipient>', 'the page behind this one, with --channel')
    .option('--limit <n>', `1 to ${SUPPRESSION_LIMITS.page}`, '50')
    .action(run(list));
  for (const [name, what] of [
    ['add', 'put recipients on the list'],
    ['remove', 'take recipients off the list'],
  ] as const) {
    const command = suppressions
      .command(name)
      .description(what)
      .argument('[recipient...]')
      .option('--channel <channel>', CHANNELS.join(', '), 'email')
      .option('--file <file>', 'one recipient a line; - reads standard input');
    if (name === 'add') command.option('--reason <text>', 'as complaint, bounce, asked for');
    command.action(
      run((context: Context, given: readonly string[], options: ChangeOptions) =>
        change(context, name, given, options),
      ),
    );
  }
  return suppressions;
}

const channelOf = (text: string): Channel => oneOf(...CHANNELS)(text, '--channel') as Channel;

async function list(context: Context, { channel, after, limit }: ListOptions): Promise<undefined> {
  const count = wholeOption(limit, '--limit', 1, SUPPRESSION_LIMITS.page);
  const of = channel === undefined ? undefined : channelOf(channel);
  if (after !== undefined && of === undefined) throw invalid('--after', 'given with --channel');
  const behind = after === undefined || of === undefined ? {} : { after: { channel: of, recipient: after } };
  const pool = await context.migratedPool();
  const found = await createSuppressions(context.schema).list(pool, {
    ...(of === undefined ? {} : { channel: of }),
    ...behind,
    limit: count,
  });
  if (context.json) printJson({ suppressions: found });
  else {
    const rows = found.map(({ recipient, reason, createdAt, ...one }) => [
      one.channel,
      recipient,
      reason ?? '',
      createdAt,
    ]);
    print(table(['channel', 'recipient', 'reason', 'since'], rows));
  }
}

async function change(
  context: Context,
  act: 'add' | 'remove',
  given: readonly string[],
  { channel, file, reason }: ChangeOptions,
): Promise<number> {
  const of = channelOf(channel);
  const recipients = [...given, ...(file === undefined ? [] : linesOf(file))];
  const { recipients: max, reasonLength } = SUPPRESSION_LIMITS;
  if (recipients.length === 0 || recipients.length > max)
    throw invalid('recipient', `given: 1 to ${max}, as arguments or by --file`);
  if (reason !== undefined && (reason === '' || reason.length > reasonLength || reason.includes('\0')))
    throw invalid('--reason', `1 to ${reasonLength} characters`);
  const suppressions = createSuppressions(context.schema);
  const pool = await context.migratedPool();
  const changed =
    act === 'add'
      ? await suppressions.add(pool, of, recipients, reason ?? null, actor())
      : await suppressions.remove(pool, of, recipients, actor());
  const count = changed.length;
  if (context.json) printJson({ channel: of, [act === 'add' ? 'added' : 'removed']: changed });
  else if (act === 'add') print(`${count} put on the list; ${recipients.length - count} were on it already.`);
  else print(`${count} taken off the list; ${recipients.length - count} were not on it.`);
  return EXIT.ok;
}

const MAX_FILE_BYTES = 16_777_216;

function linesOf(file: string): string[] {
  let content: string;
  try {
    content = readBounded(file, MAX_FILE_BYTES);
  } catch {
    throw invalid(
      '--file',
      `a file of at most ${MAX_FILE_BYTES} bytes that can be read, or - for standard input`,
    );
  }
  return content
    .split(/\r?\n/)
    .map((line) => line.trim())
    .filter((line) => line !== '');
}
