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

export function parseConfig(text: string): CodemodConfig {
  let value: unknown;
  try {
    value = JSON.parse(text.replace(/^\uFEFF/, ''));
  } catch {
    throw bad('it is not JSON');
  }
  const top = record(value, 'the file');
  for (const key of Object.keys(top)) {
    if (!['kinds', 'wrappers', 'pool'].includes(key)) {
      throw bad(`unknown key "${key.slice(0, 50)}" (known: kinds, wrappers, pool)`);
    }
  }
  const pool = top['pool'] ?? null;
  if (pool !== null && !(typeof pool === 'string' && /^[^#]+#[^#]+$/.test(pool))) {
    throw bad('"pool" must look like "src/db.ts#pool"');
  }
  return { kinds: parseKinds(top['kinds']), wrappers: parseWrappers(top['wrappers']), pool };
}

function parseKinds(value: unknown): ReadonlyMap<string, string> {
  const entries = Object.entries(record(value ?? {}, '"kinds"'));
  return new Map(
    entries.map(([pattern, kind]) => {
      if (typeof kind !== 'string' || kind === '' || kind.length > 200) {
        throw bad(`the kind of "${pattern.slice(0, 50)}" must be a text of 1 to 200 characters`);
      }
      return [pattern, kind];
    }),
  );
}

function parseWrappers(value: unknown): ReadonlyMap<string, WrapperOverride | false> {
  const entries = Object.entries(record(value ?? {}, '"wrappers"'));
  return new Map(
    entries.map(([id, given]) => {
      if (!/^[^#]+#[^#]+$/.test(id))
        throw bad(`the wrapper "${id.slice(0, 80)}" must look like "src/bus.ts#Bus.publish"`);
      return [id, given === false ? false : parseOverride(id, given)];
    }),
  );
}

function parseOverride(id: string, given: unknown): WrapperOverride {
  const fields = record(given, `"${id}"`);
  for (const key of Object.keys(fields)) {
    if (!['kind', 'payload', 'options'].includes(key))
      throw bad(`unknown key "${key.slice(0, 50)}" in "${id}"`);
  }
  const { kind, payload, options } = fields;
  if (typeof kind !== 'string' && !isArgument(kind))
    throw bad(`"kind" of "${id}" must be an argument number or a text`);
  if (!isArgument(payload)) throw bad(`"payload" of "${id}" must be an argument number`);
  if (options !== undefined && !isArgument(options))
    throw bad(`"options" of "${id}" must be an argument number`);
  return options === undefined ? { kind, payload } : { kind, payload, options };
}

function isArgument(value: unknown): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= MAX_ARGUMENT;
}

function record(value: unknown, where: string): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw bad(`${where} must be an object`);
  if (Object.keys(value).length > MAX_ENTRIES) throw bad(`${where} has more than ${MAX_ENTRIES} entries`);
  return value as Record<string, unknown>;
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
