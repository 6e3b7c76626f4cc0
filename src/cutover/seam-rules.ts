/**
 * The rules of the seam detector, and the SQL that each becomes. A rule says which committed business rows expect
 * which job; it is data from the config, so every identifier is checked against a narrow pattern and quoted, and the
 * one free text (`where`) is the operator's own SQL on the operator's own table, run read-only.
 */
import { arrayOf, integer, object, string } from '../check.js';

export interface SeamRule {
  readonly name: string;
  /** The business table, `orders` or `shop.orders`. */
  readonly source: string;
  /** Its key column. */
  readonly key: string;
  /** Optional SQL condition on the business row, as `status = 'paid'`. */
  readonly where?: string;
  /** Column that dates a row; rows younger than graceMs are not judged. */
  readonly since: string;
  readonly expects: SeamExpectation;
  /** Default 0 with lookIn jobs (one statement sees both or neither); give a message its time with an old service. */
  readonly graceMs?: number;
  /** `jobs` (default), or the table in which the old service notes what it did. */
  readonly lookIn?: string;
}

export interface SeamExpectation {
  /** The job's kind; with another lookIn an optional value of its `kindColumn`. */
  readonly kind?: string;
  readonly kindColumn?: string;
  /** Where the business key is: `payload.data.orderId` in a job, a column or a path into a json column elsewhere. */
  readonly key: string;
}

export interface SeamConfig {
  readonly rules: readonly SeamRule[];
}

const identifier = string({
  maxLength: 63,
  pattern: /^[a-z_][a-z0-9_]*$/,
  expected: 'a lower-case SQL identifier',
});

const tableName = string({
  maxLength: 127,
  pattern: /^[a-z_][a-z0-9_]{0,62}(\.[a-z_][a-z0-9_]{0,62})?$/,
  expected: 'a table name in lower case, with or without its schema',
});

const path = string({
  maxLength: 300,
  pattern: /^[a-z_][a-z0-9_]*(\.[A-Za-z0-9_-]+){0,10}$/,
  expected: 'a column, or a column and a path into it, as payload.data.orderId',
});

export const checkSeamConfig = object(
  {
    rules: arrayOf(
      object(
        {
          name: string({ maxLength: 100 }),
          source: tableName,
          key: identifier,
          where: string({ maxLength: 1_000 }),
          since: identifier,
          expects: object({ kind: string({ maxLength: 200 }), kindColumn: identifier, key: path }, ['key']),
          graceMs: integer(0, 30 * 86_400_000),
          lookIn: tableName,
        },
        ['name', 'source', 'key', 'since', 'expects'],
      ),
      100,
    ),
  },
  ['rules'],
);
