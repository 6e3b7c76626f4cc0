/**
 * `unbroker drain …`: look at what is on the broker, and import it. The broker client is loaded by whoever asks for one
 * of these verbs.
 */
import { Command } from 'commander';
import { run } from './context.js';
import type { FreezeCommandOptions, ThawCommandOptions } from './drain-freeze.js';
import type { PlanCommandOptions } from './drain-plan.js';
import type { RunOptions } from './drain-run.js';
import type { UndoCommandOptions } from './drain-undo.js';
import type { VerifyCommandOptions } from './drain-verify.js';

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
    .option(
      '--delayed <choice>',
      'what delayed-message exchanges hold (needs RABBITMQCTL): leave, import it first, or release what an import held',
      'leave',
    )
    .action(
      run(async (context, options: RunOptions) =>
        (await import('./drain-run.js')).runDrain(context, options),
      ),
    );
  drain
    .command('plan')
    .description('which rows the messages at the head of each queue would become; changes nothing')
    .option('--group <name...>', 'only these groups, as survey names them (default: all)')
    .option('--sample <n>', 'messages of each queue', '10')
    .option('--show-payload', 'print the beginning of each payload, too')
    .action(
      run(async (context, options: PlanCommandOptions) =>
        (await import('./drain-plan.js')).planDrain(context, options),
      ),
    );
  drain
    .command('freeze')
    .description(
      'stop publishers without losing a message; each step verified, written down, taken back by thaw',
    )
    .option('--group <name...>', 'only these groups, as survey names them (default: all)')
    .option('--revoke <user...>', 'take the write permission from these users')
    .option('--close', 'close the connections that publish')
    .action(
      run(async (context, options: FreezeCommandOptions) =>
        (await import('./drain-freeze.js')).freezeDrain(context, options),
      ),
    );
  drain
    .command('thaw')
    .description('take back what freeze changed, also after a crash')
    .option('--group <name...>', 'only the policies of these groups (default: everything)')
    .action(
      run(async (context, options: ThawCommandOptions) =>
        (await import('./drain-freeze.js')).thawDrain(context, options),
      ),
    );
  drain
    .command('verify')
    .description('reckon the books again from ledger, jobs and queues; exit 3 if anything differs')
    .option('--group <name...>', 'only these groups (default: all that were drained)')
    .option('--out <file>', 'keep the books as JSON')
    .action(
      run(async (context, options: VerifyCommandOptions) =>
        (await import('./drain-verify.js')).verifyDrain(context, options),
      ),
    );
  drain
    .command('undo')
    .description('the way back: jobs that nobody has touched return to their queues; resumable')
    .option('--group <name...>', 'only these groups (default: all that were drained)')
    .option('--kind <kind...>', 'only jobs of these kinds')
    .option(
      '--delayed <choice>',
      'jobs not due yet: return (with what is left of the delay) or keep',
      'return',
    )
    .option('--via <choice>', 'own: messages keep their routing key; default: the default exchange', 'own')
    .option('--rate <n>', 'messages per second at most')
    .option('--when-ambiguous <choice>', 'stop, resend (doubles at worst) or assume (gaps at worst)', 'stop')
    .option('--dry-run', 'count and read, publish and write nothing')
    .action(
      run(async (context, options: UndoCommandOptions) =>
        (await import('./drain-undo.js')).undoDrain(context, options),
      ),
    );
  return drain;
}
