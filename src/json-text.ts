/**
 * Reads JSON and keeps it: every value knows the slice of text it came from, so a payload travels to Postgres exactly
 * as a client wrote it (JSON.parse rounds 9007199254740993, and stringify writes down what it rounded). Strict RFC 8259,
 * bounded, and it refuses what jsonb cannot hold exactly. It knows nothing of HTTP or of jobs.
 */
import { isStorable } from './jobs/text.js';

export interface JsonLimits {
  /** Objects and arrays inside one another. */
  readonly maxDepth: number;
  /** Members of all objects together. */
  readonly maxKeys: number;
}

export const JSON_LIMITS: JsonLimits = { maxDepth: 64, maxKeys: 10_000 };

/** What is wrong with a text. `unstorable`: it is JSON, but jsonb cannot hold it exactly. */
export type JsonProblem =
  | 'empty'
  | 'syntax'
  | 'duplicate-key'
  | 'forbidden-key'
  | 'too-deep'
  | 'too-many-keys'
  | 'unstorable';

/** `position` counts UTF-16 units from the start. The text itself never enters the message. */
export class JsonError extends Error {
  constructor(
    readonly problem: JsonProblem,
    readonly position: number,
    message: string,
  ) {
    super(message);
    this.name = 'JsonError';
  }
}

abstract class Node {
  constructor(
    private readonly source: string,
    readonly start: number,
    readonly end: number,
  ) {}

  /** The text of this value, as it was written. */
  get raw(): string {
    return this.source.slice(this.start, this.end);
  }
}

export class ObjectNode extends Node {
  readonly type = 'object';
  constructor(
    source: string,
    start: number,
    end: number,
    readonly members: ReadonlyMap<string, JsonNode>,
  ) {
    super(source, start, end);
  }
}

export class ArrayNode extends Node {
  readonly type = 'array';
  constructor(
    source: string,
    start: number,
    end: number,
    readonly items: readonly JsonNode[],
  ) {
    super(source, start, end);
  }
}

export class StringNode extends Node {
  readonly type = 'string';
  constructor(
    source: string,
    start: number,
    end: number,
    readonly value: string,
  ) {
    super(source, start, end);
  }
}

export class NumberNode extends Node {
  readonly type = 'number';
  /** May be rounded; `raw` is exact. */
  get value(): number {
    return Number(this.raw);
  }
}

export class LiteralNode extends Node {
  readonly type = 'literal';
  constructor(
    source: string,
    start: number,
    end: number,
    readonly value: boolean | null,
  ) {
    super(source, start, end);
  }
}

export type JsonNode = ObjectNode | ArrayNode | StringNode | NumberNode | LiteralNode;

/** Reads one JSON text. Throws JsonError. */
export function readJson(text: string, limits: JsonLimits = JSON_LIMITS): JsonNode {
  return new Reader(text, limits).read();
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COLON = 0x3a;
const COMMA = 0x2c;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;

const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const ESCAPES: Readonly<Record<string, string>> = {
  '"': '"',
  '\\': '\\',
  '/': '/',
  b: '\b',
  f: '\f',
  n: '\n',
  r: '\r',
  t: '\t',
};

class Reader {
  #at = 0;
  #depth = 0;
  #keys = 0;
  /** Characters that exponents add when Postgres writes the numbers out: "1e9" is ten digits. */
  #grown = 0;

  constructor(
    private readonly text: string,
    private readonly limits: JsonLimits,
  ) {}

  read(): JsonNode {
    this.#space();
    if (this.#at === this.text.length) throw this.#problem('empty', 'there is no JSON value');
    const node = this.#value();
    this.#space();
    if (this.#at < this.text.length) throw this.#problem('syntax', 'something follows the JSON value');
    return node;
  }

  #value(): JsonNode {
    const start = this.#at;
    switch (this.text.charCodeAt(start)) {
      case OPEN_BRACE:
        return this.#object(start);
      case OPEN_BRACKET:
        return this.#array(start);
      case QUOTE: {
        const value = this.#string();
        return new StringNode(this.text, start, this.#at, value);
      }
      case 0x74:
        return this.#literal('true', true);
      case 0x66:
        return this.#literal('false', false);
      case 0x6e:
        return this.#literal('null', null);
      default:
        return this.#number(start);
    }
  }

  #object(start: number): ObjectNode {
    this.#enter();
    const members = new Map<string, JsonNode>();
    this.#space();
    if (this.text.charCodeAt(this.#at) !== CLOSE_BRACE) {
      do {
        this.#space();
        this.#member(members);
        this.#space();
      } while (this.#skip(COMMA));
    }
    this.#leave(CLOSE_BRACE, '}');
    return new ObjectNode(this.text, start, this.#at, members);
  }

  #member(members: Map<string, JsonNode>): void {
    const keyAt = this.#at;
    if (this.text.charCodeAt(keyAt) !== QUOTE) throw this.#problem('syntax', 'a key in quotes is expected');
    const key = this.#string();
    if (members.has(key)) throw new JsonError('duplicate-key', keyAt, 'a key comes twice in one object');
    this.#keys += 1;
    if (this.#keys > this.limits.maxKeys)
      throw new JsonError('too-many-keys', keyAt, `there are more than ${this.limits.maxKeys} keys`);
    this.#space();
    if (!this.#skip(COLON)) throw this.#problem('syntax', 'a colon is expected');
    this.#space();
    const value = this.#value();
    if (isForbidden(key, value))
      throw new JsonError('forbidden-key', keyAt, 'a key that names a prototype is refused');
    members.set(key, value);
  }

  #array(start: number): ArrayNode {
    this.#enter();
    const items: JsonNode[] = [];
    this.#space();
    if (this.text.charCodeAt(this.#at) !== CLOSE_BRACKET) {
      do {
        this.#space();
        items.push(this.#value());
        this.#space();
      } while (this.#skip(COMMA));
    }
    this.#leave(CLOSE_BRACKET, ']');
    return new ArrayNode(this.text, start, this.#at, items);
  }

  /** Checked on the way in: 200,000 brackets end here and not on our own stack. */
  #enter(): void {
    this.#depth += 1;
    if (this.#depth > this.limits.maxDepth)
      throw this.#problem('too-deep', `it is nested deeper than ${this.limits.maxDepth}`);
    this.#at += 1;
  }

  #leave(close: number, name: string): void {
    if (!this.#skip(close)) throw this.#problem('syntax', `a comma or ${name} is expected`);
    this.#depth -= 1;
  }

  #string(): string {
    const { text } = this;
    const start = this.#at + 1;
    let at = start;
    let escaped = false;
    for (;;) {
      const code = text.charCodeAt(at);
      if (code === QUOTE) break;
      if (code === BACKSLASH) {
        escaped = true;
        at += 2;
      } else if (code < 0x20 || Number.isNaN(code)) {
        this.#at = at;
        throw this.#problem('syntax', 'a string is not closed, or holds a bare control character');
      } else at += 1;
    }
    const raw = text.slice(start, at);
    const value = escaped ? this.#unescape(raw, start) : raw;
    if (!isStorable(value))
      throw new JsonError('unstorable', start, 'a string holds \\u0000 or half a surrogate pair');
    this.#at = at + 1;
    return value;
  }

  #unescape(raw: string, start: number): string {
    return raw.replace(
      /\\(?:u([0-9a-fA-F]{4})|([\s\S]))/g,
      (_match, hex: string | undefined, char: string, at: number) => {
        if (hex !== undefined) return String.fromCharCode(Number.parseInt(hex, 16));
        const plain = Object.hasOwn(ESCAPES, char) ? ESCAPES[char] : undefined;
        if (plain === undefined) throw new JsonError('syntax', start + at, 'an escape is not one of JSON');
        return plain;
      },
    );
  }

  #literal<T extends boolean | null>(word: string, value: T): LiteralNode {
    const start = this.#at;
    if (!this.text.startsWith(word, start)) throw this.#problem('syntax', 'a value is expected');
    this.#at += word.length;
    return new LiteralNode(this.text, start, this.#at, value);
  }

  #number(start: number): NumberNode {
    NUMBER.lastIndex = start;
    const raw = NUMBER.exec(this.text)?.[0];
    if (raw === undefined) throw this.#problem('syntax', 'a value is expected');
    this.#at = start + raw.length;
    if (/[\d.eE+-]/.test(this.text.charAt(this.#at))) throw this.#problem('syntax', 'a number is malformed');
    const growth = numberGrowth(raw);
    this.#grown += growth ?? 0;
    if (growth === null || this.#grown > MAX_GROWTH)
      throw new JsonError('unstorable', start, 'a number cannot be kept exactly');
    return new NumberNode(this.text, start, this.#at);
  }

  #skip(code: number): boolean {
    if (this.text.charCodeAt(this.#at) !== code) return false;
    this.#at += 1;
    return true;
  }

  #space(): void {
    for (;;) {
      const code = this.text.charCodeAt(this.#at);
      if (code !== 0x20 && code !== 0x0a && code !== 0x0d && code !== 0x09) return;
      this.#at += 1;
    }
  }

  #problem(problem: JsonProblem, message: string): JsonError {
    return new JsonError(problem, this.#at, message);
  }
}

/** Harmless to us (members are Maps), but not to every handler that will parse the payload. */
function isForbidden(key: string, value: JsonNode): boolean {
  if (key === '__proto__' || key === 'constructor.prototype') return true;
  return key === 'constructor' && value.type === 'object' && value.members.has('prototype');
}

/** jsonb's numeric: digits before and after the point (measured: 1e131071 and 1e-16383 are the last that fit). */
const MAX_INTEGER_DIGITS = 131_072;
const MAX_FRACTION_DIGITS = 16_383;
/** Without it a megabyte of "1e131071" would come back from the table as gigabytes. */
const MAX_GROWTH = 1_048_576;

/**
 * How many characters longer Postgres writes the number; null when it would not be the same number: out of range, or
 * minus zero, whose sign numeric drops.
 */
function numberGrowth(raw: string): number | null {
  if (raw.length < 16 && !/[eE]|^-0/.test(raw)) return 0;
  const [, sign, integer = '', fraction = '', exponentText = '0'] =
    /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(raw) ?? [];
  const exponent = Number(exponentText);
  if (sign === '-' && /^0*$/.test(integer + fraction)) return null;
  const integerDigits = Math.max(1, integer.length + exponent);
  const fractionDigits = Math.max(0, fraction.length - exponent);
  if (integerDigits > MAX_INTEGER_DIGITS || fractionDigits > MAX_FRACTION_DIGITS) return null;
  return Math.max(0, integerDigits + fractionDigits - raw.length);
}

/** What templates and code may hold: objects without a prototype, arrays, strings, numbers, booleans, null. */
export type PlainJson =
  | null
  | boolean
  | number
  | string
  | readonly PlainJson[]
  | { readonly [key: string]: PlainJson };

/**
 * What an object is as text. No stored text holds a NUL, so who writes text from data can tell that one was printed.
 */
export const PRINTED_OBJECT = '\u0000the data\u0000';

/** No string key is inherited, so nothing is found that is not there; the symbol lets error messages name it. */
const BARE: object = Object.create(null, { [Symbol.toPrimitive]: { value: () => PRINTED_OBJECT } });

export function plainObject<T>(): Record<string, T> {
  return Object.create(BARE) as Record<string, T>;
}

/**
 * The value as plain data. A number that comes out of a double as another one becomes the string of its digits: an
 * order number must not come out of a template rounded.
 */
export function toPlain(node: JsonNode): PlainJson {
  switch (node.type) {
    case 'object': {
      const out = plainObject<PlainJson>();
      for (const [key, value] of node.members) out[key] = toPlain(value);
      return out;
    }
    case 'array':
      return node.items.map(toPlain);
    case 'number':
      return isExact(node.raw) ? node.value : node.raw;
    default:
      return node.value;
  }
}

function isExact(raw: string): boolean {
  const value = Number(raw);
  if (String(value) === raw) return true;
  if (!Number.isFinite(value)) return false;
  if (/^-?\d+$/.test(raw)) return Number.isSafeInteger(value);
  return (
    raw
      .replace(/[eE].*$/, '')
      .replace(/\D/g, '')
      .replace(/^0+/, '').length <= 15
  );
}

/** An object's text from the texts of its members; undefined ones are left out. */
export function objectText(members: Readonly<Record<string, string | undefined>>): string {
  const parts: string[] = [];
  for (const [key, text] of Object.entries(members)) {
    if (text !== undefined) parts.push(`${JSON.stringify(key)}:${text}`);
  }
  return `{${parts.join(',')}}`;
}
