/**
 * What `sslmode` of a Postgres URL means to the driver, said in its own word. It reads `prefer`, `require` and `verify-ca`
 * as `verify-full`, prints nine lines of warning on stderr at each start, and will check less for them one day.
 */

/** The same URL with the same checks, whatever the driver makes of the other names later. */
export function withTlsModeNamed(url: string): string {
  const query = url.indexOf('?');
  // Who asks for libpq's own, weaker reading gets it from the driver, without a warning.
  if (query === -1 || /[?&]uselibpqcompat=true(?=[&#]|$)/.test(url)) return url;
  const named = url
    .slice(query)
    .replace(/([?&]sslmode=)(?:prefer|require|verify-ca)(?=[&#]|$)/g, '$1verify-full');
  return url.slice(0, query) + named;
}
