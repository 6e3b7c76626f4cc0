/**
 * One call to RabbitMQ's management API, for tests and for the starter itself. The URL carries the credentials
 * (`http://guest:guest@127.0.0.1:15672`), which fetch refuses, so they are moved into a header here.
 */

/** Resolves to the parsed answer, or null when it has no body; rejects on any status but 2xx. */
export async function callManagement(
  managementUrl: string,
  method: 'GET' | 'PUT' | 'POST' | 'DELETE',
  path: string,
  body?: unknown,
): Promise<unknown> {
  const url = new URL(`/api${path}`, managementUrl);
  const { username, password } = url;
  url.username = '';
  url.password = '';
  const credentials = Buffer.from(`${decodeURIComponent(username)}:${decodeURIComponent(password)}`);
  const answer = await fetch(url, {
    method,
    headers: {
      authorization: `Basic ${credentials.toString('base64')}`,
      'content-type': 'application/json',
      connection: 'close',
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    // A busy machine takes its time; only a failure waits so long.
    signal: AbortSignal.timeout(60_000),
  });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${method} ${path} answered ${answer.status}: ${text.slice(0, 200)}`);
  return text === '' ? null : JSON.parse(text);
}
