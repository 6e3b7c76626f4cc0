/**
 * What a statement's parameters look like before a client or ORM gets them: null, text, numbers, booleans and bytes,
 * which every one of them hands to Postgres as they are. Dates and lists are written as Postgres text here, because
 * there they differ: Prisma sends a date without its zone, Drizzle switches off the date serializer of postgres.js, and
 * postgres.js types a list by its first element, which is often null.
 */

export type Parameter = string | number | boolean | Uint8Array | null;

/** Throws TypeError for what no statement of ours uses: objects, functions, symbols. */
export function plainParameters(values: readonly unknown[] = []): Parameter[] {
  return values.map(plain);
}

function plain(value: unknown): Parameter {
  if (value === null || value === undefined) return null;
  if (Array.isArray(value)) return arrayLiteral(value);
  if (value instanceof Date) return value.toISOString();
  if (value instanceof Uint8Array) return value;
  switch (typeof value) {
    case 'string':
    case 'number':
    case 'boolean':
      return value;
    case 'bigint':
      return value.toString();
    default:
      throw new TypeError(`A parameter of type ${typeof value} cannot be sent`);
  }
}

/** `{1,NULL,"a \"b\""}`: Postgres reads it as a list of whatever type the statement names. */
function arrayLiteral(items: readonly unknown[]): string {
  return `{${items.map(arrayItem).join(',')}}`;
}

function arrayItem(item: unknown): string {
  if (Array.isArray(item)) return arrayLiteral(item);
  const value = plain(item);
  if (value === null) return 'NULL';
  if (value instanceof Uint8Array) return `"\\\\x${Buffer.from(value).toString('hex')}"`;
  // Always quoted: unquoted, the text NULL would become a null and a space at either end would be dropped.
  return typeof value === 'string' ? `"${value.replace(/["\\]/g, '\\$&')}"` : String(value);
}
