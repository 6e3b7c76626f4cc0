/** The lossless header table: every tag, every oddity that brokers hold, there and back. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  type Field,
  fieldToJson,
  findField,
  integerOf,
  MAX_DEPTH,
  readTable,
  tableToJson,
  textOf,
  writeTable,
} from '../../adapters/rabbitmq/headers.js';
import { array, fields, long, text } from './delivery-builder.js';

const bytes = (hex: string) => Buffer.from(hex, 'hex');
/** One header named `n`. */
const one = (value: Field) => readTable(writeTable([{ key: 'n', value }]));
const json = (value: Field) => JSON.parse(JSON.stringify(tableToJson(one(value)))) as { n: unknown };

describe('tags', () => {
  test.each<[string, Field, unknown]>([
    ['S', text('héllo'), 'héllo'],
    ['I', { tag: 'I', value: -2_147_483_648 }, -2_147_483_648],
    ['i', { tag: 'i', value: 4_294_967_295 }, 4_294_967_295],
    ['s', { tag: 's', value: -32_768 }, -32_768],
    ['u', { tag: 'u', value: 65_535 }, 65_535],
    ['b', { tag: 'b', value: -128 }, -128],
    ['B', { tag: 'B', value: 255 }, 255],
    ['d', { tag: 'd', value: 0.1 }, 0.1],
    ['f', { tag: 'f', value: 1.5 }, 1.5],
    ['d infinite', { tag: 'd', value: Number.POSITIVE_INFINITY }, { '!': 'double', value: 'Infinity' }],
    ['l within 2^53', long(42n), 42],
    ['l past 2^53', long(9_007_199_254_740_993n), { '!': 'int64', value: '9007199254740993' }],
    ['l least', long(-(2n ** 63n)), { '!': 'int64', value: '-9223372036854775808' }],
    ['L', { tag: 'L', value: 9_007_199_254_740_993n }, { '!': 'int64', value: '9007199254740993' }],
    ['T', { tag: 'T', value: 1_764_428_400n }, { '!': 'timestamp', value: 1_764_428_400 }],
    ['T past 2^53', { tag: 'T', value: 2n ** 64n - 1n }, { '!': 'timestamp', value: '18446744073709551615' }],
    ['D', { tag: 'D', scale: 2, digits: 12_345 }, { '!': 'decimal', value: '123.45' }],
    ['t', { tag: 't', value: true }, true],
    ['V', { tag: 'V' }, null],
    ['x', { tag: 'x', bytes: bytes('00ff') }, { '!': 'bytes', base64: 'AP8=' }],
    ['A mixed', array(text('a'), { tag: 'V' }, long(1n), array()), ['a', null, 1, []]],
    ['F', fields({ a: fields({ b: text('c') }) }), { a: { b: 'c' } }],
  ])('%s is read as written and shown exactly', (_name, value, shown) => {
    const written = writeTable([{ key: 'n', value }]);
    expect(writeTable(readTable(written))).toEqual(written);
    expect(json(value)).toEqual({ n: shown });
  });

  test('a decimal is signed: raw ffffffff with two places is -0.01, not 42949672.95', () => {
    const [entry] = readTable(bytes('016e44' + '02' + 'ffffffff'));
    expect(fieldToJson(entry?.value as Field)).toEqual({ '!': 'decimal', value: '-0.01' });
  });

  test('the tag that kills the client library is an int64 like the other', () => {
    const [entry] = readTable(bytes('016e4c' + '0020000000000001'));
    expect(entry?.value).toEqual({ tag: 'L', value: 9_007_199_254_740_993n });
  });
});

describe('what must not get lost', () => {
  test('__proto__ is a header like any other, as text and as a table, and touches no prototype', () => {
    const shown = tableToJson(
      readTable(writeTable([{ key: '__proto__', value: fields({ isAdmin: { tag: 't', value: true } }) }])),
    );
    expect(JSON.stringify(shown)).toBe('{"__proto__":{"isAdmin":true}}');
    expect(({} as { isAdmin?: boolean }).isAdmin).toBeUndefined();
    expect(JSON.stringify(tableToJson(readTable(writeTable([{ key: '__proto__', value: text('x') }]))))).toBe(
      '{"__proto__":"x"}',
    );
  });

  test('text that is not UTF-8 keeps its bytes and never becomes U+FFFD', () => {
    const value: Field = { tag: 'S', bytes: bytes('61fffe62') };
    expect(json(value)).toEqual({ n: { '!': 'bytes', base64: 'Yf/+Yg==' } });
    expect(textOf(value)).toBeUndefined();
  });

  test('text with NUL, which jsonb refuses, is shown as bytes', () => {
    expect(json(text('a\u0000b'))).toEqual({ n: { '!': 'bytes', base64: 'YQBi' } });
  });

  test('repeated keys, keys that are not UTF-8 and the key "!" are kept as pairs, in order', () => {
    const table = readTable(
      writeTable([
        { key: 'a', value: text('1') },
        { key: bytes('ff'), value: text('2') },
        { key: 'a', value: text('3') },
      ]),
    );
    expect(tableToJson(table)).toEqual({
      '!': 'table',
      pairs: [
        ['a', '1'],
        [{ '!': 'bytes', base64: '/w==' }, '2'],
        ['a', '3'],
      ],
    });
    expect(textOf(findField(table, 'a'))).toBe('3');
    expect(tableToJson(one(fields({ '!': text('x') })))).toEqual({
      n: { '!': 'table', pairs: [['!', 'x']] },
    });
  });

  test('entries copied raw are the table again', () => {
    const table = writeTable([
      { key: 'x-death', value: array(fields({ queue: text('q') })) },
      { key: 'n', value: { tag: 'L', value: 1n } },
    ]);
    expect(Buffer.concat(readTable(table).map(({ raw }) => raw))).toEqual(table);
  });
});

describe('hostile tables', () => {
  test('an unknown tag keeps what was read and the rest as bytes', () => {
    const good = writeTable([{ key: 'a', value: text('1') }]);
    const bad = bytes('016e5a0102');
    const table = readTable(Buffer.concat([good, bad]));
    expect(tableToJson(table)).toEqual({
      a: '1',
      n: { '!': 'unreadable', base64: bytes('5a0102').toString('base64') },
    });
    expect(Buffer.concat(table.map(({ raw }) => raw))).toEqual(Buffer.concat([good, bad]));
  });

  test('a table nested 1,000 deep is read down to the limit, siblings after it too', () => {
    let deep: Field = text('bottom');
    for (let level = 0; level < 1_000; level += 1) deep = fields({ d: deep });
    const written = writeTable([
      { key: 'deep', value: deep },
      { key: 'after', value: text('here') },
    ]);
    const table = readTable(written);
    expect(textOf(findField(table, 'after'))).toBe('here');
    let at = findField(table, 'deep');
    let levels = 0;
    while (at?.tag === 'F') {
      at = at.entries[0]?.value;
      levels += 1;
    }
    expect(at?.tag).toBe('?');
    expect(levels).toBe(MAX_DEPTH);
    expect(writeTable(table)).toEqual(written);
  });

  test('what a row shows is bounded; how much was cut is said', () => {
    const long500 = array(...Array.from({ length: 500 }, (_, index) => long(BigInt(index))));
    expect(json(long500)).toMatchObject({ n: { '!': 'cut', count: 500 } });
    const trace = json(text('x'.repeat(100_000)));
    expect(trace).toMatchObject({ n: { '!': 'cut', bytes: 100_000 } });
    expect(JSON.stringify(trace).length).toBeLessThan(9_000);
  });

  test('no bytes make it throw, and raw parts always add up to what came', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (input) => {
        const table = readTable(Buffer.from(input));
        JSON.stringify(tableToJson(table));
        expect(Buffer.concat(table.map(({ raw }) => raw))).toEqual(Buffer.from(input));
      }),
      { numRuns: 2_000 },
    );
  });
});

test('a whole number is found in every width, as text and as a double; nothing else is one', () => {
  for (const field of [
    { tag: 'I', value: 3 },
    long(3n),
    { tag: 'L', value: 3n },
    { tag: 'd', value: 3 },
    text('3'),
  ]) {
    expect(integerOf(field as Field)).toBe(3);
  }
  for (const field of [
    text('oops'),
    text('3.5'),
    { tag: 'd', value: 0.5 },
    { tag: 't', value: true },
    long(2n ** 60n),
  ]) {
    expect(integerOf(field as Field)).toBeUndefined();
  }
});
