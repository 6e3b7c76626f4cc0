/**
 * Text that Postgres will take. jsonb refuses NUL and lone surrogates; one of them in an error message or a result
 * must not strand a job in `running` for ever (seen in the field: an execution that never ended because its result
 * held \u0000). Only for what *we* write; payloads are never altered.
 */

/** NUL becomes U+2400 (its picture), lone surrogates U+FFFD; cut to `maxLength` characters. */
export function storableText(text: string, maxLength: number): string {
  return text.slice(0, maxLength).replaceAll('\u0000', '\u2400').toWellFormed();
}

/** True when jsonb and text columns take it as it is. */
export function isStorable(text: string): boolean {
  return !text.includes('\u0000') && text.isWellFormed();
}

/** The same of a JSON text: JSON.stringify writes NUL and lone surrogates as escapes, which jsonb refuses too. */
export function isStorableJson(text: string): boolean {
  return !/(?<!\\)(?:\\\\)*\\u(?:0000|d[89a-f])/i.test(text);
}
