#!/usr/bin/env node
/**
 * The composition root of the command line: it knows every verb, nobody knows it. Heavy parts (the codemods' compiler,
 * the HTTP server, the broker client) are loaded by the verb that needs them.
 */
import { readFileSync } from 'node:fs';
import { Command, CommanderError } from 'commander';
import { EXIT, UnbrokerError } from '../errors.js';
import { bridgeCommand } from './bridge.js';
import { codemodCommand } from './codemod.js';
import { doctorCommand } from './doctor.js';
import { drainCommand } from './drain.js';
import { report, uncaught } from './failure.js';
import { jobsCommand } from './jobs.js';
import { migrateCommand } from './migrate.js';
import { holdsPassword } from './printable.js';
import { rolesCommand } from './roles.js';
import { schedulesCommand } from './schedules.js';
import { seamCommand } from './seam.js';
import { serveCommand } from './serve.js';
import { shimsCommand } from './shims.js';
import { suppressionsCommand } from './suppressions.js';
import { templatesCommand } from './templates.js';
import { workCommand } from './work.js';

const version = (): string => {
  const path = ['../../package.json', '../../../package.json'].map((p) => new URL(p, import.meta.url));
  for (const url of path) {
    try {
      const found = JSON.parse(readFileSync(url, 'utf8')) as { name?: string; version?: string };
      if (found.name === 'unbroker') return found.version ?? 'unknown';
    } catch {
      // The other place.
    }
  }
  return 'unknown';
};

/** Options that every verb takes. */
function withGlobals(command: Command): Command {
  for (const leaf of leaves(command)) {
    leaf
      .option('--config <file>', 'config file (default: unbroker.config.ts in the working directory)')
      .option('--schema <name>', 'schema of the jobs table (default: unbroker)')
      .option('--json', 'answer with one JSON object as the last line');
  }
  return command;
}

function leaves(command: Command): Command[] {
  return command.commands.length === 0 ? [command] : command.commands.flatMap(leaves);
}

/** The command whose arguments were wrong: its help is the one to read. */
let misused = 'unbroker';

function silenceErrors(command: Command, path: string): void {
  command.configureOutput({ outputError: () => undefined }).exitOverride((error) => {
    misused = path;
    throw error;
  });
  for (const child of command.commands) silenceErrors(child, `${path} ${child.name()}`);
}

const program = new Command('unbroker')
  .description(
    'Move off RabbitMQ and three job services onto one Postgres jobs table, without losing a message.',
  )
  .version(version())
  .addHelpText(
    'after',
    '\nEnvironment: DATABASE_URL, AMQP_URL, RABBITMQ_MANAGEMENT_URL, UNBROKER_LOG_LEVEL.\n' +
      'Exit status: 0 fine, 1 failed, 2 bad input, 3 books do not balance, 130 interrupted.',
  );

const verbs = [
  migrateCommand(),
  rolesCommand(),
  workCommand(),
  jobsCommand(),
  schedulesCommand(),
  doctorCommand(),
  drainCommand(),
  bridgeCommand(),
  seamCommand(),
  serveCommand(),
  shimsCommand(),
  templatesCommand(),
  suppressionsCommand(),
  codemodCommand(),
];
for (const command of verbs) program.addCommand(withGlobals(command));
silenceErrors(program, misused);

// `unbroker jobs list | head`: whoever read has enough.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit();
  process.exit(report(unwritten(error)));
});
// There is no place left to say so; the exit status still does.
process.stderr.on('error', () => undefined);
process.on('uncaughtException', (error) => process.exit(report(uncaught(error))));

try {
  refuseSecrets(process.argv.slice(2));
  await program.parseAsync();
} catch (error) {
  process.exitCode = error instanceof CommanderError ? reportUsage(error) : report(error);
}

function refuseSecrets(args: readonly string[]): void {
  if (!args.some(holdsPassword)) return;
  throw new UnbrokerError('secret-in-arguments', 'An argument holds a URL with a password', {
    hint: 'Every user of the machine can read it there: set DATABASE_URL or AMQP_URL instead, and change the password.',
    exitStatus: EXIT.badInput,
  });
}

function unwritten(cause: NodeJS.ErrnoException): UnbrokerError {
  return new UnbrokerError('answer-unwritten', `The answer cannot be written (${cause.code ?? 'no code'})`, {
    hint: 'Free space where it goes. What the command did stays done.',
    cause,
  });
}

/** Help and version are answers; everything else of the parser's is bad input. */
function reportUsage(error: CommanderError): number {
  const asked = ['commander.helpDisplayed', 'commander.version', 'commander.help'].includes(error.code);
  if (asked) return error.exitCode === 0 ? EXIT.ok : EXIT.badInput;
  const what = error.message
    .replace(/^error: /, '')
    .replace(/\s*\n\s*/g, ' ')
    .replace(/[.\s]+$/, '');
  return report(
    new UnbrokerError('usage', what, { hint: `Run: ${misused} --help`, exitStatus: EXIT.badInput }),
  );
}
