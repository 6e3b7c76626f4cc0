/**
 * Small building blocks for checking data that people write: config files, flags. Each checker takes the value and the
 * path to name in an error, and returns the value typed. A wrong value throws `config-invalid` (exit 2), an unknown key
 * says which one was probably meant.
 */
import { EXIT, UnbrokerError } from './errors.js';

export type Checker<T> = (value: unknown, path: string) => T;

export function invalid(path: string, expected: string): UnbrokerError {
  return new UnbrokerError('config-invalid', `${path} is not valid`, {
    hint: `It must be ${expected}${expected.endsWith('?') ? '' : '.'}`,
    exitStatus: EXIT.badInput,
  });
}

function missing(path: string): UnbrokerError {
  return new UnbrokerError('config-invalid', `${path} is missing`, {
    hint: 'Add it.',
    exitStatus: EXIT.badInput,
  });
}

/** A whole number from `min` to `max`. */
export const integer =
  (min: number, max: number): Checker<number> =>
  (value, path) => {
    if (typeof value === 'number' && Number.isInteger(value) && value >= min && value <= max) return value;
    throw invalid(path, `a whole number from ${min} to ${max}`);
  };

/** A string of 1 to `maxLength` characters without control characters; `pattern` is named by `expected`. */
export const string =
  (options: { maxLength?: number; pattern?: RegExp; expected?: string } = {}): Checker<string> =>
  (value, path) => {
    const { maxLength = 1_000, pattern, expected = `a string of 1 to ${maxLength} characters` } = options;
    const ok =
      typeof value === 'string' &&
      value.length >= 1 &&
      value.length <= maxLength &&
      // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is refused
      !/[\u0000-\u001f\u007f]/.test(value) &&
      (pattern === undefined || pattern.test(value));
    if (ok) return value;
    throw invalid(path, expected);
  };

export const boolean: Checker<boolean> = (value, path) => {
  if (typeof value === 'boolean') return value;
  throw invalid(path, 'true or false');
};

export const oneOf =
  <const T extends string>(...options: readonly T[]): Checker<T> =>
  (value, path) => {
    if (options.includes(value as T)) return value as T;
    throw invalid(path, `one of ${options.join(', ')}${suggestion(String(value), options)}`);
  };

/** Up to `maxItems` (default 1,000) values, at least `minItems` (default none). */
export const arrayOf =
  <T>(item: Checker<T>, maxItems = 1_000, minItems = 0): Checker<T[]> =>
  (value, path) => {
    if (!Array.isArray(value) || value.length > maxItems || value.length < minItems)
      throw invalid(path, `a list of ${minItems === 0 ? 'at most' : `${minItems} to`} ${maxItems}`);
    return value.map((entry, index) => item(entry, `${path}[${index}]`));
  };

/** An object whose keys are free, or pass `name`, and whose values pass `item`. */
export const record =
  <T>(item: Checker<T>, maxKeys = 1_000, name?: Checker<string>): Checker<Record<string, T>> =>
  (value, path) => {
    const entries = isObject(value) ? Object.entries(value) : null;
    if (entries === null || entries.length > maxKeys)
      throw invalid(path, `an object of at most ${maxKeys} keys`);
    return Object.fromEntries(
      entries.map(([key, entry]) => {
        name?.(key, `the name ${JSON.stringify(key.slice(0, 60))} in ${path}`);
        return [key, item(entry, `${path}.${key.slice(0, 200)}`)];
      }),
    );
  };

export const anything: Checker<unknown> = (value) => value;

type Checked<Shape extends Record<string, Checker<unknown>>> = {
  [Key in keyof Shape]?: ReturnType<Shape[Key]>;
};

/** An object with no keys but these, each optional unless listed in `required`. */
export const object =
  <const Shape extends Record<string, Checker<unknown>>, Required extends keyof Shape & string = never>(
    shape: Shape,
    required: readonly Required[] = [],
  ): Checker<Checked<Shape> & { [Key in Required]-?: ReturnType<Shape[Key]> }> =>
  (value, path) => {
    if (!isObject(value)) throw invalid(path, 'an object');
    const out: Record<string, unknown> = {};
    for (const [key, entry] of Object.entries(value)) {
      const checker = Object.hasOwn(shape, key) ? shape[key] : undefined;
      if (checker === undefined) {
        throw new UnbrokerError('config-invalid', `${path}.${key.slice(0, 60)} is not a known key`, {
          hint: `Known keys: ${Object.keys(shape).join(', ')}${suggestion(key, Object.keys(shape)) || '.'}`,
          exitStatus: EXIT.badInput,
        });
      }
      if (entry !== undefined) out[key] = checker(entry, `${path}.${key}`);
    }
    for (const key of required) if (out[key] === undefined) throw missing(`${path}.${key}`);
    return out as never;
  };

/** `30s`, `5m`, `250ms`, `2h`, `1d` to milliseconds, within the range. A number without a unit is refused. */
export function parseDuration(text: string, name: string, minMs: number, maxMs: number): number {
  const match = /^(\d{1,9})(ms|s|m|h|d)$/.exec(text);
  const unitMs = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 }[match?.[2] ?? ''];
  const durationMs = match && unitMs !== undefined ? Number(match[1]) * unitMs : Number.NaN;
  if (durationMs >= minMs && durationMs <= maxMs) return durationMs;
  throw invalid(name, `a number with a unit (ms, s, m, h, d) from ${minMs}ms to ${maxMs}ms, for example 30s`);
}

/**
 * `; did you mean x?` when one of the options is two edits away or fewer, or begins with the word (`databaseUrl`,
 * `maxAge`); else an empty string.
 */
export function suggestion(word: string, options: readonly string[]): string {
  const given = word.toLowerCase();
  const near = options
    .map((option) => ({ option, distance: editDistance(given, option.toLowerCase()) }))
    .filter(({ distance, option }) => distance <= Math.min(2, Math.floor(option.length / 2)))
    .sort((a, b) => a.distance - b.distance)[0]?.option;
  const longer = options.filter((option) => given.length >= 3 && option.toLowerCase().startsWith(given));
  const meant = near ?? (longer.length === 1 ? longer[0] : undefined);
  return meant === undefined ? '' : `; did you mean ${meant}?`;
}

/** Not a promise, a map or a date, whose contents nobody would see: all keys of such a config would be passed over. */
function isObject(value: unknown): value is Record<string, unknown> {
  const kind = Object.prototype.toString.call(value);
  return (kind === '[object Object]' && typeof value === 'object') || kind === '[object Module]';
}

function editDistance(a: string, b: string): number {
  if (Math.abs(a.length - b.length) > 2 || a.length > 60) return 3;
  let previous = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i += 1) {
    const current = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const swap = (previous[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      current[j] = Math.min(swap, (previous[j] ?? 0) + 1, (current[j - 1] ?? 0) + 1);
    }
    previous = current;
  }
  return previous[b.length] ?? 0;
}
