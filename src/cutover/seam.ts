/**
 * Runs a seam rule: which committed business rows never got their job or message, which got two, which jobs have no
 * business row. Reads only, in one repeatable-read snapshot, with a limit on time. Run it on the primary: a replica
 * that lags would report losses that are none.
 */
import { UnbrokerError } from '../errors.js';
import type { Queryable } from '../jobs/job.js';
import { quoteSchema } from '../jobs/schema-name.js';
import { type SeamRule, seamQuery } from './seam-rules.js';

export interface SeamFinding {
  readonly rule: string;
  /** Business rows that the rule covers. */
  readonly judged: number;
  readonly missing: number;
  readonly doubled: number;
  readonly ghosts: number;
  /** The first keys of each, in text order. */
  readonly missingKeys: readonly string[];
  readonly doubledKeys: readonly string[];
  readonly ghostKeys: readonly string[];
}

export interface SeamOptions {
  readonly schema: string;
  /** Keys listed per finding. Default 20, at most 10,000. */
  readonly limit?: number;
  /** Default 60,000. */
  readonly maxMs?: number;
}

/** `client` is one connection: the transaction begins and ends here. Throws `seam-rule-failed`. */
export async function runSeamRule(
  client: Queryable,
  rule: SeamRule,
  options: SeamOptions,
): Promise<SeamFinding> {
  const query = seamQuery(rule, `${quoteSchema(options.schema)}.jobs`, Math.min(options.limit ?? 20, 10_000));
  await client.query('begin transaction isolation level repeatable read read only');
  try {
    await client.query(`set local statement_timeout = ${Math.round(options.maxMs ?? 60_000)}`);
    const { rows } = await client.query(query.text, [...query.values]);
    return { rule: rule.name, ...(rows[0] as Omit<SeamFinding, 'rule'>) };
  } catch (error) {
    throw ruleError(rule, error, options.schema);
  } finally {
    await client.query('rollback').catch(() => undefined);
  }
}

/** What the server says of a rule's SQL is about names and syntax, not about rows: it may be shown. */
function ruleError(rule: SeamRule, error: unknown, schema: string): unknown {
  const { code, message } = error as { code?: unknown; message?: unknown };
  if (typeof code !== 'string' || !/^(42|22|57014)/.test(code)) return error;
  const timedOut = code === '57014';
  const hasNoJobs = code === '42P01' && String(message).includes(`${schema}.jobs`);
  return new UnbrokerError(
    'seam-rule-failed',
    `Rule ${rule.name} cannot be run (${String(message).split('\n')[0]})`,
    {
      hint: timedOut
        ? 'Narrow it with where, or index the key columns.'
        : hasNoJobs
          ? 'Run: unbroker migrate, or leave the places with a kind out of its expects until then.'
          : 'Correct its source, key, since, where or expects in the config.',
      exitStatus: timedOut ? 1 : 2,
      cause: error,
    },
  );
}
