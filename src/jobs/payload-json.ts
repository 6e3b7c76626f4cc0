/**
 * What of a payload or of headers JSON cannot hold exactly or jsonb does not store: refused before anything is sent, with its place.
 * It walks each payload that is enqueued, so it keeps no places while it does: they are looked for once something does not fit. Pure.
 */
import { LIMITS } from './job.js';
import { isStorable } from './text.js';

export const tooLarge = (name: string): TypeError =>
  new TypeError(
    `${name} is larger than ${LIMITS.payloadBytes} bytes; store the data elsewhere and enqueue its key`,
  );

/** One part does not fit: said without its place. */
class Misfit extends TypeError {}

const MAX_PLACE_LENGTH = 100;

/**
 * Refuses what JSON.stringify would change or drop: TypeError. A property that is undefined is left out, as everywhere. Names places
 * (`payload.items.0.at`), never values.
 */
export function checkJson(root: unknown, name: string): void {
  try {
    check(root, name);
  } catch (error) {
    if (!(error instanceof Misfit)) throw error;
    const place = [name, ...placeOf(root)].join('.').slice(0, MAX_PLACE_LENGTH);
    throw new TypeError(`${place} ${error.message}`);
  }
}

function check(root: unknown, name: string): void {
  bytesLeft = LIMITS.payloadBytes + 1;
  checkPart(root, name, 0);
}

/** The keys that lead to the first part that does not fit. */
function placeOf(root: unknown): string[] {
  const keys: string[] = [];
  let part = root;
  while (typeof part === 'object' && part !== null && keys.length < LIMITS.payloadDepth) {
    const entries: [string, unknown][] = isPlainList(part)
      ? Array.from(part, (item, at) => [String(at), item])
      : isPlain(part)
        ? Object.entries(part).filter(([, value]) => value !== undefined)
        : [];
    const found = entries.find(([key, value]) => !isStorable(key) || !fits(value));
    if (found === undefined || !isStorable(found[0])) break;
    keys.push(found[0]);
    part = found[1];
  }
  return keys;
}

function fits(part: unknown): boolean {
  try {
    check(part, '');
    return true;
  } catch {
    return false;
  }
}

/**
 * Of what the text will need at least: a value and what stands behind it, a text's quotes. An object that is in it twice is
 * written twice, and one that has itself twice forty levels deep would be walked until the end of days.
 */
let bytesLeft = 0;

function checkPart(root: unknown, name: string, depth: number): void {
  bytesLeft -= typeof root === 'string' ? root.length + 3 : 2;
  if (bytesLeft < 0) throw tooLarge(name);
  switch (typeof root) {
    case 'string':
      if (!isStorable(root)) throw new Misfit('holds NUL or a lone surrogate, which jsonb refuses');
      return;
    case 'number':
      if (!Number.isFinite(root)) throw new Misfit('holds NaN or Infinity, which JSON cannot');
      return;
    case 'boolean':
      return;
    case 'object':
      break;
    default:
      throw new Misfit(`holds ${root === undefined ? 'undefined' : `a ${typeof root}`}, which JSON cannot`);
  }
  if (root === null) return;
  // A cycle ends here too: it is deeper than any limit.
  if (depth >= LIMITS.payloadDepth)
    throw new TypeError(`${name} is nested deeper than ${LIMITS.payloadDepth} or cyclic`);
  if (isPlainList(root)) {
    for (const item of root) checkPart(item, name, depth + 1);
    return;
  }
  // A class instance is fine (its own fields are data); a Date, Map, Promise, Buffer or anything with its own idea of
  // JSON is not: what a handler would get is not what the caller passed.
  if (!isPlain(root)) {
    const tag = Object.prototype.toString.call(root);
    throw new Misfit(`holds a ${root.constructor?.name ?? tag}; convert it to plain JSON data first`);
  }
  for (const key of Object.keys(root)) {
    if (!isStorable(key)) throw new Misfit('has a key with NUL or a lone surrogate, which jsonb refuses');
    const value = (root as Record<string, unknown>)[key];
    if (value !== undefined) checkPart(value, name, depth + 1);
  }
}

const hasOwnJson = (value: object): boolean => typeof (value as { toJSON?: unknown }).toJSON === 'function';

const isPlainList = (value: object): value is unknown[] => Array.isArray(value) && !hasOwnJson(value);
const isPlain = (value: object): boolean =>
  Object.prototype.toString.call(value) === '[object Object]' && !hasOwnJson(value);
