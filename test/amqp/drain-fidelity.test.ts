/** What clients cannot even read comes through the real broker and database exactly: headers, bodies, all fourteen tags. */
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Field } from '../../adapters/rabbitmq/headers.js';
import { withSeed } from '../support/seeded.js';
import {
  array,
  fields,
  long,
  type Parts,
  propertyBytes,
  READ_BY_THE_BROKER,
  text,
} from '../unit/delivery-builder.js';
import { type DrainWorld, drainWorld } from './drain-world.js';

let world: DrainWorld;
beforeAll(async () => {
  world = await drainWorld();
  await world.channel.assertQueue('odd', { durable: true });
});
afterAll(() => world.close());

interface Row {
  readonly name: string;
  readonly kind: string;
  readonly state: string;
  readonly payload: string | null;
  readonly body: Buffer | null;
  readonly error: string | null;
  readonly headers: { readonly amqp: { readonly headers?: Record<string, unknown> } } | null;
  readonly rawBody: Buffer;
  readonly rawProperties: Buffer;
}

const CONFIG = { rules: [{ match: { queue: '*' }, kind: 'odd' }] };

/** Sends what is named, drains, answers the rows by name (the message id). */
async function through(messages: Readonly<Record<string, Pick<Parts, 'headers' | 'properties' | 'body'>>>) {
  const sent = Object.entries(messages).map(([name, parts]) => ({
    name,
    bytes: propertyBytes({ ...parts, properties: { deliveryMode: 2, messageId: name, ...parts.properties } }),
    body: Buffer.from(parts.body ?? '{}'),
  }));
  for (const { bytes, body } of sent) await world.publishRaw('odd', bytes, body);
  const results = await world.drain({ config: CONFIG });
  expect(results.map(({ books }) => ({ rows: books.rows, balanced: books.balanced }))).toEqual([
    { rows: sent.length, balanced: true },
  ]);
  const rows = await world.rows<Row>(
    `select l.message_id as name, j.kind, j.state, j.payload::text as payload, j.body, j.errors -> 0 ->> 'name' as error, j.headers,
            l.body as "rawBody", l.properties as "rawProperties"
     from unbroker.drain_ledger l join unbroker.jobs j on j.id = l.job order by l.batch, l.position`,
  );
  await world.database.pool.query('truncate unbroker.jobs, unbroker.drain_ledger');
  expect(rows.map(({ name }) => name)).toEqual(sent.map(({ name }) => name));
  for (const [index, row] of rows.entries()) {
    // Not toEqual: it compares a megabyte for seconds.
    expect([row.name, row.rawBody.equals(sent[index]?.body ?? Buffer.of(0))]).toEqual([row.name, true]);
    expect(row.rawProperties).toEqual(sent[index]?.bytes);
  }
  return new Map(rows.map((row) => [row.name, row]));
}

describe('headers', () => {
  test('every tag, and what amqplib rounds, loses or dies of, is in the row and in the ledger', async () => {
    const raw = (hex: string) => Buffer.from(hex, 'hex');
    const rows = await through({
      long: { headers: { n: long(9_007_199_254_740_993n) } },
      L: { headers: { n: { tag: 'L', value: 9_007_199_254_740_993n } } },
      proto: { headers: Buffer.concat([raw('095f5f70726f746f5f5f53'), raw('0000000178')]) },
      'proto table': {
        headers: Buffer.concat([raw('095f5f70726f746f5f5f46'), raw('0000000a'), raw('07697341646d696e7401')]),
      },
      'not utf-8': { headers: { s: { tag: 'S', bytes: raw('61fffe62') } } },
      decimal: { headers: { d: { tag: 'D', scale: 2, digits: -1 } } },
      twice: { headers: Buffer.concat([raw('0161530000000131'), raw('0161530000000132')]) },
      mixed: {
        headers: {
          a: array(text('x'), { tag: 'V' }, { tag: 'f', value: 1.5 }, array()),
          t: fields({ b: { tag: 't', value: true } }),
        },
      },
      none: {},
    });
    const headers = (name: string) => rows.get(name)?.headers?.amqp.headers;
    expect(headers('long')).toEqual({ n: { '!': 'int64', value: '9007199254740993' } });
    expect(headers('L')).toEqual({ n: { '!': 'int64', value: '9007199254740993' } });
    expect(Object.getOwnPropertyDescriptor(headers('proto'), '__proto__')?.value).toBe('x');
    expect(Object.getOwnPropertyDescriptor(headers('proto table'), '__proto__')?.value).toEqual({
      isAdmin: true,
    });
    expect(headers('not utf-8')).toEqual({ s: { '!': 'bytes', base64: 'Yf/+Yg==' } });
    expect(headers('decimal')).toEqual({ d: { '!': 'decimal', value: '-0.01' } });
    expect(headers('twice')).toEqual({
      '!': 'table',
      pairs: [
        ['a', '1'],
        ['a', '2'],
      ],
    });
    expect(headers('mixed')).toEqual({ a: ['x', null, 1.5, []], t: { b: true } });
    expect(headers('none')).toBeUndefined();
    expect([...rows.values()].every(({ state }) => state === 'ready')).toBe(true);
  });

  test('a stack trace of 100 KB, nearly a whole frame', async () => {
    const rows = await through({
      trace: { headers: { 'x-exception-stacktrace': text('t'.repeat(100_000)) } },
    });
    expect(rows.get('trace')?.headers?.amqp.headers).toMatchObject({
      'x-exception-stacktrace': { '!': 'cut', bytes: 100_000 },
    });
  });
});

describe('bodies', () => {
  test('one bad one costs its batch nothing', async () => {
    const rows = await through({
      before: { body: '{"n":1}' },
      exact: { body: '{"id":9007199254740993,"amt":10.10,"big":1e400}' },
      nul: { body: '{"a":"x\\u0000y"}' },
      nan: { body: '{"n":NaN}' },
      lone: { body: '{"a":"\\ud800"}' },
      binary: { body: Buffer.from([0, 255, 1]) },
      empty: { body: '' },
      bom: { body: '\ufeff{"a":1}' },
      'not json': { body: 'not json' },
      gzip: { body: gzipSync('{"zipped":true}'), properties: { contentEncoding: 'gzip:UTF-8' } },
      // JSON.parse takes it, Postgres runs out of stack: only the server can tell.
      deep: { body: `${'['.repeat(20_000)}${']'.repeat(20_000)}` },
      range: { body: '{"n":1e140000}' },
      after: { body: '{"n":2}' },
    });
    const shown = [...rows.values()].map(({ name, state, payload, error }) => [name, state, payload, error]);
    expect(shown).toEqual([
      ['before', 'ready', '{"n": 1}', null],
      ['exact', 'ready', `{"id": 9007199254740993, "amt": 10.10, "big": 1${'0'.repeat(400)}}`, null],
      ['nul', 'dead', null, 'body-nul'],
      ['nan', 'dead', null, 'body-not-json'],
      ['lone', 'dead', null, 'body-lone-surrogate'],
      ['binary', 'dead', null, 'body-binary'],
      ['empty', 'ready', 'null', null],
      ['bom', 'ready', '{"a": 1}', null],
      ['not json', 'dead', null, 'body-not-json'],
      ['gzip', 'ready', '{"zipped": true}', null],
      ['deep', 'dead', null, 'body-refused-by-database'],
      ['range', 'dead', null, 'body-refused-by-database'],
      ['after', 'ready', '{"n": 2}', null],
    ]);
    expect(rows.get('nan')?.body).toEqual(Buffer.from('{"n":NaN}'));
    expect(rows.get('nan')?.kind).toBe('odd');
  });

  test('larger than a payload may be: bytes in body, several frames, a batch of its own', async () => {
    const large = Buffer.from(JSON.stringify({ text: 'x'.repeat(3 * 1_048_576) }));
    const rows = await through({ small: { body: '{}' }, large: { body: large } });
    expect(rows.get('large')).toMatchObject({ state: 'dead', payload: null, error: 'body-too-large' });
    expect(rows.get('large')?.body?.equals(large)).toBe(true);
  });
});

test('fuzzed messages: one row each, bytes as they were', async () => {
  const anyField: fc.Arbitrary<Field> = fc.letrec<{ field: Field }>((tie) => ({
    field: fc.oneof(
      { maxDepth: 3 },
      fc.uint8Array({ maxLength: 20 }).map((b): Field => ({ tag: 'S', bytes: Buffer.from(b) })),
      fc.uint8Array({ maxLength: 20 }).map((b): Field => ({ tag: 'x', bytes: Buffer.from(b) })),
      fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 }).map((value): Field => ({ tag: 'I', value })),
      fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }).map((value): Field => ({ tag: 'l', value })),
      fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }).map((value): Field => ({ tag: 'L', value })),
      fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }).map((value): Field => ({ tag: 'T', value })),
      // No NaN, no infinity: the broker's own reader dies of them (541) and closes the publisher's connection,
      // so that no queue can hold one. What our reader makes of their bytes is a unit test.
      fc.double({ noNaN: true, noDefaultInfinity: true }).map((value): Field => ({ tag: 'd', value })),
      fc.constant<Field>({ tag: 'V' }),
      fc.array(tie('field'), { maxLength: 3 }).map((items): Field => ({ tag: 'A', items })),
    ),
  })).field;
  const name = fc.string({ maxLength: 10 }).filter((text) => !READ_BY_THE_BROKER.has(text));
  const message = fc.record({
    headers: fc.dictionary(name, anyField, { maxKeys: 4 }),
    body: fc.oneof(
      fc.uint8Array({ maxLength: 60 }).map((b) => Buffer.from(b)),
      fc.json().map((t) => Buffer.from(t)),
    ),
    properties: fc.record(
      { priority: fc.integer({ min: 0, max: 255 }), type: fc.string({ maxLength: 20 }) },
      { requiredKeys: [] },
    ),
  });
  await withSeed((seed) => {
    const sample = fc.sample(message, { numRuns: 300, seed });
    return through(Object.fromEntries(sample.map((parts, index) => [`m${index}`, parts])));
  });
});
