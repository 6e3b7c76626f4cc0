/** Bodies: text as it was, or bytes with a reason; never a rounded number and never a silent null. */
import { deflateSync, gzipSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { memberText, readBody } from '../../adapters/rabbitmq/body.js';

const read = (body: string | Buffer, encoding?: string) => {
  const { payloadText, note } = readBody(Buffer.isBuffer(body) ? body : Buffer.from(body), encoding, {
    careful: true,
  });
  return { payloadText, note };
};
const kept = (payloadText: string) => ({ payloadText, note: null });
const refused = (note: string) => ({ payloadText: null, note });

describe('what Postgres holds exactly stays the text that came', () => {
  test.each([
    '{"id":9007199254740993,"amt":10.10}',
    '{"n":1e400}',
    '{"n":-0}',
    '["favoriteFruit","banana"]',
    '"text"',
    'null',
    ' \t\n{"a" : 1}\r\n',
    '{"a":1,"a":2}',
    '{"a":"\\\\u0000"}',
    '{"smile":"\\ud83d\\ude00"}',
    '{"emoji":"😀"}',
    // Numbers by their look, in strings: an id in hex, behind what looks like a string's end.
    '{"id":"0c0b3e81-2f60-4d6b-9c1e-3e8123456789"}',
    '["\\\\","\\"","9e99999999"]',
    '{"9e99999999":1e10}',
  ])('%s', (body) => expect(read(body)).toEqual(kept(body)));

  test('a byte order mark is taken off', () => expect(read('\ufeff{"a":1}')).toEqual(kept('{"a":1}')));
  test('an empty body is JSON null', () => expect(read('')).toEqual(kept('null')));
});

describe('what it cannot hold is refused with its reason', () => {
  test.each([
    ['not json', 'not-json'],
    ['{"n":NaN}', 'not-json'],
    ['{"n":Infinity}', 'not-json'],
    ['{"a":1}{"a":2}', 'not-json'],
    ["{'a':1}", 'not-json'],
    ['{"a":"x\\u0000y"}', 'nul'],
    ['{"a":"x\u0000y"}', 'nul'],
    ['{"a":"\\ud800"}', 'lone-surrogate'],
    ['{"a":"\\ude00\\ud83d"}', 'lone-surrogate'],
    ['{"a":"\\ud83d \\ude00"}', 'lone-surrogate'],
    ['{"a":"\\ud83d"}', 'lone-surrogate'],
    [`[${'1e131071,'.repeat(20)}1]`, 'huge-number'],
    [`["\\\\",${'1e131071,'.repeat(20)}"\\""]`, 'huge-number'],
    [`{"a":-2.5E+9999999}`, 'huge-number'],
    ['[1e-9999999]', 'huge-number'],
    ['3e9999999 words', 'not-json'],
  ])('%j: %s', (body, note) => expect(read(body)).toEqual(refused(note)));

  test('invalid UTF-8 is binary, never U+FFFD', () => {
    expect(read(Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x7d]))).toEqual(refused('binary'));
    expect(read(Buffer.from('{"a":1}', 'utf16le'))).toEqual(refused('nul'));
    expect(read(Buffer.from([0x82, 0xa1, 0x61, 0x01]))).toEqual(refused('binary'));
  });

  test('exponents that the database would write out as too many digits are their own reason, whoever looks', () => {
    const hurried = (body: string | Buffer) =>
      readBody(Buffer.from(body), undefined, { careful: false }).note;
    expect(hurried('[1e9999999]')).toBe('huge-number');
    expect(hurried(gzipSync('[1e9999999]'))).toBe('huge-number');
    expect(hurried('[1e1048577]')).toBe('huge-number');
    expect(hurried('[1e1048576]')).toBeNull();
  });

  test('at the limit, one past it', () => {
    const limited = (body: string) =>
      readBody(Buffer.from(body), undefined, { careful: true, maxBytes: 10 }).note;
    expect(limited('"12345678"')).toBeNull();
    expect(limited('"123456789"')).toBe('too-large');
  });
});

describe('compressed bodies, told by their bytes', () => {
  const json = '{"id":9007199254740993}';

  test.each(['gzip:UTF-8', 'gzip', 'utf-8', undefined])('gzip with content-encoding %s', (encoding) => {
    expect(read(gzipSync(json), encoding)).toEqual(kept(json));
  });
  test('plain JSON that says gzip', () => expect(read(json, 'gzip')).toEqual(kept(json)));
  test('zlib', () => expect(read(deflateSync(json))).toEqual(kept(json)));
  test('a bomb is refused at the cap', () => {
    expect(read(gzipSync(Buffer.alloc(64 * 1_048_576, 0x20)))).toEqual(refused('too-large'));
  });
  test('a cut one is binary', () => expect(read(gzipSync(json).subarray(0, 20))).toEqual(refused('binary')));
});

test('a megabyte of strings that stay open is read once', () => {
  const text = `[1e100,"${'\\"'.repeat(500_000)}`;
  const began = performance.now();
  expect(readBody(Buffer.from(text), undefined, { careful: false }).payloadText).toBe(text);
  // 10 to 100 ms; with each open string tried from its quote to the end it is most of an hour.
  expect(performance.now() - began).toBeLessThan(2_000);
});

test('taken for JSON without a look inside, it is parsed only when somebody asks', () => {
  const body = readBody(Buffer.from('{"a":'), undefined, { careful: false });
  expect(body.payloadText).toBe('{"a":');
  expect(body.parsed()).toBeUndefined();
  expect(readBody(Buffer.from('plain words'), undefined, { careful: false }).note).toBe('not-json');
});

describe('the text of a member', () => {
  test.each<[string, string, string | undefined]>([
    ['{"data":{"id":9007199254740993, "x":[1,"}"]} ,"b":2}', 'data', '{"id":9007199254740993, "x":[1,"}"]}'],
    ['{"a":"\\"data\\":1","data" : 1.10}', 'data', '1.10'],
    ['{"data":1,"data":2}', 'data', '2'],
    ['{"d\\u0061ta":[]}', 'data', '[]'],
    ['{"data":"a\\\\"}', 'data', '"a\\\\"'],
    [' { } ', 'data', undefined],
    ['[{"data":1}]', 'data', undefined],
    ['{"x":{"data":1}}', 'data', undefined],
    ['{"data":null}', 'data', 'null'],
  ])('%s', (text, name, member) => expect(memberText(text, name)).toBe(member));
});
