/** What enqueue takes and what it refuses, before anything is sent. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { enqueue, enqueueMany, prepare } from '../../src/enqueue.js';
import { LIMITS, type NewJob, type Queryable } from '../../src/jobs/job.js';

const nested = (depth: number): unknown => {
  let value: unknown = 1;
  for (let i = 0; i < depth; i += 1) value = i % 2 === 0 ? [value] : { a: value };
  return value;
};
const cyclic: unknown[] = [];
cyclic.push(cyclic);
class Money {
  constructor(
    readonly amount: number,
    readonly currency: string,
  ) {}
}

describe('payloads', () => {
  test.each([
    ['nothing', undefined, 'null'],
    ['null', null, 'null'],
    ['text', 'é😀', '"é😀"'],
    ['numbers', [0, -1.5, 1e300, Number.MAX_SAFE_INTEGER], '[0,-1.5,1e+300,9007199254740991]'],
    ['an undefined property, left out as everywhere', { a: undefined, b: 1 }, '{"b":1}'],
    ['a class of plain fields', new Money(3, 'EUR'), '{"amount":3,"currency":"EUR"}'],
    ['no prototype', Object.assign(Object.create(null), { a: 1 }), '{"a":1}'],
    ['keys that objects inherit', JSON.parse('{"toString":1,"__proto__":2}'), '{"toString":1,"__proto__":2}'],
    ['a backslash before u0000', '\\u0000', '"\\\\u0000"'],
  ])('%s', (_name, payload, payloadText) => {
    expect(prepare({ kind: 'k', payload }).payloadText).toBe(payloadText);
  });

  test('the deepest that is taken, and one more', () => {
    expect(prepare({ kind: 'k', payload: nested(LIMITS.payloadDepth) }).payloadText).toContain('1');
    expect(() => prepare({ kind: 'k', payload: nested(LIMITS.payloadDepth + 1) })).toThrow(TypeError);
    expect(() => prepare({ kind: 'k', payload: nested(200_000) })).toThrow(TypeError);
  });

  test('the largest that is taken, one byte more, and far more; in bytes, not characters', () => {
    const room = LIMITS.payloadBytes - 2;
    expect(prepare({ kind: 'k', payload: 'x'.repeat(room) }).payloadText.length).toBe(LIMITS.payloadBytes);
    expect(() => prepare({ kind: 'k', payload: 'x'.repeat(room + 1) })).toThrow(/larger than 1048576 bytes/);
    expect(() => prepare({ kind: 'k', payload: '€'.repeat(room / 2) })).toThrow(/larger than/);
  });

  test('what is in it twice counts twice: the widest list, and a tree of one object that would never end', () => {
    const widest = Array(LIMITS.payloadBytes / 2 - 1).fill(1);
    expect(prepare({ kind: 'k', payload: widest }).payloadText.length).toBe(LIMITS.payloadBytes - 1);
    let tree: unknown = 1;
    for (let i = 0; i < 60; i += 1) tree = { left: tree, right: tree };
    expect(() => prepare({ kind: 'k', payload: tree })).toThrow(/larger than 1048576 bytes/);
    expect(() => prepare({ kind: 'k', headers: { tree } as never })).toThrow(TypeError);
  });

  const refused: readonly (readonly [string, unknown])[] = [
    ['a BigInt', 1n],
    ['a function', () => 1],
    ['a symbol', Symbol('s')],
    ['NaN', Number.NaN],
    ['Infinity', [Number.POSITIVE_INFINITY]],
    ['a Date', { at: new Date() }],
    ['an invalid Date', new Date(Number.NaN)],
    ['a Map', new Map()],
    ['a Set', new Set()],
    ['a RegExp', /x/],
    ['an Error', new Error('x')],
    ['a Promise', Promise.resolve(1)],
    ['a Buffer', Buffer.from('x')],
    ['a typed array', new Uint8Array(2)],
    ['a boxed text', Object('x')],
    ['its own idea of JSON', { toJSON: () => 1 }],
    ['a list with its own idea of JSON', Object.assign([1], { toJSON: () => '\ud800' })],
    ['a cycle', cyclic],
    ['undefined in an array', [undefined]],
    ['a hole in an array', new Array(2)],
    ['NUL', 'a\u0000'],
    ['NUL in a key', { 'a\u0000': 1 }],
    ['a lone surrogate', '\ud800'],
    ['a lone surrogate in a key', { x: { '\udfff': 1 } }],
  ];
  test.each(refused)('%s is a TypeError that does not quote the value', (_name, payload) => {
    expect(() => prepare({ kind: 'k', payload })).toThrow(TypeError);
    expect(() => prepare({ kind: 'k', payload: { secret: 'hunter2', list: [payload] } })).toThrow(
      expect.objectContaining({ message: expect.not.stringContaining('hunter2') }),
    );
    expect(() => prepare({ kind: 'k', headers: { x: payload } as never })).toThrow(TypeError);
  });

  test.each<[unknown, string]>([
    [new Date(), 'payload holds a Date; convert it to plain JSON data first'],
    [{ a: 1, b: undefined, items: [1, { at: new Date() }] }, 'payload.items.1.at holds a Date; convert it'],
    [{ list: [1, undefined] }, 'payload.list.1 holds undefined, which JSON cannot'],
    [{ list: new Array(2) }, 'payload.list.0 holds undefined'],
    [{ fine: {}, of: { 'a\u0000': 1n, b: 1n } }, 'payload.of has a key with NUL'],
    [{ of: { a: 1n, 'b\u0000': 1 } }, 'payload.of.a holds a bigint'],
    [{ m: new Map([['k', 1n]]) }, 'payload.m holds a Map'],
    [{ [`${'x'.repeat(200)}`]: 1n }, `payload.${'x'.repeat(92)} holds a bigint`],
    [{ cyclic }, 'payload is nested deeper than 64 or cyclic'],
  ])('what does not fit is named with its place', (payload, message) => {
    expect(() => prepare({ kind: 'k', payload })).toThrow(
      expect.objectContaining({ name: 'TypeError', message: expect.stringContaining(message) }),
    );
  });

  test('a class with accessors and private fields: its own fields, and nothing else', () => {
    class Price {
      readonly #secret = 1;
      readonly net = 2;
      get gross(): number {
        return this.net + this.#secret;
      }
    }
    expect(prepare({ kind: 'k', payload: { price: new Price() } }).payloadText).toBe('{"price":{"net":2}}');
  });

  test('property: any JSON comes out of its text as it went in', () => {
    fc.assert(
      fc.property(fc.jsonValue({ stringUnit: 'binary' }), (payload) => {
        // JSON has no sign for zero; a lone surrogate or NUL is refused.
        let text: string;
        try {
          text = prepare({ kind: 'k', payload }).payloadText;
        } catch (error) {
          expect(error).toBeInstanceOf(TypeError);
          return;
        }
        expect(JSON.parse(text)).toEqual(JSON.parse(JSON.stringify(payload)));
      }),
      { numRuns: 3_000 },
    );
  });

  test('property: any value is taken or is a TypeError', () => {
    fc.assert(
      fc.property(
        fc.anything({ withBigInt: true, withDate: true, withMap: true, withSparseArray: true }),
        (payload) => {
          try {
            JSON.parse(prepare({ kind: 'k', payload }).payloadText);
          } catch (error) {
            expect(error).toBeInstanceOf(TypeError);
          }
        },
      ),
      { numRuns: 3_000 },
    );
  });
});

describe('options', () => {
  const good: NewJob = {
    kind: 'k'.repeat(200),
    priority: -32_768,
    delayMs: 0,
    maxAttempts: 1_000,
    dedupeKey: 'd'.repeat(500),
    source: '',
    headers: { a: [1] },
    retryPolicy: { type: 'fixed', delayMs: 1 },
  };
  test('at their limits', () => {
    const { payloadText, ...kept } = prepare(good);
    expect(payloadText).toBe('null');
    expect(kept).toEqual(good);
    for (const runAt of ['0001-01-01T00:00:00Z', '1900-01-01T00:00:00Z', '9999-12-31T23:59:59.999Z'])
      expect(prepare({ kind: 'k', runAt: new Date(runAt) }).runAt).toBeInstanceOf(Date);
  });

  test.each<[string, unknown]>([
    ['kind', ''],
    ['kind', 'k'.repeat(201)],
    ['kind', undefined],
    ['kind', 7],
    ['kind', 'a\u0000'],
    ['kind', '\udc00'],
    ['priority', 32_768],
    ['priority', -32_769],
    ['priority', 1.5],
    ['priority', '1'],
    ['priority', null],
    ['maxAttempts', 0],
    ['maxAttempts', 1_001],
    ['maxAttempts', 2 ** 31],
    ['dedupeKey', ''],
    ['dedupeKey', 'd'.repeat(501)],
    ['dedupeKey', 'a\u0000'],
    ['dedupeKey', null],
    ['source', 's'.repeat(1_001)],
    ['source', 'a\u0000'],
    ['runAt', '2030-01-01'],
    ['runAt', new Date(Number.NaN)],
    // Postgres begins at 4713 BC and ends in 294276: what it refuses would cost the caller its transaction.
    ['runAt', new Date(-8.64e15)],
    ['runAt', new Date(8.64e15)],
    ['runAt', null],
    ['delayMs', -1],
    ['delayMs', Number.NaN],
    ['delayMs', Number.POSITIVE_INFINITY],
    ['delayMs', '5'],
    ['delayMs', 3_660 * 24 * 3_600_000 + 1],
    ['headers', 'x'],
    ['headers', [1]],
    ['headers', null],
    ['headers', { big: 'x'.repeat(LIMITS.headersBytes) }],
    ['retryPolicy', { type: 'fixed' }],
    ['retryPolicy', null],
    ['retryPolicy', 'fixed'],
  ])('a wrong %s is a TypeError (%#)', (name, value) => {
    expect(() => prepare({ kind: 'k', [name]: value } as never)).toThrow(TypeError);
  });

  test.each(['delay', 'runat', 'id', 'state', 'leaseToken', 'constructor'])('%s is no option', (name) => {
    const wrong = { [name]: 5_000 } as never;
    const said = new RegExp(`^${name} is no option; a job has .*delayMs`);
    expect(() => prepare({ kind: 'k', payload: 1, ...(wrong as object) })).toThrow(said);
  });

  test('the nearest name is said', () => {
    expect(() => prepare({ kind: 'k', dedupKey: 'x' } as never)).toThrow(/; did you mean dedupeKey\?$/);
    expect(() => prepare({ kind: 'k', colour: 'x' } as never)).toThrow(/, retryPolicy$/);
  });

  test('runAt and delayMs exclude each other', () => {
    expect(() => prepare({ kind: 'k', runAt: new Date(), delayMs: 1 })).toThrow(/not both/);
  });
});

describe('before anything is sent', () => {
  const sent: string[] = [];
  const tx: Queryable = {
    query: async (text) => {
      sent.push(text);
      return { rows: [], rowCount: 0 };
    },
  };
  test.each([
    ['one', () => enqueue(tx, 'k', 1n)],
    [
      'the last of many',
      () => enqueueMany(tx, [...Array(1_500).fill({ kind: 'k' }), { kind: 'k', payload: 1n }]),
    ],
    ['no job at all', () => enqueueMany(tx, [null as never])],
    ...[undefined, null, 7, 'k', {}, { kind: 'k' }].map((jobs): [string, () => Promise<unknown>] => [
      `no list (${JSON.stringify(jobs)})`,
      () => enqueueMany(tx, jobs as never),
    ]),
    ['an option misspelt', () => enqueue(tx, 'k', 1, { delay: 5_000 } as never)],
    ['null for options', () => enqueue(tx, 'k', 1, null as never)],
  ])('%s: TypeError, not a statement', async (_name, act) => {
    await expect(act()).rejects.toThrow(TypeError);
    expect(sent).toEqual([]);
  });

  test('what is no list is told what is', async () => {
    const hint = /^jobs must be a list of jobs, .*enqueue takes a single one$/;
    await expect(enqueueMany(tx, {} as never)).rejects.toThrow(hint);
    await expect(enqueueMany(tx, undefined as never)).rejects.toThrow(hint);
    expect(await enqueueMany(tx, new Set<never>() as never)).toEqual([]);
  });

  test('an empty list asks nothing', async () => {
    expect(await enqueueMany(tx, [])).toEqual([]);
    expect(sent).toEqual([]);
  });
});
