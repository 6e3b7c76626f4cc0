/**
 * Reads the fields of a request: typed, bounded, and no others than those named. Every refusal says which field and
 * what it must be, never what it was.
 */
import type { ArrayNode, JsonNode, ObjectNode, StringNode } from '../json-text.js';
import { hasControls } from '../notify/message.js';
import { Refusal, type ShimRequest } from './contract.js';

export const invalid = (detail: string): Refusal => new Refusal(400, 'invalid', detail);

/** The body's members; 400 when it is not an object or has a member that is not in `known`. */
export function objectOf<const Name extends string>(
  node: JsonNode | null,
  known: readonly Name[],
  what = 'body',
): Fields<Name> {
  if (node?.type !== 'object') throw invalid(`${what} is not an object`);
  for (const key of node.members.keys()) {
    if (!(known as readonly string[]).includes(key)) {
      const place = what === 'body' ? '' : ` in ${what}`;
      throw new Refusal(
        400,
        'unknown-field',
        `there is an unknown field${place}; known: ${known.join(', ')}`,
      );
    }
  }
  return new Fields(node);
}

/** A member that is absent or null counts as not given, as the old services had it. */
export class Fields<Name extends string> {
  constructor(readonly node: ObjectNode) {}

  get(name: Name): JsonNode | undefined {
    const node = this.node.members.get(name);
    return node?.type === 'literal' && node.value === null ? undefined : node;
  }

  /** Present, even as null. */
  has(name: Name): boolean {
    return this.node.members.has(name);
  }

  /** 1 to `max` characters. */
  text(name: Name, max: number): StringNode | undefined {
    const node = this.get(name);
    if (node === undefined) return undefined;
    if (node.type !== 'string' || node.value.length === 0 || node.value.length > max)
      throw invalid(`${name} is not a string of 1 to ${max} characters`);
    return node;
  }

  /** Text for a header or a log line: a line break in it is an attack, not a mistake (422). */
  line(name: Name, max: number): StringNode | undefined {
    const node = this.text(name, max);
    if (node !== undefined && hasControls(node.value))
      throw new Refusal(422, 'control-characters', `${name} holds a line break or another control character`);
    return node;
  }

  object(name: Name): ObjectNode | undefined {
    const node = this.get(name);
    if (node !== undefined && node.type !== 'object') throw invalid(`${name} is not an object`);
    return node;
  }

  array(name: Name, max: number): ArrayNode | undefined {
    const node = this.get(name);
    if (node === undefined) return undefined;
    if (node.type !== 'array' || node.items.length === 0 || node.items.length > max)
      throw invalid(`${name} is not a list of 1 to ${max}`);
    return node;
  }

  integer(name: Name, min: number, max: number): number | undefined {
    const node = this.get(name);
    if (node === undefined) return undefined;
    if (node.type !== 'number' || !/^-?\d{1,15}$/.test(node.raw) || node.value < min || node.value > max)
      throw invalid(`${name} is not a whole number from ${min} to ${max}`);
    return node.value;
  }

  number(name: Name, min: number, max: number): number | undefined {
    const node = this.get(name);
    if (node === undefined) return undefined;
    if (node.type !== 'number' || !(node.value >= min && node.value <= max))
      throw invalid(`${name} is not a number from ${min} to ${max}`);
    return node.value;
  }

  time(name: Name): Date | undefined {
    const node = this.get(name);
    if (node === undefined) return undefined;
    const time = node.type === 'string' ? parseTime(node.value) : null;
    if (time === null) throw invalid(`${name} is not an ISO 8601 time with a zone, as 2030-01-31T09:00:00Z`);
    return time;
  }
}

const ISO = /^(?!0000)\d{4}-\d\d-\d\d(?:[Tt ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:[Zz]|[+-]\d\d:?\d\d)?)?$/;

/**
 * ISO 8601; without a zone it is UTC: the same text must not mean another time on another server. null for anything
 * else, for dates that do not exist (Date would roll 30 February over), and for the year 0, which Postgres does not have.
 */
export function parseTime(text: string): Date | null {
  if (!ISO.test(text)) return null;
  const zoned = /[Zz]|[+-]\d\d:?\d\d$/.test(text.slice(10)) || text.length === 10 ? text : `${text}Z`;
  const time = new Date(zoned.replace(' ', 'T').toUpperCase());
  if (Number.isNaN(time.getTime())) return null;
  const lastDay = new Date(Date.UTC(Number(text.slice(0, 4)), Number(text.slice(5, 7)), 0)).getUTCDate();
  return Number(text.slice(8, 10)) <= lastDay ? time : null;
}

/** Query values by name; 400 for a name that is not in `known`. */
export function queryOf<const Name extends string>(
  request: ShimRequest,
  known: readonly Name[],
): Partial<Record<Name, string>> {
  const out: Partial<Record<Name, string>> = {};
  for (const [name, value] of request.query) {
    if (!(known as readonly string[]).includes(name))
      throw new Refusal(
        400,
        'unknown-parameter',
        `there is an unknown parameter; known: ${known.join(', ')}`,
      );
    out[name as Name] = value;
  }
  return out;
}

/** Default 50; more than 200 is cut to it, as the old services did. */
export function limitOf(text: string | undefined): number {
  if (text === undefined) return 50;
  if (!/^[1-9]\d{0,8}$/.test(text)) throw invalid('limit is not a positive number');
  return Math.min(Number(text), 200);
}
