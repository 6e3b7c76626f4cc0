/**
 * Text on its way to a terminal, a log or an issue: it cannot steer a terminal, and it holds no credentials. It knows
 * nothing of where the text comes from, so it takes every text for hostile.
 */

/** Control, escape and direction characters become visible. */
export function printable(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is replaced
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g, (char) => {
    return `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`;
  });
}

/**
 * A URL's user and password, as in `postgres://user:secret@host`. The password may hold an unescaped @ or /. Our own hints
 * show the form with just these words. Each part has a limit: without one, an argument of 100,000 letters took half a minute.
 */
const CREDENTIALS = /([a-z][a-z0-9+.-]{0,30}:\/\/)(?!user:password@)[^\s'"]{0,4096}@/gi;
/** `password=secret`, as in a connection string or a query. */
const NAMED_SECRET = /\b(password|passwd|pwd|secret|token|api_?key)(=|: ?)[^\s&'"]+/gi;

/** Credentials are replaced by dots. For texts of others (a loader's message, an argument), never instead of care. */
export function withoutSecrets(text: string): string {
  return text.replace(CREDENTIALS, '$1…@').replace(NAMED_SECRET, '$1$2…');
}

/** Whether an argument holds a password: arguments are visible to every user of the machine. */
export function holdsPassword(argument: string): boolean {
  return /[a-z][a-z0-9+.-]{0,30}:\/\/[^\s/@:]{0,4096}:[^\s@]{1,4096}@/i.test(argument);
}
