/** `unbroker seam`: counts what the seam between a commit and its message has lost, by the rules of the config. */
import { Command } from 'commander';
import { runSeamRule, type SeamFinding } from '../cutover/seam.js';
import { EXIT, UnbrokerError } from '../errors.js';
import { type Context, run } from './context.js';
import { print, printJson, table } from './output.js';
import { wholeOption } from './whole-option.js';

interface SeamOptions {
  readonly rule?: string;
  readonly limit: string;
}

export function seamCommand(): Command {
  return new Command('seam')
    .description('find committed business rows whose job or message never came to be')
    .option('--rule <name>', 'only this rule')
    .option('--limit <n>', 'keys listed per finding, 1 to 10000', '20')
    .action(run(seam));
}

/** Exit 3 when rows are missing: the books do not balance. */
async function seam(context: Context, options: SeamOptions): Promise<number> {
  const rules = selectRules(context, options.rule);
  const limit = wholeOption(options.limit, '--limit', 1, 10_000);
  const client = await context.pool().connect();
  const findings: SeamFinding[] = [];
  try {
    for (const rule of rules) {
      findings.push(await runSeamRule(client, rule, { schema: context.schema, limit }));
    }
  } finally {
    client.release();
  }
  if (context.json) printJson({ findings });
  else printFindings(findings);
  return findings.some((finding) => finding.missing > 0) ? EXIT.unbalanced : EXIT.ok;
}

function selectRules(context: Context, name: string | undefined) {
  const rules = context.config.seam?.rules ?? [];
  const selected = name === undefined ? rules : rules.filter((rule) => rule.name === name);
  if (selected.length > 0) return selected;
  throw new UnbrokerError(
    'seam-rules-missing',
    name === undefined ? 'The config has no seam rule' : 'The config has no seam rule of that name',
    {
      hint: 'Add one under seam.rules; docs/do/seam.md shows how.',
      exitStatus: EXIT.badInput,
    },
  );
}

function printFindings(findings: readonly SeamFinding[]): void {
  const rows = findings.map((f) => [f.rule, f.judged, f.missing, f.doubled, f.ghosts]);
  print(table(['rule', 'rows judged', 'missing', 'doubled', 'ghosts'], rows));
  for (const f of findings) {
    for (const [name, count, keys] of [
      ['missing', f.missing, f.missingKeys],
      ['doubled', f.doubled, f.doubledKeys],
      ['ghosts', f.ghosts, f.ghostKeys],
    ] as const) {
      if (count > 0)
        print(
          `${f.rule}, ${name}: ${keys.join(', ')}${count > keys.length ? ` and ${count - keys.length} more` : ''}`,
        );
    }
  }
}
