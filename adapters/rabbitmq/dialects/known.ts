/** The dialects, in the order in which they are asked; the first that claims a message reads it. */
import type { Dialect } from './dialect.js';
import { rawJson } from './raw-json.js';
import { trio } from './trio.js';

export const DIALECTS: readonly Dialect[] = [trio];

/** Reads what nobody claims. */
export const FALLBACK: Dialect = rawJson;

export function dialectNamed(name: string): Dialect | undefined {
  return [...DIALECTS, FALLBACK].find((dialect) => dialect.name === name);
}
