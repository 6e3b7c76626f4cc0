/**
 * From body bytes to payload text: the original text when Postgres can hold it as jsonb, else a reason why not. Text is
 * never re-serialised (JSON.parse rounds 9007199254740993 and turns 1e400 into Infinity). Compression is told by magic
 * bytes, since the property lies. It refuses to know what the payload means.
 */
import { isUtf8 } from 'node:buffer';
import { brotliDecompressSync, gunzipSync, inflateSync } from 'node:zlib';
import { LIMITS } from '../../src/jobs/job.js';

/** Why a body is kept as bytes instead of as a payload. */
export type BodyNote =
  | 'not-json'
  | 'binary'
  | 'nul'
  | 'lone-surrogate'
  | 'too-large'
  | 'huge-number'
  | 'compressed'
  | 'refused-by-database';

export interface ReadBody {
  /** JSON text for jsonb; null when `note` says why there is none. An empty body is JSON null. */
  readonly payloadText: string | null;
  /** The text, also of JSON that jsonb refuses; null when there is none worth looking into. */
  readonly text: string | null;
  readonly note: BodyNote | null;
  /** True when the text came out of a compressed body. */
  readonly inflated: boolean;
  /** What JSON.parse makes of it: for dialects that look inside, never for storing. Undefined when not JSON. */
  parsed(): unknown;
}

export interface BodyOptions {
  /**
   * True: the text is parsed and looked through here. False: it only has to look like JSON, and the database is the
   * judge; whoever says false must come back with true when it refuses. Parsing costs as much as everything else here.
   */
  readonly careful: boolean;
  /** Bounds the text, inflated or not. Default: what one payload may have at any door. */
  readonly maxBytes?: number;
}

/** One object for each body, and nothing made before it is asked for. */
class BodyText implements ReadBody {
  #parsed: unknown;
  #isParsed = false;

  constructor(
    readonly payloadText: string | null,
    readonly text: string | null,
    readonly note: BodyNote | null,
    readonly inflated: boolean,
  ) {}

  parsed(): unknown {
    if (!this.#isParsed) {
      this.#isParsed = true;
      this.#parsed = this.text === null ? undefined : parse(this.text);
    }
    return this.#parsed;
  }
}

const refused = (note: BodyNote, inflated = false): ReadBody => new BodyText(null, null, note, inflated);
const EMPTY: ReadBody = new BodyText('null', 'null', null, false);

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

export function readBody(body: Buffer, contentEncoding: string | undefined, options: BodyOptions): ReadBody {
  if (body.length === 0) return EMPTY;
  const maxBytes = options.maxBytes ?? LIMITS.payloadBytes;
  const plain = readText(body, maxBytes, options.careful, false);
  if (plain.note === null || plain.note === 'too-large' || plain.note === 'huge-number') return plain;
  const inflate = inflater(body, contentEncoding);
  if (inflate === undefined) return plain;
  try {
    return readText(inflate(maxBytes), maxBytes, options.careful, true);
  } catch (error) {
    const tooLarge = (error as { code?: string }).code === 'ERR_BUFFER_TOO_LARGE';
    return tooLarge ? refused('too-large', true) : plain;
  }
}

function readText(bytes: Buffer, maxBytes: number, careful: boolean, inflated: boolean): ReadBody {
  if (bytes.length > maxBytes) return refused('too-large', inflated);
  if (!isUtf8(bytes)) return refused(inflated ? 'compressed' : 'binary', inflated);
  const bom = bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf;
  const text = bytes.toString('utf8', bom ? 3 : 0);
  if (!LOOKS_LIKE_JSON.test(text)) return refused('not-json', inflated);
  // Parsed first, also in a hurry, since it is rare: of a text that is no JSON its numbers are not what is wrong.
  if (hasHugeNumbers(text)) {
    return refused(parse(text) === undefined ? notJson(text) : 'huge-number', inflated);
  }
  if (!careful) return new BodyText(text, text, null, inflated);
  // JSON.parse answers everything but undefined.
  const read = new BodyText(text, text, null, inflated);
  const note =
    read.parsed() === undefined ? notJson(text) : text.includes('\\u') ? refusedEscape(text) : null;
  return note === null ? read : new BodyText(null, text, note, inflated);
}

const notJson = (text: string): BodyNote => (text.includes('\u0000') ? 'nul' : 'not-json');

const LOOKS_LIKE_JSON = /^[ \t\n\r]*["{[\dtfn-]/;

/** Digits that the exponents of a body may add when the database writes its numbers out: 1e9 is ten digits. */
export const MAX_EXPONENTS = 1_048_576;

/**
 * A string, or a number's exponent. Strings are stepped over: of UUIDs one in 140 has a number of such a look in it, of SHA-256 in
 * hex one in 13 ("3e8123456"). One that is left open reaches to the end, so that no text is read over and over.
 */
const STRING_OR_EXPONENT = /"[^"\\]*(?:\\.[^"\\]*)*"?|\d[eE][+-]?(\d{3,})/gs;

/** A megabyte of "1e131071," is legal JSON and would cost the database gigabytes. */
function hasHugeNumbers(text: string): boolean {
  if (!/\d[eE][+-]?\d{3}/.test(text)) return false;
  let sum = 0;
  for (const [, exponent = '0'] of text.matchAll(STRING_OR_EXPONENT)) sum += Number(exponent);
  return sum > MAX_EXPONENTS;
}

/** jsonb refuses `\u0000` and surrogates that are not a pair; JSON.parse takes both. */
function refusedEscape(text: string): BodyNote | null {
  let high = -1;
  for (const match of text.matchAll(/\\(?:u([0-9a-fA-F]{4})|.)/g)) {
    const code = match[1] === undefined ? -1 : Number.parseInt(match[1], 16);
    const isLow = code >= 0xdc00 && code <= 0xdfff;
    if (high >= 0 ? !(isLow && match.index === high) : isLow) return 'lone-surrogate';
    if (code === 0) return 'nul';
    // Where the other half must begin.
    high = code >= 0xd800 && code <= 0xdbff ? match.index + 6 : -1;
  }
  return high >= 0 ? 'lone-surrogate' : null;
}

/** By magic bytes; brotli has none, so there the property is believed. */
function inflater(
  body: Buffer,
  contentEncoding: string | undefined,
): ((maxOutputLength: number) => Buffer) | undefined {
  const [first = 0, second = 0] = body;
  if (first === 0x1f && second === 0x8b) return (maxOutputLength) => gunzipSync(body, { maxOutputLength });
  if ((first & 0x0f) === 8 && (first * 256 + second) % 31 === 0) {
    return (maxOutputLength) => inflateSync(body, { maxOutputLength });
  }
  if (/\bbr\b/.test(contentEncoding ?? '')) {
    return (maxOutputLength) => brotliDecompressSync(body, { maxOutputLength });
  }
  return undefined;
}

/**
 * The source text of a member of a JSON object, exactly as written; of a repeated name the last, as JSON.parse reads it.
 * `text` must be valid JSON. Undefined when it is not an object or has no such member.
 */
export function memberText(text: string, name: string): string | undefined {
  let at = skipSpace(text, 0);
  if (text[at] !== '{') return undefined;
  let found: string | undefined;
  at = skipSpace(text, at + 1);
  while (text[at] === '"') {
    const keyEnd = skipString(text, at);
    const key: unknown = JSON.parse(text.slice(at, keyEnd));
    const start = skipSpace(text, skipSpace(text, keyEnd) + 1);
    const end = skipValue(text, start);
    if (key === name) found = text.slice(start, end);
    at = skipSpace(text, end);
    if (text[at] === ',') at = skipSpace(text, at + 1);
  }
  return found;
}

/** The source texts of the items of a JSON array, exactly as written. Like memberText. */
export function itemTexts(text: string): readonly string[] | undefined {
  let at = skipSpace(text, 0);
  if (text[at] !== '[') return undefined;
  const items: string[] = [];
  at = skipSpace(text, at + 1);
  while (at < text.length && text[at] !== ']') {
    const end = skipValue(text, at);
    items.push(text.slice(at, end));
    at = skipSpace(text, end);
    if (text[at] === ',') at = skipSpace(text, at + 1);
  }
  return items;
}

function skipSpace(text: string, at: number): number {
  let next = at;
  while (next < text.length && ' \t\n\r'.includes(text[next] as string)) next += 1;
  return next;
}

/** `at` is on the opening quote; answers the index after the closing one. */
function skipString(text: string, at: number): number {
  let next = at + 1;
  while (next < text.length && text[next] !== '"') next += text[next] === '\\' ? 2 : 1;
  return next + 1;
}

function skipValue(text: string, at: number): number {
  let next = at;
  let depth = 0;
  while (next < text.length) {
    const char = text[next] as string;
    if (char === '"') {
      next = skipString(text, next);
      if (depth === 0) return next;
      continue;
    }
    if (char === '{' || char === '[') depth += 1;
    else if (char === '}' || char === ']') {
      if (depth === 0) return next;
      depth -= 1;
      if (depth === 0) return next + 1;
    } else if (depth === 0 && (char === ',' || ' \t\n\r'.includes(char))) return next;
    next += 1;
  }
  return next;
}
