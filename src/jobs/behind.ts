/**
 * A schema that is older than this package, is not there or gives the role no rights: what a statement missed, which migration brings
 * it, in what order an upgrade goes, and who may do what. Told by SQLSTATE and by names of ours in the server's message, whose words are in any language. Pure.
 */
import { EXIT, UnbrokerError } from '../errors.js';
import { codeOf } from './sqlstate.js';

export const UPGRADE_HINT =
  'Run: unbroker migrate, then unbroker roles if you use them; start programs of this version after that (docs/do/work.md)';

/** What enqueues and workers call, by the migration that brought it in the form in which they call it. */
export const BROUGHT_BY: Readonly<Record<string, string>> = {
  jsonb_or_null: '002_functions',
  sleepers: '006_sleepers',
  kind_limits: '011_claim',
  promote: '011_claim',
  claim: '011_claim',
  claim_solo: '011_claim',
  enqueue_one: '015_enqueue_one',
  enqueue_plain: '018_checks',
  enqueue_many: '022_enqueue_many',
  enqueue_many_once: '022_enqueue_many',
  enqueue_once: '023_enqueue_once',
  finish: '024_finish_and_claim',
  finish_soon: '024_finish_and_claim',
  finish_and_claim: '024_finish_and_claim',
  late: '024_finish_and_claim',
  finish_one: '025_finish_one',
  enqueue_alike: '027_enqueue_alike',
  finish_each: '028_finish_each',
  remove_soon: '030_held_rows',
  count_ends: '031_claims',
  finish_batch: '031_claims',
  reap: '031_claims',
  claim_many: '035_claim_open',
  finish_of: '038_claim_in_place',
  remove_of: '038_claim_in_place',
  claim_lines: '042_claim_lines',
  remove_finished: '045_remove_finished',
};

/**
 * `enqueue_alike (migration 027_enqueue_alike)`; null when it is none of ours that the statement missed. Without a schema: of
 * whichever.
 */
export function missedBy(error: unknown, schema?: string): string | null {
  // Undefined function, table.
  if (!['42883', '42P01'].includes(codeOf(error)) || !(error instanceof Error)) return null;
  // A function is named as `schema.name(types)`, a table as "schema.name".
  for (const [, of, name = ''] of error.message.matchAll(/([a-z0-9_]+)\.([a-z_]+)/g))
    if ((schema ?? of) === of && Object.hasOwn(BROUGHT_BY, name))
      return `${name} (migration ${BROUGHT_BY[name]})`;
  return null;
}

/** Nothing was migrated there: told of whichever schema. */
export function isSchemaMissing(error: unknown): boolean {
  const text = error instanceof Error ? error.message : '';
  return codeOf(error) === '3F000' || (codeOf(error) === '42P01' && /"[a-z0-9_]+\.jobs"/.test(text));
}

/** What was to be done in a schema, and which roles of `unbroker roles` may. */
export interface Deed {
  readonly what: string;
  readonly by: string;
}

/** The same error, or in its place `schema-older`, `schema-missing` or `permission-denied` with the way out. */
export function behind(error: unknown, schema: string, deed: Deed): unknown {
  const missed = missedBy(error, schema);
  const rest = { exitStatus: EXIT.badInput, cause: error };
  if (missed !== null)
    return new UnbrokerError(
      'schema-older',
      `Schema ${schema} is older than this package: it has no ${missed}`,
      {
        ...{ hint: UPGRADE_HINT, ...rest },
      },
    );
  // Of ours alone: a caller's trigger may miss something of its own, and lack rights to it.
  const text = error instanceof Error ? error.message : '';
  const isMissing =
    (codeOf(error) === '3F000' && text.includes(`"${schema}"`)) ||
    (codeOf(error) === '42P01' && text.includes(`"${schema}.jobs"`));
  if (isMissing) return schemaMissing(schema, 'createEnqueue(schema), createSchedules(schema)', error);
  if (codeOf(error) !== '42501' || !namesOurs(text, schema)) return error;
  return new UnbrokerError(
    'permission-denied',
    `The database role may not ${deed.what} in schema ${schema}`,
    {
      hint: `Give it the rights of ${deed.by} with unbroker roles, again after each migrate (docs/do/roles.md).`,
      cause: error,
    },
  );
}

/** `named`: how another schema is named where it was looked for. */
export function schemaMissing(schema: string, named: string, cause?: unknown): UnbrokerError {
  return new UnbrokerError('schema-missing', `Schema ${schema} has no jobs table yet`, {
    hint: `Run: unbroker migrate. If it is in another schema, name that: ${named}.`,
    exitStatus: EXIT.badInput,
    cause,
  });
}

/** `permission denied for table jobs`, in any language: the server names the object without its schema, and no other part has it. */
const namesOurs = (text: string, schema: string): boolean =>
  (text.match(/[a-z0-9_]+/g) ?? []).some(
    (word) => word === schema || /^(jobs|jobs_id_seq)$/.test(word) || Object.hasOwn(BROUGHT_BY, word),
  );
