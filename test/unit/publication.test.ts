/** What a `relay.amqp` payload may say, what is refused without repeating it, and headers there and back again. */
import { describe, expect, test } from 'vitest';
import { readProperties } from '../../adapters/rabbitmq/delivery.js';
import { tableToJson } from '../../adapters/rabbitmq/headers.js';
import { readPublication, withoutExpiration } from '../../adapters/rabbitmq/publication.js';
import type { Json } from '../../src/jobs/job.js';
import { Discard } from '../../src/jobs/settle.js';
import { propertyBytes } from './delivery-builder.js';

const job = (payload: unknown, more: { body?: Buffer; headers?: Json } = {}) => ({
  ...{ id: '7', body: null, headers: null },
  payloadText: payload === null ? null : JSON.stringify(payload),
  ...more,
});
const whole = { exchange: 'e', routingKey: 'k', body: 1 };

describe('refused, the place named and no value', () => {
  test.for<[string, unknown, string]>([
    ['no exchange', { routingKey: 'a', body: 1 }, 'exchange is missing'],
    ['two bodies', { ...whole, text: 'x' }, 'exactly one of'],
    ['no body', { exchange: '', routingKey: 'a' }, 'exactly one of'],
    ['base64 that is none', { exchange: '', routingKey: 'a', base64: 'hunter2!' }, 'base64'],
    ['an unknown field', { ...whole, mandatory: false }, 'mandatory is not known'],
    ['an unknown property', { ...whole, properties: { headers: {} } }, 'properties.headers'],
    ['a property out of range', { ...whole, properties: { priority: 256 } }, 'properties.priority'],
    ['an expiration with a unit', { ...whole, properties: { expiration: '5s' } }, 'properties.expiration'],
    ['a time that is none', { ...whole, properties: { timestamp: 'hunter2' } }, 'properties.timestamp'],
    ['a header that was cut', { ...whole, headers: { x: { '!': 'cut' } } }, 'marked'],
    [
      'an int64 that is none',
      { ...whole, headers: { x: { '!': 'int64', value: 'hunter2' } } },
      'no such number',
    ],
    [
      'an int64 too large',
      { ...whole, headers: { x: { '!': 'int64', value: `1${'0'.repeat(19)}` } } },
      'number',
    ],
    ['headers that are a list', { ...whole, headers: [1] }, 'headers is not an object'],
    ['a name of 256 bytes', { ...whole, headers: { ['k'.repeat(256)]: 1 } }, '255 bytes'],
    ['a key of 256 bytes', { ...whole, routingKey: 'k'.repeat(256) }, 'routingKey'],
    ['no object', ['hunter2'], 'not an object'],
    ['nothing', null, 'not an object'],
  ])('%s', ([, payload, said]) => {
    const refused = (() => {
      try {
        return readPublication(job(payload));
      } catch (error) {
        return error;
      }
    })();
    expect(refused).toBeInstanceOf(Discard);
    expect((refused as Discard).reason).toBe('payload-invalid');
    expect((refused as Discard).message).toContain(said);
    expect((refused as Discard).message).not.toMatch(/hunter2|kkk/);
  });
});

test('body, text and base64 with the content type of each; what is given goes before', () => {
  const types = (payload: object) => {
    const { propertyBytes: bytes, body } = readPublication(
      job({ exchange: '', routingKey: 'a', ...payload }),
    );
    const { contentType, deliveryMode, messageId } = readProperties(bytes).properties;
    return [body.toString(), contentType, deliveryMode, messageId];
  };
  expect(types({ body: [1] })).toEqual(['[1]', 'application/json', 2, '7']);
  expect(types({ text: 'ü' })).toEqual(['ü', 'text/plain', 2, '7']);
  expect(types({ base64: 'aGk=' })).toEqual(['hi', 'application/octet-stream', 2, '7']);
  const properties = { contentType: 'x/y', deliveryMode: 1, messageId: 'mine' };
  expect(types({ text: 'a', properties })).toEqual(['a', 'x/y', 1, 'mine']);
});

test('headers as a row keeps them become the same headers again', () => {
  const headers = {
    ...{ text: 'ü', small: -5, large: 2 ** 40, half: 0.5, on: false, none: null, empty: '' },
    big: { '!': 'int64', value: '-9007199254740993' },
    at: { '!': 'timestamp', value: 1_700_000_000 },
    price: { '!': 'decimal', value: '-12.345' },
    raw: { '!': 'bytes', base64: '/wA=' },
    list: [1, 'two', { deep: [null, true] }],
    twice: {
      '!': 'table',
      pairs: [
        ['a', 1],
        ['a', 2],
        [{ '!': 'bytes', base64: '/w==' }, 3],
      ],
    },
  };
  const { propertyBytes: bytes } = readPublication(job({ ...whole, headers }));
  const read = readProperties(bytes);
  expect(read.complete).toBe(true);
  expect(JSON.parse(JSON.stringify(tableToJson(read.headers)))).toEqual(headers);
});

test('an expiration is taken out, and nothing else is changed', () => {
  const properties = { contentType: 'a/b', expiration: '500', messageId: 'm', appId: 'x' };
  const { expiration: _, ...rest } = properties;
  const without = withoutExpiration(readProperties(propertyBytes({ properties })));
  expect(without.toString('hex')).toBe(propertyBytes({ properties: rest }).toString('hex'));
  const none = propertyBytes({ properties: rest });
  expect(withoutExpiration(readProperties(none))).toBe(none);
});
