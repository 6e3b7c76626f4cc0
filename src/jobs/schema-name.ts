/**
 * The one place where an identifier enters SQL text: a schema name is checked against a narrow pattern and quoted
 * once, when statement constants are built. It refuses everything else rather than escaping it.
 */
import { EXIT, UnbrokerError } from '../errors.js';

export const DEFAULT_SCHEMA = 'unbroker';

/** Names that Postgres or the standard own. `pg_*` is refused by pattern below. */
const RESERVED = new Set(['information_schema', 'public']);

/**
 * Returns the quoted identifier. Pattern `^[a-z_][a-z0-9_]{0,62}$` (63 bytes is where Postgres would truncate), not
 * `pg_*`, not `information_schema`, not `public` (a toolkit's tables do not belong among the caller's).
 * Throws `schema-invalid`.
 */
export function quoteSchema(schema: string): string {
  if (!/^[a-z_][a-z0-9_]{0,62}$/.test(schema) || schema.startsWith('pg_') || RESERVED.has(schema)) {
    throw new UnbrokerError('schema-invalid', 'The schema name is not usable', {
      hint: 'Use 1 to 63 of a-z, 0-9 and _, not starting with a digit or pg_, and neither public nor information_schema.',
      exitStatus: EXIT.badInput,
    });
  }
  return `"${schema}"`;
}
