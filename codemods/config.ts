/**
 * unbroker.codemod.json: what the caller knows better than the scan. Data only, read and checked here, never run.
 *
 *   { "kinds":    { "notification.*.email": "notify.email", "orders.fanout/": "order.created" },
 *     "wrappers": { "src/bus.ts#Bus.publish": { "kind": 0, "payload": 1, "options": 2 }, "src/x.ts#emit": false },
 *     "pool":     "src/db.ts#pool" }
 */

import { readFileSync, realpathSync, statSync } from 'node:fs';
import { join, sep } from 'node:path';
import { EXIT, UnbrokerError } from '../src/errors.js';
import { didYouMean } from './nearest.js';

export const CONFIG_NAME = 'unbroker.codemod.json';
const MAX_BYTES = 1_048_576;
const MAX_ENTRIES = 1_000;
const MAX_ARGUMENT = 50;

/** How a confirmed wrapper's arguments map: argument numbers from 0, or for `kind` a fixed text. */
export interface WrapperOverride {
  readonly kind: number | string;
  readonly payload: number;
  readonly options?: number;
}

export interface CodemodConfig {
  /** Routing key pattern (AMQP words, `*` and `#`), or `exchange/pattern`, to kind. */
  readonly kinds: ReadonlyMap<string, string>;
  /** Wrapper id to its mapping; false: these calls are no publishes. */
  readonly wrappers: ReadonlyMap<string, WrapperOverride | false>;
  /** `file#name` of the pool that holds the jobs table; null when there is only one. */
  readonly pool: string | null;
  /** From the command line: enqueue jobs that repeat the publish, in place of the kinds themselves. */
  readonly relay?: boolean;
  /** From the command line: calls that enqueue already are read, too. */
  readonly registry?: boolean;
  /** An element of a list may be missing, for whoever compiles the registry. */
  readonly checkedIndexes?: boolean;
}

export const EMPTY_CONFIG: CodemodConfig = { kinds: new Map(), wrappers: new Map(), pool: null };

/** Reads the file in `root`, or the empty configuration when there is none. A link out of the root is refused. */
export function readConfig(root: string): CodemodConfig {
  const path = join(root, CONFIG_NAME);
  let text: string;
  try {
    if (!realpathSync(path).startsWith(root + sep)) throw bad('it is a link out of the repository');
    if (statSync(path).size > MAX_BYTES) throw bad(`it is larger than ${MAX_BYTES} bytes`);
    text = readFileSync(path, 'utf8');
  } catch (error) {
    if (error instanceof UnbrokerError) throw error;
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return EMPTY_CONFIG;
    throw bad('it cannot be read');
  }
  return parseConfig(text);
}

/** Throws `codemod-config-invalid`, with the place as a JSON path and the nearest name that would be right. */
export function parseConfig(text: string): CodemodConfig {
  let value: unknown;
  try {
    value = JSON.parse(text.replace(/^\uFEFF/, ''));
  } catch {
    throw bad('it is not JSON');
  }
  const top = record(value, '$', ['$schema', 'kinds', 'wrappers', 'pool']);
  const pool = top['pool'] ?? null;
  if (pool !== null && !(typeof pool === 'string' && ID.test(pool)))
    throw bad('$.pool must look like "src/db.ts#pool"');
  return { kinds: parseKinds(top['kinds']), wrappers: parseWrappers(top['wrappers']), pool };
}

/** `src/bus.ts#Bus.publish`. */
const ID = /^[^#]+#[^#]+$/;

function parseKinds(value: unknown): ReadonlyMap<string, string> {
  const entries = Object.entries(record(value ?? {}, '$.kinds'));
  return new Map(
    entries.map(([pattern, kind]) => {
      if (typeof kind !== 'string' || kind === '' || kind.length > 200)
        throw bad(`${at('$.kinds', pattern)} must be a text of 1 to 200 characters`);
      return [pattern, kind];
    }),
  );
}

function parseWrappers(value: unknown): ReadonlyMap<string, WrapperOverride | false> {
  const entries = Object.entries(record(value ?? {}, '$.wrappers'));
  return new Map(
    entries.map(([id, given]) => {
      const path = at('$.wrappers', id);
      if (!ID.test(id)) throw bad(`${path} must be named like "src/bus.ts#Bus.publish"`);
      return [id, given === false ? false : parseOverride(path, given)];
    }),
  );
}

function parseOverride(path: string, given: unknown): WrapperOverride {
  if (typeof given !== 'object' || given === null || Array.isArray(given))
    throw bad(`${path} must be an object like { "kind": 0, "payload": 1 }, or false`);
  const { kind, payload, options } = record(given, path, ['kind', 'payload', 'options']);
  if (!(typeof kind === 'string' && kind !== '' && kind.length <= 200) && !isArgument(kind))
    throw bad(`${path}.kind must be ${ARGUMENT} or a text of 1 to 200 characters`);
  if (!isArgument(payload)) throw bad(`${path}.payload must be ${ARGUMENT}`);
  if (options !== undefined && !isArgument(options)) throw bad(`${path}.options must be ${ARGUMENT}`);
  return options === undefined ? { kind, payload } : { kind, payload, options };
}

const ARGUMENT = `an argument number (0 to ${MAX_ARGUMENT})`;

function isArgument(value: unknown): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= MAX_ARGUMENT;
}

/** With `known` keys, others are refused. */
function record(value: unknown, path: string, known?: readonly string[]): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw bad(`${path} must be an object`);
  const keys = Object.keys(value);
  if (keys.length > MAX_ENTRIES) throw bad(`${path} has more than ${MAX_ENTRIES} entries`);
  const odd = known === undefined ? undefined : keys.find((key) => !known.includes(key));
  if (odd !== undefined && known !== undefined)
    throw bad(`${at(path, odd)} is not known${didYouMean(odd, known)} (known: ${known.join(', ')})`);
  return value as Record<string, unknown>;
}

/**
 * What the configuration says of functions, held against those that there are: a wrapper that is renamed would
 * otherwise be forgotten without a word. `functions`: ids to numbers of parameters, Infinity for a rest.
 */
export function checkWrappers(config: CodemodConfig, functions: ReadonlyMap<string, number>): void {
  for (const [id, given] of config.wrappers) {
    const path = at('$.wrappers', id);
    const count = functions.get(id);
    if (count === undefined)
      throw bad(`${path} names no function that was looked at${didYouMean(id, [...functions.keys()])}`);
    if (given === false) continue;
    for (const key of ['kind', 'payload', 'options'] as const) {
      const index = given[key];
      if (typeof index === 'number' && index >= count)
        throw bad(`${path}.${key} is argument ${index}, and the function has ${count} (from 0)`);
    }
  }
}

/** `$.wrappers["src/bus.ts#Bus.publish"]`. */
function at(path: string, key: string): string {
  return /^[A-Za-z_]\w*$/.test(key) ? `${path}.${key}` : `${path}[${JSON.stringify(key.slice(0, 100))}]`;
}

function bad(why: string): UnbrokerError {
  return new UnbrokerError('codemod-config-invalid', `${CONFIG_NAME} cannot be used: ${why}`, {
    hint: 'See docs/lookup/codemods.md for its form',
    exitStatus: EXIT.badInput,
  });
}

/** The kind for a routing key, by the `kinds` table, else the key itself. The first pattern that matches wins. */
export function kindFor(
  kinds: ReadonlyMap<string, string>,
  exchange: string | undefined,
  key: string,
): string {
  for (const [pattern, kind] of kinds) {
    const slash = pattern.indexOf('/');
    if (
      slash < 0
        ? matchesKey(pattern, key)
        : exchange === pattern.slice(0, slash) && matchesKey(pattern.slice(slash + 1), key)
    ) {
      return kind;
    }
  }
  return key;
}

/** AMQP topic rules: words between dots, `*` is one word, `#` any number. */
export function matchesKey(pattern: string, key: string): boolean {
  const match = (p: readonly string[], k: readonly string[]): boolean => {
    const [head, ...rest] = p;
    if (head === undefined) return k.length === 0;
    if (head === '#') return match(rest, k) || (k.length > 0 && match(p, k.slice(1)));
    return k.length > 0 && (head === '*' || head === k[0]) && match(rest, k.slice(1));
  };
  if (pattern.split('#').length > 4) return pattern === key;
  return match(pattern.split('.'), key.split('.'));
}
