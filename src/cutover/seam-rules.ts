/**
 * The rules of the seam detector, and the SQL that each becomes. A rule says which committed business rows expect
 * which job; it is data from the config, so every identifier is checked against a narrow pattern and quoted, and the
 * one free text (`where`) is the operator's own SQL on the operator's own table, run in a read-only transaction.
 */
import { arrayOf, type Checker, integer, invalid, object, record, string } from '../check.js';

export interface SeamRule {
  readonly name: string;
  /** The business table, `orders` or `shop.orders`. */
  readonly source: string;
  /** Its key column. */
  readonly key: string;
  /** SQL condition on the business row, as `status = 'paid'`. Default: every row. */
  readonly where?: string;
  /** Column that dates a row. */
  readonly since: string;
  /** What must exist for each business row, in one of these places. */
  readonly expects: SeamExpectation | readonly SeamExpectation[];
  /** Rows younger than this are not judged. Default 0; give an old service's message its time. */
  readonly graceMs?: number;
}

export interface SeamExpectation {
  /** `jobs` (default), or the table in which the old service notes what it did. */
  readonly lookIn?: string;
  /** In `jobs`: the kind. */
  readonly kind?: string;
  /** Where the business key is: `payload.data.orderId`, or a plain column. */
  readonly key: string;
  /** Further columns or paths and the text that they must hold: `{ template: 'order-receipt' }`. */
  readonly matches?: Readonly<Record<string, string>>;
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

const expectation = object(
  { lookIn: tableName, kind: string({ maxLength: 200 }), key: path, matches: record(string(), 20, path) },
  ['key'],
);

const checkShape = object(
  {
    rules: arrayOf(
      object(
        {
          name: string({ maxLength: 100 }),
          source: tableName,
          key: identifier,
          where: string({ maxLength: 1_000 }),
          since: identifier,
          expects: (value: unknown, at: string): SeamExpectation | SeamExpectation[] =>
            Array.isArray(value) ? arrayOf(expectation, 10, 1)(value, at) : expectation(value, at),
          graceMs: integer(0, 30 * 86_400_000),
        },
        ['name', 'source', 'key', 'since', 'expects'],
      ),
      100,
    ),
  },
  ['rules'],
);

/** Throws `config-invalid` (exit 2). */
export const checkSeamConfig: Checker<SeamConfig> = (value, at) => {
  const config = checkShape(value, at);
  const names = config.rules.map(({ name }) => name);
  // `--rule` chooses by it.
  const twice = names.findIndex((name, index) => names.indexOf(name) < index);
  if (twice >= 0) throw invalid(`${at}.rules[${twice}].name`, 'used once');
  return config;
};

/** A statement with its values. */
export interface SeamQuery {
  readonly text: string;
  readonly values: readonly (string | number)[];
}

/**
 * One row: `judged`, `missing`, `doubled`, `ghosts` (counts) and up to `limit` keys of each. `jobs` is the quoted,
 * qualified jobs table. A business row is missing when no place has it, doubled when places hold it more than once;
 * a ghost is an entry whose business row does not exist.
 */
export function seamQuery(rule: SeamRule, jobs: string, limit: number): SeamQuery {
  const values: (string | number)[] = [rule.graceMs ?? 0, limit];
  const bind = (value: string): string => `$${values.push(value)}`;
  const found = [rule.expects]
    .flat()
    .map((one) => placeSql(one, jobs, bind))
    .join('\n  union all\n');
  const source = quoteName(rule.source);
  const key = `b.${quote(rule.key)}::text`;
  const text = `
with found as materialized (
${found}
),
judged as materialized (
  select ${key} as key
  from ${source} b
  where (${rule.where ?? 'true'}) and b.${quote(rule.since)} < now() - $1::float8 * interval '1 millisecond'
),
missing as (
  select key from judged where not exists (select from found where found.key = judged.key)
),
doubled as (
  select key from found join judged using (key) group by key having count(*) > 1
),
ghosts as (
  select distinct key from found where not exists (select from ${source} b where ${key} = found.key)
)
select
  (select count(*)::int from judged) as judged,
  (select count(*)::int from missing) as missing,
  (select count(*)::int from doubled) as doubled,
  (select count(*)::int from ghosts) as ghosts,
  array(select key from missing order by key limit $2) as "missingKeys",
  array(select key from doubled order by key limit $2) as "doubledKeys",
  array(select key from ghosts order by key limit $2) as "ghostKeys"`;
  return { text, values };
}

function placeSql(one: SeamExpectation, jobs: string, bind: (value: string) => string): string {
  const inJobs = one.lookIn === undefined || one.lookIn === 'jobs';
  const conditions = [
    ...(inJobs ? ['l.cron is null'] : []),
    ...(one.kind === undefined ? [] : [`l.kind = ${bind(one.kind)}`]),
    ...Object.entries(one.matches ?? {}).map(([p, value]) => `${pathSql(p)} = ${bind(value)}`),
    `${pathSql(one.key)} is not null`,
  ];
  const table = inJobs ? jobs : quoteName(one.lookIn as string);
  return `  select ${pathSql(one.key)} as key from ${table} l where ${conditions.join(' and ')}`;
}

/** `payload.data.orderId` → `l."payload" #>> '{data,orderId}'`; every part passed the narrow pattern of `path`. */
function pathSql(text: string): string {
  const [column = '', ...steps] = text.split('.');
  return steps.length === 0 ? `l.${quote(column)}::text` : `(l.${quote(column)} #>> '{${steps.join(',')}}')`;
}

function quoteName(name: string): string {
  return name.split('.').map(quote).join('.');
}

function quote(name: string): string {
  return `"${name}"`;
}
