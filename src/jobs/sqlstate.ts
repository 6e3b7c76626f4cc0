/**
 * What an error of the database's driver says by its SQLSTATE, the only part of it that is the same in every language and holds no
 * payload. Pure; what to do about it is whoever's question it was.
 */

/**
 * Another transaction was in the way (40001, 40P01): asked again it goes well. Seen where a role's transactions are serializable
 * by default.
 */
export function isConflict(error: unknown): boolean {
  return ['40001', '40P01'].includes(codeOf(error));
}

/** lock_not_available: somebody else's transaction holds a row. */
export function isHeld(error: unknown): boolean {
  return codeOf(error) === '55P03';
}

/** query_canceled: by the statement_timeout of the role or the database, or by a person. */
export function isCutShort(error: unknown): boolean {
  return codeOf(error) === '57014';
}

/** A function (42883) or a column (42703) that is not there, or not granted (42501): this package is newer than the schema or its roles. */
export function isOutOfReach(error: unknown): boolean {
  return ['42883', '42703', '42501'].includes(codeOf(error));
}

/** Its SQLSTATE or Node's word, or ''. */
export function codeOf(error: unknown): string {
  return typeof error === 'object' && error !== null && 'code' in error ? String(error.code) : '';
}

/**
 * The server refused the statement: the connection is as good as before. Not so after 57P, its farewells, nor when it
 * takes no writes (25006): it was demoted, and the same address leads to the new primary by now.
 */
export function isAnswer(error: unknown): boolean {
  const code = typeof error === 'object' && error !== null && 'code' in error ? error.code : undefined;
  return typeof code === 'string' && /^(?!57P|08|25006)(?=.*\d)[0-9A-Z]{5}$/.test(code);
}
