/** `unbroker shims …`: record what the old service says, and see whether a shim says the same. */
import { Command } from 'commander';
import { arrayOf, integer, object, string } from '../check.js';
import { EXIT, UnbrokerError } from '../errors.js';
import type { Declared } from '../shims/transcript/compare.js';
import { readTranscript } from '../shims/transcript/exchange.js';
import { startRecorder } from '../shims/transcript/record.js';
import { replay } from '../shims/transcript/replay.js';
import { type Context, printable, run } from './context.js';
import { hearEnd } from './end-signals.js';
import { cannotListen, portOf } from './metrics.js';
import { print, printJson } from './output.js';
import { readBounded } from './read-bounded.js';

interface RecordOptions {
  readonly target: string;
  readonly file: string;
  readonly port?: string;
  readonly host?: string;
}

interface ReplayOptions {
  readonly url: string;
  readonly differences?: string;
  readonly keyEnv?: string;
}

export function shimsCommand(): Command {
  const shims = new Command('shims').description('record an old service, replay it against a shim');
  shims
    .command('record')
    .description('a proxy before the old service that writes what goes through')
    .requiredOption('--target <url>', 'base URL of the old service')
    .requiredOption(
      '--file <file>',
      'the transcript; appended to. It holds bodies: keep it as you keep those',
    )
    .option('--port <n>', 'port to listen on; 0 takes any free one (default)')
    .option('--host <address>', 'address to listen on (default 127.0.0.1)')
    .action(run(record));
  shims
    .command('replay')
    .description('send a transcript to a shim and compare; exit 3 for a difference that is not declared')
    .argument('<file>')
    .requiredOption('--url <url>', 'base URL of the shim')
    .option('--differences <file>', 'JSON list of {request, at, status?, reason}: differences on purpose')
    .option('--key-env <name>', 'environment variable with the API key to send')
    .action(run(replayFile));
  return shims;
}

async function record(context: Context, { target, file, port, host }: RecordOptions): Promise<number> {
  if (!URL.canParse(target) || !/^https?:$/.test(new URL(target).protocol))
    throw bad('config-invalid', '--target is not valid', 'It must be an http or https URL.');
  const recorder = await startRecorder({
    target,
    file,
    ...(host === undefined ? {} : { host }),
    port: port === undefined ? 0 : portOf(port, '--port'),
  }).catch((error: unknown) => {
    const { syscall, code } = error as { syscall?: string; code?: string };
    if (syscall !== 'open') throw cannotListen(error);
    throw bad(
      'out-unwritable',
      `The file given with --file cannot be written (${code})`,
      'Name a file in a folder that you may write.',
    );
  });
  if (context.json) printJson({ url: recorder.url });
  else print(`unbroker records on ${recorder.url}`);
  await new Promise<void>((resolve) => {
    const hearNoMore = hearEnd(() => {
      hearNoMore();
      resolve();
    });
  });
  const { count } = recorder;
  await recorder.close();
  if (context.json) printJson({ recorded: count });
  else print(`${count} exchanges were recorded.`);
  return EXIT.ok;
}

async function replayFile(context: Context, file: string, options: ReplayOptions): Promise<number> {
  const declared = options.differences === undefined ? [] : readDeclared(options.differences);
  const key = options.keyEnv === undefined ? undefined : process.env[options.keyEnv];
  if (options.keyEnv !== undefined && (key ?? '') === '')
    throw bad('key-missing', 'The API key to send is not set', `Set ${options.keyEnv}.`);
  const result = await replay(readTranscript(read(file)), { url: options.url, declared, key });
  const { exchanges, undeclared, meant, unused } = result;
  if (context.json) printJson(result);
  else {
    for (const { line, request, at, was, is } of undeclared)
      print(printable(`line ${line}: ${request}: ${at}: was ${was}, is ${is}`));
    for (const { request, at } of unused) print(printable(`declared, and not found: ${request}: ${at}`));
    const known = meant.reduce((sum, { count }) => sum + count, 0);
    print(
      `${exchanges} exchanges, ${undeclared.length} differences that are not declared, ${known} that are.`,
    );
  }
  return undeclared.length === 0 ? EXIT.ok : EXIT.unbalanced;
}

const checkDeclared = arrayOf(
  object(
    {
      request: string({ maxLength: 500 }),
      at: string({ maxLength: 500 }),
      status: integer(100, 599),
      reason: string(),
    },
    ['request', 'at', 'reason'],
  ),
);

function readDeclared(file: string): readonly Declared[] {
  let value: unknown;
  try {
    value = JSON.parse(read(file));
  } catch (error) {
    if (error instanceof UnbrokerError) throw error;
    throw bad(
      'transcript-unreadable',
      'The list of differences is no JSON',
      'Write a list of {request, at, reason}.',
    );
  }
  return checkDeclared(value, 'differences') as readonly Declared[];
}

const MAX_TRANSCRIPT_BYTES = 268_435_456;

function read(file: string): string {
  try {
    return readBounded(file, MAX_TRANSCRIPT_BYTES);
  } catch (error) {
    const { code = 'unreadable' } = error as { code?: string };
    throw bad('transcript-unreadable', `A file cannot be read (${code})`, 'Check its name.');
  }
}

function bad(code: string, message: string, hint: string): UnbrokerError {
  return new UnbrokerError(code, message, { hint, exitStatus: EXIT.badInput });
}
