/**
 * `unbroker drain …`: look at what is on the broker, and import it. The broker client is loaded by whoever asks for one
 * of these verbs.
 */
import { Command } from 'commander';
import { run } from './context.js';
import type { RunOptions } from './drain-run.js';

export function drainCommand(): Command {
  const drain = new Command('drain').description('take what is in flight on RabbitMQ into the jobs table');
  drain
    .command('survey')
    .description('every queue, what it is for, whether it can be drained; changes nothing')
    .action(run(async (context) => (await import('./drain-survey.js')).showSurvey(context)));
  drain
    .command('run')
    .description('import until empty: each message one row, resumable, exit 0 only if the books balance')
    .option('--group <name...>', 'only these groups, as survey names them (default: all)')
    .option('--rate <n>', 'messages per second at most')
    .option('--when-ambiguous <choice>', 'stop, keep (doubles at worst) or absorb (gaps at worst)', 'stop')
    .action(
      run(async (context, options: RunOptions) =>
        (await import('./drain-run.js')).runDrain(context, options),
      ),
    );
  return drain;
}
