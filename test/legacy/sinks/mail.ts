/** Just enough of a mail parser for the journal: headers unfolded, the first text part decoded. */

export interface Mail {
  /** Lower-case names; of a repeated header the first. */
  readonly headers: Readonly<Record<string, string>>;
  readonly text: string;
}

export function parseMail(raw: Buffer): Mail {
  const source = raw.toString('latin1').replaceAll('\r\n', '\n');
  const { headers, body } = split(source);
  const type = headers['content-type'] ?? 'text/plain';
  const boundary = /^multipart\/.*boundary="?([^";]+)"?/is.exec(type)?.[1];
  if (boundary === undefined) return { headers, text: decodeBody(headers, body) };
  const parts = body
    .split(`--${boundary}`)
    .slice(1, -1)
    .map((part) => split(part.replace(/^\n/, '')));
  const first = parts.find((part) => /^text\/plain/i.test(part.headers['content-type'] ?? '')) ?? parts[0];
  return { headers, text: first === undefined ? '' : decodeBody(first.headers, first.body) };
}

/** RFC 2047 words, as nodemailer writes them for subjects that are not ASCII. */
export function decodeHeader(value: string): string {
  return value
    .replace(/\?=\s+=\?/g, '?==?')
    .replace(/=\?[^?]+\?([bq])\?([^?]*)\?=/gi, (_, encoding: string, text: string) =>
      encoding.toLowerCase() === 'b'
        ? Buffer.from(text, 'base64').toString('utf8')
        : Buffer.from(unquote(text.replaceAll('_', ' ')), 'latin1').toString('utf8'),
    );
}

function split(source: string): { headers: Record<string, string>; body: string } {
  const end = source.indexOf('\n\n');
  const head = end === -1 ? source : source.slice(0, end);
  const headers: Record<string, string> = {};
  for (const line of head.replace(/\n[ \t]+/g, ' ').split('\n')) {
    const colon = line.indexOf(':');
    if (colon > 0) headers[line.slice(0, colon).toLowerCase()] ??= line.slice(colon + 1).trim();
  }
  return { headers, body: end === -1 ? '' : source.slice(end + 2) };
}

function decodeBody(headers: Record<string, string>, body: string): string {
  const encoding = (headers['content-transfer-encoding'] ?? '7bit').toLowerCase();
  if (encoding === 'base64') return Buffer.from(body, 'base64').toString('utf8');
  const bytes = encoding === 'quoted-printable' ? unquote(body.replace(/=\n/g, '')) : body;
  return Buffer.from(bytes, 'latin1').toString('utf8');
}

const unquote = (text: string) =>
  text.replace(/=([0-9A-F]{2})/gi, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
