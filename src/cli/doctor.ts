/** `unbroker doctor`: is the database as the jobs table needs it? Exit 1 when something is bad. */
import { Command } from 'commander';
import { parseDuration } from '../check.js';
import { examine, type Finding } from '../doctor/index.js';
import { EXIT } from '../errors.js';
import { type Context, printable, run } from './context.js';
import { print, printJson, table } from './output.js';

interface DoctorOptions {
  readonly queries?: boolean;
  readonly maxLag: string;
}

export function doctorCommand(): Command {
  return new Command('doctor')
    .description('look at the database as the jobs table needs it; exit 1 when something is bad')
    .option('--queries', 'show what the oldest transactions run (the text may hold data)')
    .option('--max-lag <duration>', 'a job due for longer is bad, a tenth of it a warning', '10m')
    .action(run(doctor));
}

async function doctor(context: Context, options: DoctorOptions): Promise<number> {
  const maxLagMs = parseDuration(options.maxLag, '--max-lag', 1_000, 30 * 86_400_000);
  const client = await context.pool(1).connect();
  let findings: Finding[];
  try {
    findings = await examine(client, {
      schema: context.schema,
      maxLagMs,
      queries: options.queries === true,
    });
  } finally {
    client.release();
  }
  const bad = findings.filter(({ status }) => status === 'bad').length;
  const warn = findings.filter(({ status }) => status === 'warn').length;
  if (context.json) printJson({ status: bad > 0 ? 'bad' : warn > 0 ? 'warn' : 'ok', findings });
  else printFindings(findings, bad, warn);
  return bad > 0 ? EXIT.failed : EXIT.ok;
}

function printFindings(findings: readonly Finding[], bad: number, warn: number): void {
  print(
    table(
      ['check', 'status', 'found'],
      findings.map((f) => [f.check, f.status, f.found]),
    ),
  );
  for (const { check, next, found } of findings.filter((f) => f.next !== null))
    print(`${check}: ${printable(found)}\n  → ${printable(next as string)}`);
  const queries = findings.flatMap(({ check, details }) => (check === 'horizon' ? details : []));
  for (const { pid, query } of queries as { pid: number; query: string | null }[])
    if (query !== null) print(`pid ${pid}: ${printable(query)}`);
  print(`${bad} bad, ${warn} to look at, ${findings.length - bad - warn} ok.`);
}
