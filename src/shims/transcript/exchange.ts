/**
 * One request and its answer, as a line of a transcript. Pure. What authenticates is never written: whoever replays has
 * keys of his own.
 */
import { EXIT, UnbrokerError } from '../../errors.js';

export interface Exchange {
  readonly request: {
    readonly method: string;
    /** Path and query. */
    readonly target: string;
    readonly headers: Readonly<Record<string, string>>;
    /** UTF-8; '' without. */
    readonly body: string;
  };
  readonly response: {
    readonly status: number;
    readonly headers: Readonly<Record<string, string>>;
    readonly body: string;
  };
}

/** Of the connection, or of whoever sends; and what authenticates. */
const DROPPED = new Set([
  'accept-encoding',
  'authorization',
  'connection',
  'content-length',
  'cookie',
  'date',
  'etag',
  'expect',
  'host',
  'keep-alive',
  'proxy-authorization',
  'server',
  'set-cookie',
  'transfer-encoding',
  'user-agent',
  'vary',
  'x-api-key',
  'x-powered-by',
  'x-signature',
]);

export function keptHeaders(
  headers: Readonly<Record<string, string | readonly string[] | undefined>>,
): Record<string, string> {
  const kept: Record<string, string> = {};
  for (const [name, value] of Object.entries(headers)) {
    const key = name.toLowerCase();
    if (value !== undefined && !DROPPED.has(key))
      kept[key] = typeof value === 'string' ? value : value.join(', ');
  }
  return kept;
}

/** Throws UnbrokerError `transcript-unreadable`, naming the line. */
export function readTranscript(text: string): Exchange[] {
  return text.split('\n').flatMap((line, index) => {
    if (line.trim() === '') return [];
    try {
      const { request, response } = JSON.parse(line) as Exchange;
      const fine =
        typeof request.method === 'string' &&
        typeof request.target === 'string' &&
        request.target.startsWith('/') &&
        typeof request.body === 'string' &&
        Number.isInteger(response.status) &&
        typeof response.body === 'string';
      if (fine) return [{ request, response }];
    } catch {
      // Told below.
    }
    throw new UnbrokerError('transcript-unreadable', `Line ${index + 1} of the transcript is no exchange`, {
      hint: 'Record it with unbroker shims record.',
      exitStatus: EXIT.badInput,
    });
  });
}
