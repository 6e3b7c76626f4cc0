/**
 * `unbroker codemod scan`, `apply` and `check`: finds publishes after a commit in a caller's repository and turns them into
 * enqueues inside the transaction. The repository is read, never run: no config file of it is loaded here.
 */
import { realpathSync, statSync } from 'node:fs';
import { relative, resolve, sep } from 'node:path';
import { Command, Option } from 'commander';
import type { Plan, PlanOptions } from '../../codemods/index.js';
import { EXIT, UnbrokerError } from '../errors.js';
import { askOnTerminal, checkTerminal } from './codemod-ask.js';
import { type CheckOptions, checkRatchet } from './codemod-check.js';
import { stepLine } from './codemod-progress.js';
import { printable, report } from './context.js';
import { print, printJson } from './output.js';
import { signalsHeld } from './signals-held.js';

interface CommonOptions {
  readonly level: 'safe' | 'wrap' | 'thread';
  readonly inlineSql?: boolean;
  readonly types: boolean;
  readonly target: 'kind' | 'relay';
  readonly root?: string;
  readonly kinds?: string;
  readonly useKinds?: boolean;
  readonly maxFiles?: string;
  readonly json?: boolean;
}

interface ScanOptions extends CommonOptions {
  readonly diff?: boolean;
  readonly markdown?: boolean;
  readonly sarif?: boolean;
}

interface ApplyOptions extends CommonOptions {
  readonly write?: boolean;
  readonly allowDirty?: boolean;
  readonly todo?: boolean;
  readonly interactive?: boolean;
}

export function codemodCommand(): Command {
  const command = new Command('codemod').description(
    'turn publish-after-commit into an enqueue inside the transaction',
  );
  command.addCommand(
    common(
      new Command('scan').description(
        'report every publish, what it would become, and why others are left alone',
      ),
    )
      .addOption(new Option('--diff', 'print only the edits, as a unified diff').conflicts('markdown'))
      .option('--markdown', 'print the report for a pull request')
      .addOption(
        new Option('--sarif', 'print the report for code scanning (SARIF 2.1.0)').conflicts([
          'diff',
          'markdown',
          'json',
        ]),
      )
      .action(guarded(scan)),
  );
  command.addCommand(
    common(new Command('apply').description('print the edits; with --write make them'))
      .option('--write', 'edit the files; needs a clean git tree')
      .option('--allow-dirty', 'write although something is uncommitted')
      .option('--interactive', 'ask about each publish: yes, no, all the rest, quit')
      .option('--todo', 'leave one comment at each publish that is left alone')
      .action(guarded(apply)),
  );
  command.addCommand(
    common(
      new Command('check').description('fail when a publish beside a commit appears that is not known yet'),
    )
      .requiredOption('--ratchet <file>', 'the file of known publishes')
      .option('--update', 'write the file anew, with what is there now')
      .action(guarded(check)),
  );
  return command;
}

function common(command: Command): Command {
  return command
    .argument('[paths...]', 'files or directories to report and edit; the whole repository is read')
    .addOption(
      new Option(
        '--level <level>',
        'safe: a transaction is there; wrap: also make one around autocommitted writes; thread: also hand one on to other functions',
      )
        .choices(['safe', 'wrap', 'thread'])
        .default('safe'),
    )
    .option('--root <directory>', 'the repository (default: the working directory)')
    .option('--inline-sql', 'call the SQL function through the handle instead of importing unbroker/enqueue')
    .addOption(
      new Option('--target <target>', 'kind: a worker handles the kind; relay: a worker repeats the publish')
        .choices(['kind', 'relay'])
        .default('kind'),
    )
    .option(
      '--kinds <file>',
      'also make a registry of the kinds and their payloads: a .ts, .js or .d.ts file',
    )
    .option('--use-kinds', 'enqueue with the kinds of that file in place of their names')
    .option('--max-files <n>', 'source files that the repository may have (default: 20000)')
    .option('--no-types', 'do not look into installed packages: faster, less sure');
}

/** Errors become one line and an exit status, as in every verb. */
function guarded<Options>(action: (paths: string[], options: Options) => Promise<void>) {
  return async (paths: string[], _options: unknown, command: Command): Promise<void> => {
    try {
      process.exitCode = EXIT.ok;
      await action(paths, command.optsWithGlobals<Options & CommonOptions>());
    } catch (error) {
      process.exitCode = report(error);
    }
  };
}

async function scan(paths: string[], options: ScanOptions): Promise<void> {
  const codemods = await import('../../codemods/index.js');
  const plan = watched(options, paths, false, codemods.makePlan);
  if (options.diff) printDiff(codemods.renderDiff(plan.changes));
  else if (options.markdown) printLines(codemods.renderMarkdown(plan));
  else if (options.sarif) print(JSON.stringify(codemods.renderSarif(plan), null, 2));
  else if (!options.json) printLines(codemods.renderText(plan));
  if (options.json) printJson(codemods.renderJson(plan));
}

async function check(paths: string[], options: CommonOptions & CheckOptions): Promise<void> {
  const codemods = await import('../../codemods/index.js');
  await checkRatchet(() => watched(options, paths, false, codemods.makePlan), options);
}

async function apply(paths: string[], options: ApplyOptions): Promise<void> {
  // Before the repository is read, which takes its time.
  if (options.interactive) checkTerminal();
  const codemods = await import('../../codemods/index.js');
  const allowDirty = options.allowDirty === true;
  codemods.checkApply(planOptions(paths, options, false), options.write ? { allowDirty } : undefined);
  const prepared = watched(options, paths, options.todo === true, codemods.preparePlan);
  let { plan } = prepared;
  if (plan.kinds?.state === 'edited') throw codemods.editedKinds(plan.kinds.path);
  if (options.interactive) {
    const chosen = await askOnTerminal(plan.sites.filter((site) => site.applied));
    plan = prepared.choose((site) => chosen.has(site.fingerprint));
  }
  const written = options.write ? signalsHeld(() => codemods.applyPlan(plan, { allowDirty })) : null;
  if (options.json)
    return printJson({
      ...codemods.renderJson(plan),
      written: written?.written ?? [],
      reversePatch: written?.reversePatch ?? null,
    });
  printDiff(codemods.renderDiff(plan.changes));
  for (const line of outcome(plan, written?.reversePatch ?? null, options.write === true))
    process.stderr.write(`${printable(line)}\n`);
}

function outcome(plan: Plan, reversePatch: string | null, wrote: boolean): string[] {
  const applied = plan.sites.filter((s) => s.applied).length;
  const made = plan.changes.filter((c) => !plan.kinds?.files.includes(c.path)).length;
  const files = `${made} ${made === 1 ? 'file' : 'files'}`;
  const left =
    plan.counts.refused > 0 ? `; ${plan.counts.refused} left alone (unbroker codemod scan says why)` : '';
  const lines = [
    `${applied} ${applied === 1 ? 'publish' : 'publishes'} in ${files} ${wrote ? 'rewritten' : 'would be rewritten'}${left}.`,
  ];
  for (const skipped of plan.skipped)
    lines.push(`Not looked at: ${skipped.path}: ${skipped.reason} (${skipped.detail}).`);
  for (const { path, leftovers } of plan.changes) {
    if (leftovers.length > 0)
      lines.push(`Left over: ${path}: ${leftovers.join(', ')}: nothing reads it any more.`);
  }
  if (reversePatch !== null) lines.push(`To take it back: git apply ${reversePatch}`);
  if (plan.kinds !== null) lines.push(kindsLine(plan.kinds, wrote));
  if (!wrote && plan.changes.length > 0) lines.push('Nothing was written: add --write.');
  return lines;
}

function kindsLine({ path, state, entries }: NonNullable<Plan['kinds']>, wrote: boolean): string {
  const kinds = `${entries.length} ${entries.length === 1 ? 'kind' : 'kinds'}`;
  const unknown = entries.filter((e) => e.unknown).length;
  const said = state === 'same' ? 'is up to date' : wrote ? 'was written' : 'would be written';
  return `${path} ${said}: ${kinds}, ${unknown} with something unknown in the payload.`;
}

/** A plan, and meanwhile what it is at. */
function watched<Made>(
  options: CommonOptions,
  paths: readonly string[],
  todo: boolean,
  make: (options: PlanOptions) => Made,
): Made {
  const line = stepLine((text) => process.stderr.write(text), process.stderr.isTTY === true);
  try {
    return make({ ...planOptions(paths, options, todo), progress: line.step });
  } finally {
    line.end();
  }
}

function planOptions(paths: readonly string[], options: CommonOptions, todo: boolean): PlanOptions {
  const root = options.root ?? rootFor(paths);
  checkKinds(options);
  return {
    root,
    paths: paths.map((path) => resolve(path)).filter((path) => path !== resolve(root)),
    level: options.level,
    inlineSql: options.inlineSql === true,
    target: options.target,
    todo,
    types: options.types,
    ...(options.maxFiles === undefined ? {} : { maxFiles: fileLimit(options.maxFiles) }),
    ...(options.kinds === undefined
      ? {}
      : { kinds: { path: options.kinds, use: options.useKinds === true } }),
  };
}

function fileLimit(text: string): number {
  const limit = /^\d{1,7}$/.test(text) ? Number(text) : 0;
  if (limit > 0) return limit;
  throw new UnbrokerError('max-files-invalid', `${printable(text)} is no number of files`, {
    hint: 'Give --max-files a whole number from 1 to 9999999',
    exitStatus: EXIT.badInput,
  });
}

function checkKinds(options: CommonOptions): void {
  const given = (why: string, hint: string): never => {
    throw new UnbrokerError('kinds-path-invalid', why, { hint, exitStatus: EXIT.badInput });
  };
  if (options.useKinds && options.kinds === undefined)
    given('--use-kinds needs the file of the kinds', 'Add --kinds unbroker.kinds.ts');
  if (options.useKinds && options.inlineSql)
    given('--inline-sql imports nothing, so it cannot use kinds', 'Leave --use-kinds out');
  if (options.kinds !== undefined && options.target === 'relay')
    given('--target relay enqueues one kind, relay.amqp', 'Leave --kinds out until the kinds have workers');
}

/** The working directory, unless one directory elsewhere is named: then that is the repository. */
function rootFor(paths: readonly string[]): string {
  const cwd = realpathSync(process.cwd());
  const [only] = paths;
  if (
    only === undefined ||
    paths.length > 1 ||
    !(statSync(only, { throwIfNoEntry: false })?.isDirectory() ?? false)
  )
    return cwd;
  const real = realpathSync(only);
  const inside = relative(cwd, real);
  return inside === '..' || inside.startsWith(`..${sep}`) ? real : cwd;
}

function printLines(text: string): void {
  print(text.split('\n').map(printable).join('\n'));
}

/** Byte for byte into a pipe, so that git apply takes it; harmless on a terminal. */
function printDiff(diff: string): void {
  if (diff === '') return;
  if (process.stdout.isTTY) printLines(diff.trimEnd());
  else process.stdout.write(diff);
}
