/** Deliveries from their wire form: properties, deaths, timestamps. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { readDeaths, readProperties, timestampMs } from '../../adapters/rabbitmq/delivery.js';
import { array, death, delivery, propertyBytes, text } from './delivery-builder.js';

describe('properties', () => {
  test('all fourteen are read', () => {
    const properties = {
      contentType: 'application/json',
      contentEncoding: 'utf-8',
      deliveryMode: 2,
      priority: 9,
      correlationId: 'c',
      replyTo: 'r',
      expiration: '60000',
      messageId: 'm',
      timestamp: 1_764_428_400n,
      type: 't',
      userId: 'u',
      appId: 'a',
      clusterId: 'k',
    };
    const read = delivery({ properties, headers: { h: text('v') } });
    expect(read.properties).toEqual(properties);
    expect(read.headers).toHaveLength(1);
    expect(read.complete).toBe(true);
  });

  test('none at all is a message with defaults, not an error', () => {
    expect(delivery().properties).toEqual({});
    expect(readProperties(Buffer.alloc(0))).toMatchObject({ complete: false, properties: {} });
  });

  test('every cut of the bytes is read as far as it goes', () => {
    const whole = propertyBytes({
      properties: { contentType: 'text/plain', messageId: 'm' },
      headers: { a: text('b') },
    });
    for (let length = 0; length < whole.length; length += 1) {
      expect(readProperties(whole.subarray(0, length)).complete).toBe(false);
    }
    expect(readProperties(whole).complete).toBe(true);
  });

  test('no bytes make it throw', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 300 }), (input) => {
        readProperties(Buffer.from(input));
      }),
      { numRuns: 2_000 },
    );
  });
});

test.each([
  [1_764_428_400n, '2025-11-29T15:00:00.000Z'],
  [1_764_428_400_123n, '2025-11-29T15:00:00.123Z'],
  [1_764_428_400_123_456n, '2025-11-29T15:00:00.123Z'],
  [0n, null],
  [2n ** 64n - 1n, null],
])('timestamp %s is %s: seconds, milliseconds and microseconds are told apart', (value, iso) => {
  const ms = timestampMs(value);
  expect(ms === null ? null : new Date(ms).toISOString()).toBe(iso);
});

describe('x-death', () => {
  const deaths = (...entries: ReturnType<typeof death>[]) =>
    readDeaths(delivery({ headers: { 'x-death': array(...entries) } }).headers);

  test('entries as a broker writes them', () => {
    expect(
      deaths(
        death({ queue: 'w2', reason: 'expired', count: 3, at: 1_764_428_400, exchange: 'e', keys: ['k'] }),
      ),
    ).toEqual([
      {
        queue: 'w2',
        reason: 'expired',
        count: 3,
        timeMs: 1_764_428_400_000,
        exchange: 'e',
        routingKeys: ['k'],
      },
    ]);
  });

  test('without count (old brokers) each entry is one death', () => {
    expect(
      deaths(death({ queue: 'q', reason: 'rejected' }), death({ queue: 'q', reason: 'rejected' }))?.map(
        (d) => d.count,
      ),
    ).toEqual([1, 1]);
  });

  test('a count sent as text counts; an absurd one is bounded', () => {
    const field = death({ queue: 'q', reason: 'rejected' });
    const withCount = (count: ReturnType<typeof text>) =>
      readDeaths(
        delivery({
          headers: {
            'x-death': array({
              tag: 'F',
              entries: [
                ...(field.tag === 'F' ? field.entries : []),
                { key: Buffer.from('count'), value: count, raw: Buffer.alloc(0) },
              ],
            }),
          },
        }).headers,
      )?.[0]?.count;
    expect(withCount(text('4'))).toBe(4);
    expect(withCount({ tag: 'l', value: 2n ** 40n })).toBe(1_000_000);
    expect(withCount({ tag: 'l', value: -5n })).toBe(0);
  });

  test('a header that no broker wrote is told from an absent one', () => {
    expect(readDeaths(delivery({ headers: { 'x-death': text('oops') } }).headers)).toBeNull();
    expect(readDeaths(delivery({ headers: { 'x-death': array(text('oops')) } }).headers)).toBeNull();
    expect(readDeaths(delivery().headers)).toEqual([]);
  });

  test('500 and more entries are read up to the limit', () => {
    const many = Array.from({ length: 600 }, () => death({ queue: 'q', reason: 'rejected', count: 1 }));
    expect(deaths(...many)).toHaveLength(500);
  });
});
