/** The arithmetic of exactly-once: batch sizes, which batches came back, which delivery is one of them, the books. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { findBack, fitBatchSize, MAX_OPEN, SUM_GAP } from '../../adapters/rabbitmq/batches.js';
import { closeBooks } from '../../adapters/rabbitmq/books.js';
import { ExpectedRows } from '../../adapters/rabbitmq/expected.js';
import { fingerprint } from '../../adapters/rabbitmq/fingerprint.js';
import type { ExpectedRow } from '../../adapters/rabbitmq/ledger.js';
import { array, death, delivery, fields, int, type Parts, text } from './delivery-builder.js';

function sums(sizes: readonly number[]): number[] {
  let all = [0];
  for (const size of sizes) all = all.concat(all.map((sum) => sum + size));
  return all;
}

describe('batch sizes', () => {
  test('whatever is taken one after the other, no two sets of open batches have one sum', () => {
    const wants = fc.array(fc.integer({ min: 1, max: 1_000 }), { minLength: 1, maxLength: MAX_OPEN });
    fc.assert(
      fc.property(wants, (available) => {
        const open: number[] = [];
        for (const each of available) {
          const size = fitBatchSize(open, each);
          expect(size).toBeLessThanOrEqual(each);
          if (size > 0) open.push(size);
        }
        expect(new Set(sums(open)).size).toBe(2 ** open.length);
      }),
      { numRuns: 300 },
    );
  });

  test('full batches keep their distance, so that a count off by a few fits nothing', () => {
    const open: number[] = [];
    for (let batch = 0; batch < 4; batch += 1) open.push(fitBatchSize(open, 1_000));
    const sorted = sums(open).sort((a, b) => a - b);
    const gaps = sorted.slice(1).map((sum, index) => sum - (sorted[index] as number));
    expect(Math.min(...gaps)).toBeGreaterThanOrEqual(SUM_GAP);
    expect(Math.min(...open)).toBeGreaterThan(900);
  });

  test('one open batch of one message: the next is two or more, a lone message waits', () => {
    expect(fitBatchSize([1], 5)).toBe(5);
    expect(fitBatchSize([1], 1)).toBe(0);
    expect(fitBatchSize([], 1)).toBe(1);
    expect(fitBatchSize([], 0)).toBe(0);
    expect(fitBatchSize([1, 2, 4, 8, 16, 32], 1_000)).toBe(0);
  });
});

describe('which batches came back', () => {
  const open = [
    { id: 'a', size: 100 },
    { id: 'b', size: 92 },
    { id: 'c', size: 41 },
  ];

  test.each<[number, string[]]>([
    [0, []],
    [100, ['a']],
    [192, ['a', 'b']],
    [41, ['c']],
    [233, ['a', 'b', 'c']],
  ])('%i messages are %j', (missing, back) => {
    expect(findBack(open, missing)).toEqual({ type: 'found', back });
  });

  test.each([-1, 1, 99, 101, 234])(
    '%i messages are nothing that fits: it says so and does not guess',
    (missing) => {
      expect(findBack(open, missing)).toEqual({ type: 'ambiguous', ways: 0 });
    },
  );

  test('two sets with one sum are ambiguous', () => {
    expect(
      findBack(
        [
          { id: 'a', size: 5 },
          { id: 'b', size: 5 },
        ],
        5,
      ),
    ).toEqual({ type: 'ambiguous', ways: 2 });
  });
});

describe('fingerprint', () => {
  const print = (parts: Parts) => fingerprint(delivery(parts));
  const base: Parts = {
    body: '{"a":1}',
    headers: { b: text('1'), a: int(2), t: { tag: 'F', entries: [] } },
    properties: { contentType: 'application/json', messageId: 'm', expiration: '500', deliveryMode: 2 },
  };

  test('a hop through a dead-letter exchange changes nothing in it', () => {
    const hopped: Parts = {
      ...base,
      queue: 'main',
      exchange: '',
      routingKey: 'main',
      redelivered: true,
      // Sorted by key, the count of deaths added, the expiration taken off.
      headers: {
        a: int(2),
        b: text('1'),
        t: { tag: 'F', entries: [] },
        'x-death': array(death({ queue: 'wait', reason: 'expired', count: 1 })),
        'x-first-death-queue': text('wait'),
        'x-delivery-count': int(3),
      },
      properties: { contentType: 'application/json', messageId: 'm', deliveryMode: 2 },
    };
    expect(print(hopped)).toBe(print(base));
    expect(print({ ...base, headers: { 'x-delivery-count': int(1) } })).toBe(print({ ...base, headers: {} }));
  });

  test('the two tags of int64 are the same, inside tables and arrays too', () => {
    const within = (tag: 'l' | 'L') =>
      ({
        n: { tag, value: 5n },
        f: fields({ n: { tag, value: 5n } }),
        a: array({ tag, value: 5n }),
      }) as const;
    expect(print({ headers: within('l') })).toBe(print({ headers: within('L') }));
  });

  test.each<[string, Parts]>([
    ['body', { ...base, body: '{"a":2}' }],
    ['a header', { ...base, headers: { ...(base.headers as object), a: int(3) } }],
    ["a header's type", { ...base, headers: { ...(base.headers as object), a: text('2') } }],
    ['a property', { ...base, properties: { ...base.properties, messageId: 'n' } }],
    ['an absent property', { ...base, properties: { contentType: 'application/json' } }],
  ])('another %s is another message', (_name, other) => expect(print(other)).not.toBe(print(base)));

  test('a large body is read in pieces to the same end', () => {
    const body = 'x'.repeat(200_000);
    expect(print({ body })).toBe(print({ body }));
    expect(print({ body })).not.toBe(print({ body: `${body.slice(1)}y` }));
  });
});

describe('rows that are expected again', () => {
  const row = (parts: Parts, position = 1): ExpectedRow => {
    const { queue, exchange, routingKey } = delivery(parts);
    return {
      batch: '1',
      position,
      queue,
      exchange,
      routingKey,
      fingerprint: Buffer.from(fingerprint(delivery(parts)), 'latin1'),
    };
  };
  const take = (expected: ExpectedRows, parts: Parts) =>
    expected.take(delivery(parts), fingerprint(delivery(parts)));
  const tick: Parts = { queue: 'main', exchange: 'e', routingKey: 'k', body: 'tick' };

  test('redelivered to their own queue: as many as there are rows, no more', () => {
    const expected = new ExpectedRows([row(tick, 1), row(tick, 2)]);
    expect(take(expected, tick)).toBeUndefined();
    expect(take(expected, { ...tick, redelivered: true })?.position).toBe(1);
    expect(take(expected, { ...tick, redelivered: true })?.position).toBe(2);
    expect(take(expected, { ...tick, redelivered: true })).toBeUndefined();
    expect(expected.size).toBe(0);
  });

  test('the same content under another routing key is another message', () => {
    const expected = new ExpectedRows([row(tick)]);
    expect(take(expected, { ...tick, routingKey: 'other', redelivered: true })).toBeUndefined();
  });

  test('expired out of a wait queue: not marked redelivered, but x-death names the queue and how it was routed', () => {
    const waited: Parts = { queue: 'wait', exchange: 'e', routingKey: 'k', body: 'tick' };
    const expected = new ExpectedRows([row(waited)]);
    const dead = (queue: string) =>
      array(death({ queue, reason: 'expired', count: 1, exchange: 'e', keys: ['k'] }));
    expect(take(expected, { ...tick, headers: { 'x-death': dead('elsewhere') } })).toBeUndefined();
    expect(
      take(expected, { ...tick, exchange: '', routingKey: 'main', headers: { 'x-death': dead('wait') } })
        ?.queue,
    ).toBe('wait');
  });
});

describe('books', () => {
  const totals = { rows: 90, unmapped: 5, excluded: 3, expired: 2, absorbed: 40, inexact: 0 };
  const close = (more: object) =>
    closeBooks({
      initial: 100,
      totals,
      remaining: 0,
      interrupted: true,
      expectedLeft: 0,
      doubtfulIds: 0,
      ...more,
    });

  test('balance when every message has one row', () => {
    expect(close({})).toMatchObject({ difference: 0, balanced: true, arrived: 0 });
    expect(close({ initial: 130, remaining: 30 })).toMatchObject({ balanced: true });
  });

  test('too few do not balance, and say what may have happened', () => {
    const books = close({ initial: 103 });
    expect(books).toMatchObject({ difference: -3, balanced: false });
    expect(books.remarks.join()).toContain('3 fewer than were there');
  });

  test('too many are late arrivals only when nothing came twice', () => {
    expect(close({ initial: 98, interrupted: false })).toMatchObject({
      arrived: 2,
      difference: 0,
      balanced: true,
    });
    expect(close({ initial: 98 })).toMatchObject({ arrived: 0, difference: 2, balanced: false });
  });
});
