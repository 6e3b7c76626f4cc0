/**
 * Statements that a connection plans once and keeps under a name, as pg's clients can. Whether one may do so is direct.ts's
 * answer; which statements, their callers'.
 */
import { forgetsPlans } from './direct.js';
import type { Queryable } from './job.js';
import { asTexts, RowQuery, type Texts, takesRowQueries } from './row-query.js';
import { codeOf } from './sqlstate.js';

/** pg's query with a name: it prepares a text that the connection does not have yet. */
interface NamedQueryable {
  query(config: {
    readonly name: string;
    readonly text: string;
    readonly values: unknown[] | undefined;
    readonly rowMode?: 'array';
  }): ReturnType<Queryable['query']>;
}

const names = new Map<string, string>();

/** Of the text itself: another version of this package or another schema on the same connection has another. */
function nameOf(text: string): string {
  let name = names.get(text);
  if (name === undefined) {
    let [a, b] = [0x811c9dc5, 0x1b873593];
    for (let i = 0; i < text.length; i += 1) {
      a = Math.imul(a ^ text.charCodeAt(i), 0x01000193) >>> 0;
      b = Math.imul(b ^ text.charCodeAt(i), 0x5bd1e995) >>> 0;
    }
    name = `unbroker_${a.toString(36)}_${b.toString(36)}`;
    names.set(text, name);
  }
  return name;
}

/** invalid_sql_statement_name: somebody discarded it. */
const NO_SUCH_NAME = '26000';
/** And feature_not_supported, a migration changed what a function answers. */
const UNUSABLE = [NO_SUCH_NAME, '0A000'];

/** Was the statement refused for its name alone? By its text it may do. */
export function isUnusable(error: unknown): boolean {
  return UNUSABLE.includes(codeOf(error));
}

/** A connection whose statements are prepared under names. Whose name the server does not know, the error is the caller's. */
export class Prepared implements Queryable {
  constructor(private readonly tx: Queryable) {}

  /** Answers with the driver's own promise: each one more around it was felt in a caller's transaction. */
  query(text: string, values?: unknown[]): ReturnType<Queryable['query']> {
    const name = nameOf(text);
    const asked = (this.tx as unknown as NamedQueryable).query({ name, text, values });
    asked.then(undefined, (error) => this.#refused(error, name));
    return asked;
  }

  /** The first row of a statement that answers with texts, by its columns' places; null where there is none. */
  row(text: string, values: (string | null)[]): Promise<Texts | null> {
    const name = nameOf(text);
    const asked = takesRowQueries(this.tx)
      ? new RowQuery(name, text, values).askOf(this.tx)
      : (this.tx as unknown as NamedQueryable)
          .query({ name, text, values, rowMode: 'array' })
          .then(({ rows }) => (rows[0] === undefined ? null : asTexts(rows[0] as object)));
    asked.then(undefined, (error) => this.#refused(error, name));
    return asked;
  }

  #refused(error: unknown, name: string): void {
    if (!isUnusable(error)) return;
    forgetsPlans(this.tx);
    // pg goes on believing that the server has it: who prepares in any case would get the same error for ever.
    const { connection } = this.tx as { readonly connection?: { readonly parsedStatements?: object } };
    if (codeOf(error) === NO_SUCH_NAME && connection?.parsedStatements !== undefined)
      Reflect.deleteProperty(connection.parsedStatements, name);
  }
}
