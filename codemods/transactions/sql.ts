/**
 * What a piece of SQL text does to a transaction or to rows, from its first words. It refuses to parse SQL: a text
 * it does not know is `unknown`, and whoever asks must treat that as "may write".
 */

export type SqlKind = 'begin' | 'commit' | 'rollback' | 'savepoint' | 'write' | 'read' | 'unknown';

/** Leading white space, `-- …` lines, block comments, opening parentheses. */
const LEADING = /^(?:\s|--[^\n]*(?:\n|$)|\/\*[\s\S]*?\*\/|\()*/;

const WRITES = new Set(['insert', 'update', 'delete', 'merge', 'truncate', 'copy', 'call', 'do', 'refresh']);
const READS = new Set([
  'show',
  'explain',
  'table',
  'values',
  'fetch',
  'listen',
  'set',
  'reset',
  'discard',
  'lock',
]);

export function classifySql(text: string): SqlKind {
  const sql = text.replace(LEADING, '').toLowerCase();
  const word = /^[a-z]+/.exec(sql)?.[0] ?? '';
  if (word === 'begin' || /^start\s+transaction\b/.test(sql)) return 'begin';
  if (/^rollback\s+(?:work\s+|transaction\s+)?to\b/.test(sql) || word === 'savepoint' || word === 'release') {
    return 'savepoint';
  }
  // Two-phase and chained commits end or open transactions in ways that are not followed.
  if (/^(?:commit|rollback|end|abort)\b.*\b(?:prepared|chain)\b/.test(sql) && !/\bno\s+chain\b/.test(sql))
    return 'unknown';
  if (word === 'rollback' || word === 'abort') return 'rollback';
  if (word === 'commit' || word === 'end') return 'commit';
  if (WRITES.has(word)) return 'write';
  if (word === 'with')
    return /\b(?:insert\s+into|update|delete\s+from|merge\s+into)\b/.test(sql) ? 'write' : 'read';
  if (word === 'select') return selectKind(sql);
  return READS.has(word) ? 'read' : 'unknown';
}

/** Functions that only compute; any other one may write. */
const PURE_FUNCTION =
  /^(?:count|now|version|current_\w+|pg_\w+|coalesce|greatest|least|max|min|sum|avg|lower|upper|length|exists|unnest|generate_series|json\w*|array_\w+|string_\w+|regexp_\w+|date_\w+|to_\w+|extract|distinct)$/;

/**
 * `select f($1)` and `select * from f($1)` call a function, which may write; one in a query over a table reads. A name
 * that is put in at run time comes as `$`.
 */
function selectKind(sql: string): SqlKind {
  const source = /\bfrom\s+([\w.$]+)\s*(\()?/.exec(sql);
  if (source !== null) {
    return source[2] !== undefined && !PURE_FUNCTION.test(source[1] ?? '') ? 'unknown' : 'read';
  }
  const called = /^select\s+([\w.$]+)\s*\(/.exec(sql)?.[1];
  return called !== undefined && !PURE_FUNCTION.test(called) ? 'unknown' : 'read';
}

/** The table that an insert goes to, lower case, without schema and quotes; undefined when there is none. */
export function insertTarget(text: string): string | undefined {
  const name = /\binsert\s+into\s+([\w."]+)/i.exec(text)?.[1];
  return name?.replaceAll('"', '').split('.').at(-1)?.toLowerCase();
}
