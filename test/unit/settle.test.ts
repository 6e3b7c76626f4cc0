/** What follows from how a handler ended, whatever it returned or threw. */
import fc from 'fast-check';
import { describe, expect, test, vi } from 'vitest';
import { type ClaimedJob, LIMITS, type RetryPolicy } from '../../src/jobs/job.js';
import { MAX_RETRY_DELAY_MS } from '../../src/jobs/retry.js';
import { Discard, type HandlerEnd, RetryAfter, Snooze, settle } from '../../src/jobs/settle.js';
import { isStorable } from '../../src/jobs/text.js';

const KIND_POLICY: RetryPolicy = { type: 'fixed', delayMs: 5_000 };

function claimed(fields: Partial<ClaimedJob> = {}): ClaimedJob {
  return {
    id: '1',
    kind: 'k',
    payloadText: 'null',
    body: null,
    contentType: null,
    attempt: 1,
    maxAttempts: 3,
    leaseToken: '1',
    priority: 0,
    runAtMs: 0,
    createdAtMs: 0,
    headers: null,
    progress: null,
    dedupeKey: null,
    source: null,
    retryPolicy: null,
    orderingKey: null,
    ...fields,
  };
}

const threw = (error: unknown): HandlerEnd => ({ type: 'threw', error });
const returned = (value: unknown): HandlerEnd => ({ type: 'returned', value });
const settled = (end: HandlerEnd, fields: Partial<ClaimedJob> = {}, random = 0.5) =>
  settle(claimed(fields), end, KIND_POLICY, random);

describe('returned', () => {
  test.each([
    ['nothing', undefined, null],
    ['null', null, null],
    ['an object', { sent: 2 }, '{"sent":2}'],
    ['false', false, 'false'],
    ['zero', 0, '0'],
    ['an empty text', '', '""'],
    ['an escaped backslash before u0000', '\\u0000', '"\\\\u0000"'],
    ['a whole pair of surrogates', '😀', '"😀"'],
  ])('%s is stored as it is', (_name, value, resultText) => {
    expect(settled(returned(value))).toEqual({ type: 'complete', resultText });
  });

  const cyclic: Record<string, unknown> = {};
  cyclic['self'] = cyclic;
  const deep = (depth: number): unknown => {
    let value: unknown = 0;
    for (let i = 0; i < depth; i += 1) value = [value];
    return value;
  };
  test.each([
    ['a cycle', cyclic],
    ['a BigInt', 1n],
    ['a function', () => 1],
    ['a symbol', Symbol('s')],
    ['a toJSON that throws', { toJSON: () => JSON.parse('{') }],
    [
      'a getter that throws',
      Object.defineProperty({}, 'x', { enumerable: true, get: () => JSON.parse('{') }),
    ],
    ['more than the limit', 'x'.repeat(LIMITS.resultBytes)],
    ['more bytes than the limit though fewer characters', '€'.repeat(LIMITS.resultBytes / 2)],
    ['NUL in a text', 'a\u0000b'],
    ['NUL after a backslash', '\\\u0000'],
    ['NUL in a key', { 'a\u0000': 1 }],
    ['a lone surrogate', '\ud83d'],
    ['a lone surrogate in an array', ['x', '\ude00y']],
    ['nesting that overflows the stack', deep(100_000)],
  ])('%s completes the job with a note', (_name, value) => {
    const outcome = settled(returned(value));
    expect(outcome).toEqual({
      type: 'complete',
      resultText: expect.stringMatching(/^\{"unstorable":"[^"]+"\}$/),
    });
  });

  test('property: any value completes, and what is stored is JSON that jsonb takes, within the limit', () => {
    fc.assert(
      fc.property(fc.anything({ withBigInt: true, withDate: true, withNullPrototype: true }), (value) => {
        const outcome = settled(returned(value));
        if (outcome.type !== 'complete') throw new Error('not completed');
        if (outcome.resultText === null) return;
        expect(Buffer.byteLength(outcome.resultText)).toBeLessThanOrEqual(LIMITS.resultBytes);
        expect(everyText(JSON.parse(outcome.resultText)).every(isStorable)).toBe(true);
      }),
      { numRuns: 2_000 },
    );
  });

  test('property: the note about NUL and surrogates is given exactly when one is inside', () => {
    const text = fc.string({
      unit: fc.constantFrom('\\', 'u', '0', 'd', '8', '"', '\u0000', '\ud800', '\udc00', 'a', '😀'),
    });
    fc.assert(
      fc.property(fc.array(text), (value) => {
        const outcome = settled(returned(value));
        const noted =
          outcome.type === 'complete' && outcome.resultText === '{"unstorable":"NUL or lone surrogate"}';
        expect(noted).toBe(!value.every(isStorable));
      }),
      { numRuns: 5_000 },
    );
  });
});

describe('threw', () => {
  test('an ordinary error is tried again after the kind’s delay', () => {
    expect(settled(threw(new RangeError('no')))).toEqual({
      type: 'retry',
      delayMs: 5_000,
      name: 'RangeError',
      message: 'no',
    });
  });

  test('the job’s own policy goes before the kind’s; one that is none does not', () => {
    const own = { type: 'fixed', delayMs: 7 } as const;
    expect(settled(threw(new Error('x')), { retryPolicy: own })).toMatchObject({ delayMs: 7 });
    const nonsense = { type: 'fixed', delayMs: -1 } as const;
    expect(settled(threw(new Error('x')), { retryPolicy: nonsense })).toMatchObject({ delayMs: 5_000 });
  });

  test('the last attempt is dead, whoever asks for another', () => {
    const last = { attempt: 3, maxAttempts: 3 };
    expect(settled(threw(new Error('x')), last)).toMatchObject({
      type: 'discard',
      name: 'Error',
      message: 'x',
    });
    expect(settled(threw(new RetryAfter(1, 'x')), last)).toMatchObject({
      type: 'discard',
      name: 'RetryAfter',
    });
    expect(settled(threw(new Error('x')), { attempt: 2 })).toMatchObject({ type: 'retry' });
  });

  test('Snooze waits without spending the last attempt; Discard is dead at the first', () => {
    expect(settled(threw(new Snooze(250)), { attempt: 3 })).toEqual({ type: 'snooze', delayMs: 250 });
    expect(settled(threw(new Discard('never', 'refused')))).toEqual({
      type: 'discard',
      name: 'refused',
      message: 'never',
    });
  });

  test('what another copy of the package threw means the same; a subclass is its own', async () => {
    vi.resetModules();
    const other = await import('../../src/jobs/settle.js');
    expect(other.Discard).not.toBe(Discard);
    expect(settled(threw(new other.Snooze(250)))).toEqual({ type: 'snooze', delayMs: 250 });
    expect(settled(threw(new other.RetryAfter(70, 'busy')))).toMatchObject({ type: 'retry', delayMs: 70 });
    expect(settled(threw(new other.Discard('never', 'refused')))).toMatchObject({
      type: 'discard',
      name: 'refused',
    });

    class NoSuchUser extends Discard {}
    expect(settled(threw(new NoSuchUser('gone')))).toMatchObject({ type: 'discard' });
    expect(new NoSuchUser('gone')).toBeInstanceOf(NoSuchUser);
    expect(new Discard('gone')).not.toBeInstanceOf(NoSuchUser);
    expect(new Discard('gone')).not.toBeInstanceOf(Snooze);
    expect(null).not.toBeInstanceOf(Discard);
  });

  test('RetryAfter goes before every policy', () => {
    const own = { type: 'fixed', delayMs: 7 } as const;
    expect(settled(threw(new RetryAfter(90_000, 'busy')), { retryPolicy: own })).toMatchObject({
      type: 'retry',
      delayMs: 90_000,
    });
  });

  const delays = [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, -5, 1e300];
  const none = ['7', undefined, null, {}, new Date(), 7n] as never[];
  test.each([...delays, ...none])('RetryAfter(%s) becomes a delay that the database takes', (delayMs) => {
    const error = Object.assign(new RetryAfter(0, 'x'), { delayMs });
    const { delayMs: written } = settled(threw(error)) as { delayMs: number };
    expect(written).toBeGreaterThanOrEqual(0);
    expect(written).toBeLessThanOrEqual(MAX_RETRY_DELAY_MS);
  });

  test.each([...delays.slice(0, 4), ...none])('Snooze(%s) is refused where it is made', (delayMs) => {
    expect(() => new Snooze(delayMs)).toThrow(/^Snooze takes a delay in ms, 0 or more; got .*Math\.max/);
    // Of a copy of the package that took it: it spends the attempt, so that it ends.
    const error = Object.assign(new Snooze(0), { delayMs });
    expect(settled(threw(error))).toMatchObject({ type: 'retry', name: 'Snooze', delayMs: 5_000 });
    expect(settled(threw(error), { attempt: 3 })).toMatchObject({ type: 'discard' });
  });

  test.each(none)('RetryAfter(%s) is refused where it is made', (delayMs) => {
    expect(() => new RetryAfter(delayMs, 'x')).toThrow(/^RetryAfter takes a delay in ms/);
  });

  test('a Snooze waits no longer than anything may', () => {
    expect(settled(threw(new Snooze(1e300)))).toEqual({ type: 'snooze', delayMs: MAX_RETRY_DELAY_MS });
  });

  const named = (name: unknown, message: unknown): Error => Object.assign(new Error('x'), { name, message });
  const revoked = Proxy.revocable({}, {});
  revoked.revoke();
  test.each([
    ['undefined', undefined],
    ['null', null],
    ['a text', 'oops'],
    ['a number', 42],
    ['an object without a prototype', Object.create(null)],
    ['a name that is no text', named(undefined, 'm')],
    ['a message that is no text', named('N', { deep: true })],
    ['a symbol for a message', named('N', Symbol('s'))],
    [
      'a message that throws',
      Object.defineProperty(new Error('x'), 'message', { get: () => JSON.parse('{') }),
    ],
    ['a name that throws', Object.defineProperty(new Error('x'), 'name', { get: () => JSON.parse('{') })],
    ['a revoked proxy', revoked.proxy],
    ['a Discard whose reason is no text', new Discard('m', 7 as never)],
    ['NUL and half a pair', named('a\u0000', 'b\ud800\u0000')],
    ['a long message', named('n'.repeat(500), 'm'.repeat(100_000))],
    ['a message cut inside a pair', named('N', `${'m'.repeat(LIMITS.errorMessageLength - 1)}😀`)],
  ])('%s settles with texts that the database takes', (_name, error) => {
    for (const attempt of [1, 3]) {
      const outcome = settled(threw(error), { attempt });
      if (outcome.type !== 'retry' && outcome.type !== 'discard') throw new Error(outcome.type);
      for (const [text, max] of [
        [outcome.name, 100],
        [outcome.message, LIMITS.errorMessageLength],
      ] as const) {
        expect(typeof text).toBe('string');
        expect(text.length).toBeLessThanOrEqual(max);
        expect(isStorable(text)).toBe(true);
      }
    }
  });

  test('property: whatever is thrown, the outcome is legal: dead exactly at the last attempt or by Discard', () => {
    const message = fc.string({ unit: 'binary' });
    const error = fc.oneof(
      fc
        .anything({ withBigInt: true, withNullPrototype: true })
        .map((value) => ({ wants: 'retry', error: value })),
      message.map((m) => ({ wants: 'retry', error: new Error(m) })),
      message.map((m) => ({ wants: 'dead', error: new Discard(m) })),
      fc.double({ min: 0, noNaN: true, maxExcluded: true, max: Number.POSITIVE_INFINITY }).map((ms) => ({
        wants: 'snooze',
        error: new Snooze(ms),
      })),
      fc.double().map((ms) => ({ wants: 'retry', error: new RetryAfter(ms, 'm') })),
    );
    fc.assert(
      fc.property(
        error,
        fc.integer({ min: 1, max: 50 }),
        fc.integer({ min: 1, max: 50 }),
        fc.double({ min: 0, max: 0.999, noNaN: true }),
        (thrown, attempt, maxAttempts, random) => {
          const outcome = settled(threw(thrown.error), { attempt, maxAttempts }, random);
          if (thrown.wants === 'snooze') expect(outcome.type).toBe('snooze');
          else
            expect(outcome.type).toBe(
              thrown.wants === 'dead' || attempt >= maxAttempts ? 'discard' : 'retry',
            );
          if ('delayMs' in outcome) {
            expect(outcome.delayMs).toBeGreaterThanOrEqual(0);
            expect(outcome.delayMs).toBeLessThanOrEqual(MAX_RETRY_DELAY_MS);
          }
          if ('message' in outcome)
            expect(isStorable(outcome.message) && isStorable(outcome.name)).toBe(true);
        },
      ),
      { numRuns: 3_000 },
    );
  });
});

function everyText(value: unknown): string[] {
  if (typeof value === 'string') return [value];
  if (Array.isArray(value)) return value.flatMap(everyText);
  if (typeof value === 'object' && value !== null)
    return Object.entries(value).flatMap(([key, entry]) => [key, ...everyText(entry)]);
  return [];
}
