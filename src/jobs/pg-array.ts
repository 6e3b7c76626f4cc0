/**
 * Array parameters as Postgres writes them, `{1,2,NULL}`. The driver would do it value by value, which for the wide
 * batches of an import cost more than everything else about the statement. Pure text.
 */

/** Numbers, booleans and digits-only strings: what needs no quotes. */
export function plainArray(values: readonly (number | boolean | string | null)[]): string {
  return `{${values.map((value) => (value === null ? 'NULL' : value)).join(',')}}`;
}

/** Texts, quoted and escaped. NUL is not checked: the server refuses it. */
export function textArray(values: readonly (string | null)[]): string {
  return `{${values.map(quoted).join(',')}}`;
}

function quoted(value: string | null): string {
  if (value === null) return 'NULL';
  return /["\\]/.test(value) ? `"${value.replace(/["\\]/g, '\\$&')}"` : `"${value}"`;
}
