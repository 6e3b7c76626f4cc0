/** Durations, the config's shape and its suggestions, and that the page of the config names every key. */
import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { parseDuration, suggestion } from '../../src/check.js';
import { type Config, checkConfig, defineConfig, WORKER_BOUNDS } from '../../src/config.js';
import { UnbrokerError } from '../../src/errors.js';

function failure(act: () => unknown): UnbrokerError {
  try {
    act();
  } catch (error) {
    if (error instanceof UnbrokerError) return error;
    throw error;
  }
  throw new Error('nothing was thrown');
}

describe('durations', () => {
  const parse = (text: string) => parseDuration(text, '--lease', 100, 86_400_000);

  test.each([
    ['250ms', 250],
    ['30s', 30_000],
    ['5m', 300_000],
    ['2h', 7_200_000],
    ['1d', 86_400_000],
    ['100ms', 100],
    ['000030s', 30_000],
  ])('%s', (text, ms) => {
    expect(parse(text)).toBe(ms);
  });

  test.each([
    ...[
      '',
      '30',
      '30 s',
      ' 30s',
      '30s ',
      '30S',
      '30M',
      '1.5s',
      '-5s',
      '+5s',
      '1e3s',
      '0x1s',
      'Infinitys',
      '30sec',
      's',
      '5m30s',
    ],
    ...['0s', '99ms', '2d', '86400001ms', '9999999999s', '٣٠s', '30s\n'],
  ])('%j is refused with the range, exit 2', (text) => {
    const error = failure(() => parse(text));
    expect(error).toMatchObject({ code: 'config-invalid', exitStatus: 2 });
    expect(error.line).toMatch(/^--lease is not valid\. .*100ms to 86400000ms.*30s\.$/);
  });

  test('property: every whole number of a unit within the range is its product, everything else is refused', () => {
    const units = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;
    fc.assert(
      fc.property(
        fc.nat(2_000_000_000),
        fc.constantFrom(...(Object.keys(units) as (keyof typeof units)[])),
        (n, unit) => {
          const ms = n * units[unit];
          if (String(n).length <= 9 && ms >= 100 && ms <= 86_400_000) expect(parse(`${n}${unit}`)).toBe(ms);
          else expect(failure(() => parse(`${n}${unit}`)).exitStatus).toBe(2);
        },
      ),
    );
    fc.assert(
      fc.property(fc.string(), (text) => {
        try {
          expect(parse(text)).toBeGreaterThanOrEqual(100);
        } catch (error) {
          expect(error).toBeInstanceOf(UnbrokerError);
        }
      }),
    );
  });
});

describe('suggestions', () => {
  test.each([
    ['shema', '; did you mean schema?'],
    ['SCHEMA', '; did you mean schema?'],
    ['worker', '; did you mean worker?'],
    ['wroker', '; did you mean worker?'],
    ['concurrency', ''],
    ['work', '; did you mean worker?'],
    ['wo', ''],
    ['', ''],
    ['x'.repeat(100_000), ''],
  ])('%.20s', (word, expected) => {
    expect(suggestion(word, ['schema', 'worker', 'x'])).toBe(expected);
  });
});

describe('the config', () => {
  const complete: Config = {
    schema: 'jobs_1',
    databaseUrlEnv: 'PG_URL',
    amqpUrlEnv: 'RABBIT',
    handlers: './handlers.ts',
    worker: { concurrency: 20, leaseMs: 30_000, pollMs: 100, logLevel: 'warn' },
  };

  test('a whole one passes unchanged, and so does an empty one', () => {
    expect(checkConfig(defineConfig(complete))).toEqual(complete);
    expect(checkConfig({})).toEqual({});
  });

  test.each([
    [{ shema: 'x' }, 'config.shema is not a known key', 'did you mean schema?'],
    [
      { worker: { concurency: 1 } },
      'config.worker.concurency is not a known key',
      'did you mean concurrency?',
    ],
    [{ worker: { leaseMs: 0 } }, 'config.worker.leaseMs is not valid', 'from 100 to 86400000'],
    [{ worker: { leaseMs: '30s' } }, 'config.worker.leaseMs is not valid', 'a whole number'],
    [{ worker: { leaseMs: 1e9 } }, 'config.worker.leaseMs is not valid', 'from 100 to 86400000'],
    [{ worker: { concurrency: Number.NaN } }, 'config.worker.concurrency is not valid', 'from 1 to 10000'],
    [{ worker: { concurrency: -1 } }, 'config.worker.concurrency is not valid', 'from 1 to 10000'],
    [{ worker: { concurrency: 1e6 } }, 'config.worker.concurrency is not valid', 'from 1 to 10000'],
    [{ worker: { concurrency: 1.5 } }, 'config.worker.concurrency is not valid', 'whole'],
    [
      { worker: { logLevel: 'warning' } },
      'config.worker.logLevel is not valid',
      'debug, info, warn, error, silent',
    ],
    [{ worker: [] }, 'config.worker is not valid', 'an object'],
    [
      { databaseUrlEnv: 'postgres://u:secret@h/d' },
      'config.databaseUrlEnv is not valid',
      'secrets stay out of files',
    ],
    [{ handlers: '' }, 'config.handlers is not valid', 'a string'],
    [{ handlers: 'a\nb' }, 'config.handlers is not valid', 'characters'],
    [{ schema: 7 }, 'config.schema is not valid', 'a string'],
    [[], 'config is not valid', 'an object'],
    [null, 'config is not valid', 'an object'],
    ['x', 'config is not valid', 'an object'],
    [JSON.parse('{"__proto__": {"schema": "x"}}'), 'config.__proto__ is not a known key', 'Known keys'],
    [{ toString: 1 }, 'config.toString is not a known key', 'Known keys'],
  ])('%j is refused, exit 2', (value, what, hint) => {
    const error = failure(() => checkConfig(value));
    expect(error).toMatchObject({ code: 'config-invalid', exitStatus: 2 });
    expect(error.line).toContain(what);
    expect(error.line).toContain(hint);
    expect(error.line).not.toContain('secret@');
  });

  test.each([
    'jobs"; drop schema public cascade; --',
    'a'.repeat(64),
    'Jobs',
    'pg_temp',
    'pg_catalog',
    'information_schema',
    'public',
    'a.b',
    '%I',
    '$1',
    '{}',
    '\\',
    'a b',
    '1a',
    'ü',
    '',
  ])('the schema name %j is refused, exit 2', (schema) => {
    expect(failure(() => checkConfig({ schema })).exitStatus).toBe(2);
  });

  test('every bound is honoured at, below and above', () => {
    const { maxAgeMs, maxCount, ...direct } = WORKER_BOUNDS;
    for (const [key, { min, max }] of Object.entries({ maxAgeMs, maxCount })) {
      const rule = (value: number) => checkConfig({ worker: { retention: { default: { [key]: value } } } });
      for (const value of [min, max])
        expect(rule(value).worker?.retention?.default).toEqual({ [key]: value });
      for (const value of [min - 1, max + 1]) expect(failure(() => rule(value)).exitStatus).toBe(2);
    }
    for (const [key, { min, max }] of Object.entries(direct)) {
      for (const value of [min, max])
        expect(checkConfig({ worker: { [key]: value } }).worker).toEqual({ [key]: value });
      for (const value of [min - 1, max + 1])
        expect(failure(() => checkConfig({ worker: { [key]: value } })).exitStatus).toBe(2);
    }
  });

  test('property: any value passes or is refused with exit 2 in one line; what passes is idempotent', () => {
    fc.assert(
      fc.property(
        fc.oneof(
          fc.anything(),
          fc.record({ worker: fc.anything() }),
          fc.dictionary(fc.string(), fc.anything()),
        ),
        (value) => {
          try {
            const checked = checkConfig(value);
            expect(checkConfig(checked)).toEqual(checked);
          } catch (error) {
            if (!(error instanceof UnbrokerError)) throw error;
            expect(error.exitStatus).toBe(2);
            expect(error.line.length).toBeLessThan(500);
          }
        },
      ),
      { numRuns: 5_000 },
    );
  });
});

describe('values that would have been passed over', () => {
  const seam = (change: object) => ({
    seam: {
      rules: [{ name: 'a', source: 'o', key: 'id', since: 'at', expects: { key: 'payload.id' }, ...change }],
    },
  });
  const drain = (kind: string, match: object = { queue: 'x.*' }) => ({ drain: { rules: [{ match, kind }] } });
  const twice = seam({}).seam.rules.flatMap((rule) => [rule, rule]);
  test.each<[unknown, string]>([
    [Promise.resolve({ schema: 'x' }), 'config is not valid'],
    [new Map([['schema', 'x']]), 'config is not valid'],
    [{ worker: new Date(0) }, 'config.worker is not valid'],
    [{ databaseUrl: 'X' }, 'did you mean databaseUrlEnv?'],
    [{ databaseUrlEnv: 'db_url' }, 'in capitals'],
    [{ worker: { kinds: { '': { maxRunning: 1 } } } }, 'the name "" in config.worker.kinds'],
    [{ worker: { kinds: { ['k'.repeat(201)]: { maxRunning: 1 } } } }, 'a string of 1 to 200 characters'],
    [
      { worker: { retention: { kinds: { 'a\nb': { maxCount: 1 } } } } },
      'the name "a\\nb" in config.worker.retention.kinds',
    ],
    [seam({ expects: [] }), 'config.seam.rules[0].expects is not valid. It must be a list of 1 to 10'],
    [
      seam({ expects: { key: 'id', matches: { 'Data.x': '1' } } }),
      'the name "Data.x" in config.seam.rules[0].expects.matches',
    ],
    [{ seam: { rules: twice } }, 'config.seam.rules[1].name is not valid. It must be used once'],
    [drain('order.{2}'), 'config.drain.rules[0].kind is not valid. It must be without {2}'],
    [drain('order.{0}'), 'without {0}'],
    [drain('{1}', { queue: 'x' }), 'a star in match'],
    [drain('{queu}.x'), 'known are {queue}, {exchange}, {routingKey}, {type} and {1} to {1}'],
    [
      { drain: { groups: { a: { queues: ['x', 'x'] } } } },
      'without x, which is in two groups, or in one twice',
    ],
    [{ serve: { contracts: [] } }, 'config.serve.contracts is not valid. It must be a list of 1 to 20'],
    [
      { serve: { targets: { 'queue:a': 'k', 'orders.work': 'k' } } },
      'the name "orders.work" in config.serve.targets',
    ],
    [
      { notify: { allowedNetworks: ['10.0.0.0/8', 'localhost'] } },
      'config.notify.allowedNetworks[1] is not valid',
    ],
    [
      { notify: { webhook: { limits: { maxBurst: 5 } } } },
      'maxBurst is not valid. It must be given beside maxPerSecond',
    ],
    [{ notify: { allowedNetworks: ['10.0.0.0/33'] } }, 'config.notify.allowedNetworks[0] is not valid'],
  ])('%j', (value, line) => {
    const error = failure(() => checkConfig(value));
    expect(error).toMatchObject({ code: 'config-invalid', exitStatus: 2 });
    expect(error.line).toContain(line);
  });

  test('a schema by its place, with what a name may be', () => {
    const error = failure(() => checkConfig({ schema: 'Jobs' }));
    expect(error.line).toMatch(/^config\.schema is not usable\. Use 1 to 63 of/);
    expect(error).toMatchObject({ code: 'schema-invalid', exitStatus: 2 });
  });

  test('what is filled passes: names of parts, stars in the order of the patterns, other braces', () => {
    const kinds = ['{queue}.{exchange}.{routingKey}.{type}', '{1}.{2}', '{"cmd":"sum"}'];
    for (const kind of kinds)
      expect(checkConfig(drain(kind, { exchange: 'a.*', routingKey: '*' }))).toBeTruthy();
  });

  test('a fingerprint as openssl prints it', () => {
    const printed = Array.from({ length: 32 }, (_, n) => n.toString(16).padStart(2, '0').toUpperCase()).join(
      ':',
    );
    const tls = { certFile: 'a', keyFile: 'b', caFile: 'c' };
    const { serve } = checkConfig({ serve: { tls, keys: [{ name: 'a', certificate: printed }] } });
    expect(serve?.keys?.[0]?.certificate).toBe(printed.replaceAll(':', '').toLowerCase());
  });
});

test('a key that must be there and is not is said to be missing, by its place', () => {
  const rule = { name: 'r', source: 'orders', key: 'id', expects: { kind: 'a', key: 'payload.id' } };
  const error = failure(() => checkConfig({ seam: { rules: [rule] } }));
  expect(error).toMatchObject({ code: 'config-invalid', exitStatus: 2 });
  expect(error.line).toBe('config.seam.rules[0].since is missing. Add it.');
});

test('the page of the config names every key', () => {
  const page = readFileSync(new URL('../../docs/lookup/config.md', import.meta.url), 'utf8');
  const rule = { name: 'r', source: 'o', key: 'id', since: 'at' };
  // Each place with a key that nobody knows: the error lists those that are known.
  const places: readonly ((odd: object) => unknown)[] = [
    (odd) => odd,
    (odd) => ({ worker: odd }),
    (odd) => ({ worker: { kinds: { k: odd } } }),
    (odd) => ({ worker: { kinds: { k: { rate: odd } } } }),
    (odd) => ({ worker: { retention: odd } }),
    (odd) => ({ worker: { retention: { default: odd } } }),
    (odd) => ({ seam: odd }),
    (odd) => ({ seam: { rules: [odd] } }),
    (odd) => ({ seam: { rules: [{ ...rule, expects: odd }] } }),
    (odd) => ({ drain: odd }),
    (odd) => ({ drain: { groups: { g: odd } } }),
    (odd) => ({ drain: { rules: [odd] } }),
    (odd) => ({ drain: { rules: [{ match: odd }] } }),
    (odd) => ({ serve: odd }),
    (odd) => ({ serve: { keys: [odd] } }),
    (odd) => ({ serve: { tls: odd } }),
    (odd) => ({ notify: odd }),
    (odd) => ({ notify: { email: odd } }),
    (odd) => ({ notify: { email: { providers: [], ...odd } } }),
    (odd) => ({ notify: { email: { provider: 'sendgrid', ...odd } } }),
    (odd) => ({ notify: { sms: { provider: 'twilio', ...odd } } }),
    (odd) => ({ notify: { push: odd } }),
    (odd) => ({ notify: { webhook: { limits: odd } } }),
    (odd) => ({ notify: { webhook: { limits: { maxPerRecipient: odd } } } }),
    (odd) => ({ notify: { webhook: { limits: { breaker: odd } } } }),
    (odd) => ({ notify: { statusEvents: odd } }),
    (odd) => ({ notify: { qstash: odd } }),
    (odd) => ({ relay: odd }),
  ];
  const known = places.flatMap((place) => {
    const { hint } = failure(() => checkConfig(place({ zzzz: 1 })));
    return /^Known keys: ([\w, ]+)\./.exec(hint)?.[1]?.split(', ') ?? [`nothing said of ${hint}`];
  });
  expect(known.length).toBeGreaterThan(100);
  const code = (page.match(/`[^`]+`/g) ?? []).join(' ');
  expect(known.filter((key) => !new RegExp(`\\b${key}\\b`).test(code))).toEqual([]);
});
