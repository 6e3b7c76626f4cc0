/** From delivery to row: attempts, due times, states, kinds; what cannot be mapped is dead with a reason, never gone. */
import { describe, expect, test } from 'vitest';
import { withoutPayload } from '../../adapters/rabbitmq/mapping.js';
import { array, death, delivery, int, long, map, NOW_MS, seconds, text } from './delivery-builder.js';

const NOW_S = NOW_MS / 1_000;
const dead = { role: 'dead' as const };
const wait = (ttlMs: number, feeders: string[] = []) => ({ role: 'wait' as const, ttlMs, feeders });

describe('kind', () => {
  test('from a rule over queue, exchange, routing key and type, with what the stars stood for', () => {
    const rules = [{ match: { exchange: 'orders', routingKey: 'order.*.*' }, kind: 'order.{2}.{1}' }];
    expect(map({ exchange: 'orders', routingKey: 'order.eu.paid' }, { rules }).job.kind).toBe(
      'order.paid.eu',
    );
  });

  test('from the type property when no rule names one', () => {
    expect(map({ properties: { type: 'Resize' } }, { rules: [] }).job.kind).toBe('Resize');
  });

  test('never guessed: without either it is unmapped, dead, with where it came from', () => {
    const { job, outcome } = map({ exchange: 'e', routingKey: 'rk', body: '{"a":1}' }, { rules: [] });
    expect(outcome).toBe('unmapped');
    expect(job).toMatchObject({ kind: 'unmapped', state: 'dead', payloadText: '{"a":1}' });
    expect(job.error?.message).toContain("routing key 'rk'");
  });

  test('too long or not storable is unmapped', () => {
    expect(map({ properties: { type: 'x'.repeat(201) } }, { rules: [] }).outcome).toBe('unmapped');
    expect(map({ properties: { type: 'a\u0000' } }, { rules: [] }).outcome).toBe('unmapped');
  });

  test('a retry through wait queues still has the rule of its first publish', () => {
    const rules = [{ match: { exchange: 'orders', routingKey: 'order.*' }, kind: 'order.{1}' }];
    const headers = {
      'x-death': array(
        death({ queue: 'w', reason: 'expired', count: 1 }),
        death({ queue: 'work', reason: 'rejected', count: 1, exchange: 'orders', keys: ['order.paid'] }),
      ),
    };
    expect(map({ exchange: '', routingKey: 'work', headers }, { rules }).job.kind).toBe('order.paid');
  });

  test('an odd routing key is kept verbatim', () => {
    const routingKey = `${'k'.repeat(240)}.*.#.😀`;
    expect(map({ routingKey }).job.headers).toMatchObject({ amqp: { routingKey } });
  });
});

describe('attempts', () => {
  const inMain = (headers: Parameters<typeof map>[0]['headers'], options = {}) =>
    map({ queue: 'm2', ...(headers ? { headers } : {}) }, options).job.attempts;

  test('rejections by the home queue only, not the expiries in between', () => {
    const loops = array(
      death({ queue: 'w2', reason: 'expired', count: 3 }),
      death({ queue: 'm2', reason: 'rejected', count: 3 }),
    );
    expect(inMain({ 'x-death': loops })).toBe(3);
  });

  test('old brokers without count: one per entry', () => {
    const two = [1, 2].map(() => death({ queue: 'm2', reason: 'rejected' }));
    expect(inMain({ 'x-death': array(...two) })).toBe(2);
  });

  test('x-death that no broker wrote counts nothing and is noted', () => {
    const mapped = map({ headers: { 'x-death': text('oops') } });
    expect(mapped.job.attempts).toBe(0);
    expect(mapped.note).toContain('x-death-malformed');
  });

  test("the application's own counter comes first", () => {
    const stuck = array(death({ queue: 'm2', reason: 'rejected', count: 1 }));
    expect(inMain({ 'x-death': stuck, 'x-retry-count': int(4) })).toBe(4);
  });

  test('a quorum counter counts failures, not acquisitions; never after a resume', () => {
    const headers = { 'x-acquired-count': long(30n), 'x-delivery-count': long(2n) };
    expect(inMain(headers)).toBe(2);
    expect(inMain(headers, { trustDeliveryCount: false })).toBe(0);
    expect(inMain({ 'x-delivery-count': text('2') })).toBe(2);
  });

  test('room is left for the next one, and absurd counts are bounded', () => {
    const worn = map({ headers: { 'x-retry-count': int(25) } }).job;
    expect(worn).toMatchObject({ attempts: 25, maxAttempts: 26 });
    expect(map({ headers: { 'x-retry-count': int(2_000_000) } }).job).toMatchObject({
      attempts: 1_000,
      maxAttempts: 1_000,
    });
    expect(map({ headers: { 'x-retry-count': int(-3) } }).job.attempts).toBe(0);
    expect(map({}, { rules: [{ match: { queue: '*' }, kind: 'k', maxAttempts: 5 }] }).job.maxAttempts).toBe(
      5,
    );
  });
});

describe('run_at', () => {
  const waiting = (
    headers: Parameters<typeof map>[0]['headers'],
    facts: ReturnType<typeof wait>,
    expiration?: string,
  ) =>
    map(
      {
        queue: 'w',
        ...(headers ? { headers } : {}),
        ...(expiration === undefined ? {} : { properties: { expiration } }),
      },
      { facts },
    );

  test('of a first death: its time plus the TTL', () => {
    const headers = {
      'x-death': array(death({ queue: 'work', reason: 'rejected', count: 1, at: NOW_S - 20 })),
    };
    const mapped = waiting(headers, wait(60_000, ['work']));
    expect(mapped.job.runAtMs).toBe(NOW_MS + 40_000);
    expect(mapped.runAtExact).toBe(true);
  });

  test('of a second death the broker only says when the first was: the end of the bounds, marked', () => {
    const headers = {
      'x-death': array(death({ queue: 'work', reason: 'rejected', count: 2, at: NOW_S - 20 })),
    };
    const mapped = waiting(headers, wait(60_000, ['work']));
    expect(mapped.job.runAtMs).toBe(NOW_MS + 60_000);
    expect(mapped.runAtExact).toBe(false);
    expect(mapped.note).toContain('run-at-bounds');
  });

  test('a death elsewhere does not date it', () => {
    const headers = {
      'x-death': array(death({ queue: 'other', reason: 'rejected', count: 1, at: NOW_S - 20 })),
    };
    expect(waiting(headers, wait(60_000, ['work'])).runAtExact).toBe(false);
  });

  test("the broker's own stamp dates it", () => {
    const headers = { timestamp_in_ms: long(BigInt(NOW_MS - 5_000)) };
    expect(waiting(headers, wait(60_000)).job.runAtMs).toBe(NOW_MS + 55_000);
  });

  test('the smaller of queue TTL and expiration; one that the broker would refuse is ignored', () => {
    expect(waiting(undefined, wait(60_000), '200').job.runAtMs).toBe(NOW_MS + 200);
    expect(waiting(undefined, wait(60_000), '60s').job.runAtMs).toBe(NOW_MS + 60_000);
  });

  test('a clock that is off moves it no further than the queue could hold it', () => {
    const future = {
      'x-death': array(death({ queue: 'work', reason: 'rejected', count: 1, at: NOW_S + 3_600 })),
    };
    expect(waiting(future, wait(60_000, ['work'])).job.runAtMs).toBe(NOW_MS + 60_000);
    const past = {
      'x-death': array(death({ queue: 'work', reason: 'rejected', count: 1, at: NOW_S - 3_600 })),
    };
    expect(waiting(past, wait(60_000, ['work'])).job.runAtMs).toBe(NOW_MS);
  });

  test('by rule: now instead of the latest', () => {
    const rules = [{ match: { queue: 'w' }, kind: 'k', runAt: 'now' as const }];
    expect(map({ queue: 'w' }, { facts: wait(60_000), rules }).job.runAtMs).toBeNull();
  });

  test.each([60_000, -60_000, 2 ** 31])('x-delay %i on a delivered message has elapsed: at once', (delay) => {
    expect(map({ headers: { 'x-delay': long(BigInt(delay)) } }).job.runAtMs).toBeNull();
  });

  test('a main queue: at once, whatever expiration is left on it', () => {
    expect(map({ properties: { expiration: '30000' } }).job).toMatchObject({ runAtMs: null, state: 'ready' });
  });
});

describe('state', () => {
  test('a dead letter is dead with reason and attempts', () => {
    const headers = { 'x-death': array(death({ queue: 'work', reason: 'rejected', count: 4 })) };
    expect(map({ queue: 'work.dlq', headers }, { facts: dead }).job).toMatchObject({
      state: 'dead',
      attempts: 4,
      error: { name: 'dead-letter-rejected', message: 'rejected from work, 4 attempts' },
    });
  });

  test('by rule it is retried instead', () => {
    const rules = [{ match: { queue: 'work.dlq' }, kind: 'k', deadLetters: 'retry' as const }];
    expect(map({ queue: 'work.dlq' }, { facts: dead, rules }).job).toMatchObject({
      state: 'ready',
      error: null,
    });
  });

  test.each([
    ['not json', 'body-not-json'],
    ['{"a":"x\\u0000y"}', 'body-nul'],
    ['{"n":NaN}', 'body-not-json'],
    ['{"n":1e9999999}', 'body-huge-number'],
  ])('%s waits dead for a person, with its kind, its bytes and why', (body, name) => {
    const { job, outcome, note } = map({ body, properties: { contentType: 'application/json' } });
    expect(outcome).toBe('row');
    expect(job).toMatchObject({
      kind: 'k',
      state: 'dead',
      payloadText: null,
      contentType: 'application/json',
      error: { name },
    });
    expect(job.body).toEqual(Buffer.from(body));
    expect(note).toContain(name);
  });

  test('a body that is too long is told from one whose numbers would be, and what to do', () => {
    const huge = map({ body: '{"n":1e9999999}' }).job.error?.message;
    expect(huge).toMatch(/exponents.* 1048576 digits; .*as strings; its bytes are kept in body$/);
    const long = map({ body: `"${'x'.repeat(1_048_576)}"` }).job.error;
    expect(long).toEqual({
      name: 'body-too-large',
      message: 'the body is larger than 1048576 bytes; its bytes are kept in body',
    });
  });

  test('by rule it runs with its bytes', () => {
    const rules = [{ match: { queue: '*' }, kind: 'k', body: 'run' as const }];
    expect(map({ body: 'not json' }, { rules }).job).toMatchObject({
      state: 'ready',
      payloadText: null,
      error: null,
    });
  });

  test('an empty body runs with a null payload', () => {
    expect(map({ body: '' }).job).toMatchObject({ state: 'ready', payloadText: 'null', body: null });
  });

  test('refused by the database after all: bytes in body, dead unless its rule runs it', () => {
    const again = withoutPayload(map({ body: '{"a":1}' }), delivery({ body: '{"a":1}' }));
    expect(again.job).toMatchObject({
      state: 'dead',
      payloadText: null,
      error: { name: 'body-refused-by-database' },
    });
    expect(again.job?.body).toEqual(Buffer.from('{"a":1}'));
    const rules = [{ match: { queue: '*' }, kind: 'k', body: 'run' as const }];
    expect(withoutPayload(map({}, { rules }), delivery()).job).toMatchObject({
      state: 'ready',
      payloadText: null,
    });
  });
});

describe('excluded', () => {
  test.each(['amq.rabbitmq.reply-to.g1h2AA', 'amq.gen-Xa2'])(
    'an RPC request with reply-to %s is not a job',
    (replyTo) => {
      expect(map({ properties: { replyTo } })).toMatchObject({ job: null, outcome: 'excluded' });
    },
  );

  test('a durable reply queue does not make it one; a dialect that claims it goes first', () => {
    expect(map({ properties: { replyTo: 'orders.replies' } }).outcome).toBe('row');
    const notification = { exchange: 'notifications', routingKey: 'notification.receipt.email' };
    expect(map({ ...notification, properties: { replyTo: 'amq.gen-Xa2' } }).outcome).toBe('row');
  });

  test('by rule, with the reason', () => {
    const rules = [{ match: { routingKey: 'metrics.*' }, exclude: 'metrics are not jobs' }];
    expect(map({ routingKey: 'metrics.cpu' }, { rules })).toMatchObject({
      outcome: 'excluded',
      note: 'metrics are not jobs',
    });
  });
});

describe('what the row keeps', () => {
  test('source, priority, trace context and the original properties', () => {
    const { job } = map({
      exchange: 'e',
      routingKey: 'rk',
      redelivered: true,
      headers: { traceparent: text('00-abc-def-01'), n: long(9_007_199_254_740_993n), at: seconds(1) },
      properties: {
        priority: 7,
        messageId: 'm-1',
        correlationId: 'c-1',
        timestamp: 1_764_428_400_123n,
        userId: 'app',
      },
    });
    expect(job.source).toBe('rabbitmq://work#7');
    expect(job.priority).toBe(7);
    expect(job.dedupeKey).toBeNull();
    expect(job.headers).toEqual({
      traceparent: '00-abc-def-01',
      amqp: {
        exchange: 'e',
        routingKey: 'rk',
        priority: 7,
        messageId: 'm-1',
        correlationId: 'c-1',
        userId: 'app',
        timestamp: '2025-11-29T15:00:00.123Z',
        redelivered: true,
        headers: {
          traceparent: '00-abc-def-01',
          n: { '!': 'int64', value: '9007199254740993' },
          at: { '!': 'timestamp', value: 1 },
        },
      },
    });
  });

  test('x-received-from of a wrong type is kept and ignored', () => {
    const { job } = map({ headers: { 'x-received-from': text('odd') } });
    expect(job.headers).toMatchObject({ amqp: { headers: { 'x-received-from': 'odd' } } });
  });

  test('nothing that jsonb or text columns refuse', () => {
    const { job } = map({ exchange: 'a\u0000b', properties: { messageId: 'x\u0000', type: '\u0000' } });
    expect(JSON.stringify(job.headers)).not.toContain('\\u0000');
  });
});
