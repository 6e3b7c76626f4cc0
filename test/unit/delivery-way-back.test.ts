/** What of a message is changed on its way back, byte by byte, and what cannot be sent. */
import { expect, test } from 'vitest';
import { readProperties } from '../../adapters/rabbitmq/delivery.js';
import { leadingExchange, originalExchange } from '../../adapters/rabbitmq/leading-exchange.js';
import { wayBack } from '../../adapters/rabbitmq/way-back.js';
import { array, int, type Parts, propertyBytes, text } from './delivery-builder.js';

const CONTEXT = { user: 'us', frameMax: 131_072, maxMessageBytes: 1_000 };
const back = (parts: Parts, remainingMs: number | null = null, bodyBytes = 2) =>
  wayBack(propertyBytes(parts), bodyBytes, remainingMs, CONTEXT);

/** All fourteen, so that what stands before and behind a change is there to be damaged. */
const EVERYTHING: Parts = {
  headers: {
    a: int(1),
    CC: array(text('q')),
    b: text('x'),
    BCC: array(text('q')),
    'x-delay': int(5),
    c: int(2),
  },
  properties: {
    ...{ contentType: 'application/json', contentEncoding: 'utf-8', deliveryMode: 2, priority: 4 },
    ...{ correlationId: 'c', replyTo: 'r', expiration: '60000', messageId: 'm', timestamp: 17 },
    ...{ type: 't', userId: 'them', appId: 'app', clusterId: 'cl' },
  },
};

test('nothing to change: the very same bytes', () => {
  const bytes = propertyBytes({
    // Names that every object has: a lookup by name once took them for headers to strip.
    headers: { a: int(1), toString: text('x'), constructor: int(2), valueOf: int(3) },
    properties: { userId: 'us', expiration: '4294967295' },
  });
  expect(wayBack(bytes, 2, null, CONTEXT)).toEqual({ bytes, stripped: [] });
  for (const empty of [Buffer.of(0, 0), propertyBytes({ properties: { deliveryMode: 1 } })]) {
    expect(wayBack(empty, 0, null, CONTEXT)).toEqual({ bytes: empty, stripped: [] });
  }
});

test('routing headers, a foreign user and the delay, out of the middle of everything', () => {
  const { userId: _, ...kept } = EVERYTHING.properties ?? {};
  expect(back(EVERYTHING, 1_234.2)).toEqual({
    bytes: propertyBytes({
      headers: { a: int(1), b: text('x'), c: int(2) },
      properties: { ...kept, expiration: '1235' },
    }),
    stripped: ['cc', 'bcc', 'x-delay', 'user-id', 'delay-set'],
  });
});

test('a delay where there was none; one that has passed, or is longer than a broker takes', () => {
  const expiration = (remainingMs: number) => {
    const way = back({ properties: { messageId: 'm' } }, remainingMs);
    return 'bytes' in way ? readProperties(way.bytes).properties : way;
  };
  expect(expiration(5_000)).toEqual({ messageId: 'm', expiration: '5000' });
  expect(expiration(-5)).toEqual({ messageId: 'm', expiration: '0' });
  expect(expiration(1e12)).toEqual({ messageId: 'm', expiration: '4294967295' });
});

test.each(['-1', '1.5', 'soon', '4294967296', '', '99999999999999999999'])(
  'expiration %j is left out',
  (expiration) => {
    expect(back({ properties: { expiration, messageId: 'm' } })).toEqual({
      bytes: propertyBytes({ properties: { messageId: 'm' } }),
      stripped: ['expiration'],
    });
  },
);

test('a table of which nothing is left stays an empty table; names alike stay', () => {
  expect(back({ headers: { CC: array(text('q')) } })).toEqual({
    bytes: propertyBytes({ headers: {} }),
    stripped: ['cc'],
  });
  const alike = { cc: text('q'), 'X-Delay': int(1), BCCs: int(1) };
  expect(back({ headers: alike })).toMatchObject({ stripped: [] });
});

test('what cannot be sent', () => {
  const cut = propertyBytes({ properties: { messageId: 'abc' } }).subarray(0, 4);
  expect(wayBack(cut, 2, null, CONTEXT)).toEqual({ refused: 'properties-cut' });
  expect(back({}, null, 1_000)).toMatchObject({ stripped: [] });
  expect(back({}, null, 1_001)).toEqual({ refused: 'larger-than-the-broker-takes' });
  // A frame has 8 bytes around its content, which has 12 before the properties; 2 of flags, 4 of length, 7 of the field.
  const largest = 131_072 - 8 - 12 - 2 - 4 - 7;
  expect(back({ headers: { a: text('x'.repeat(largest)) } })).toMatchObject({ stripped: [] });
  expect(back({ headers: { a: text('x'.repeat(largest + 1)) } })).toEqual({
    refused: 'header-table-larger-than-a-frame',
  });
});

test('the name of a leading exchange says where the message came through first', () => {
  expect(originalExchange(leadingExchange('q', 'orders'))).toBe('orders');
  expect(originalExchange(leadingExchange('q', ''))).toBe('');
  expect(originalExchange(leadingExchange('q', 'a/b'))).toBe('a/b');
  expect(originalExchange('orders')).toBe('orders');
  expect(leadingExchange('q', 'x')).not.toBe(leadingExchange('p', 'x'));
  const long = leadingExchange('q', 'ä'.repeat(127));
  expect(Buffer.byteLength(long)).toBeLessThanOrEqual(255);
  expect(originalExchange(long)).toMatch(/^ä+$/);
});
