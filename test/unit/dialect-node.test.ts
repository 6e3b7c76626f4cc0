/** NestJS, @golevelup, Rascal and foo-foo-mq with its forebears, from the wire form that they write. */
import { describe, expect, test } from 'vitest';
import type { DialectName } from '../../adapters/rabbitmq/dialects/names.js';
import { array, death, fields, int, map, NOW_MS, type Parts, text } from './delivery-builder.js';

const RULES = { rules: [] };
const dead = { ...RULES, facts: { role: 'dead' as const } };

describe('nestjs', () => {
  test('an event: the pattern is the kind, data the payload as written; no id', () => {
    const mapped = map({ body: '{"pattern":"user.created","data":{"id":9007199254740993}}' }, RULES);
    expect(mapped.job).toMatchObject({ kind: 'user.created', payloadText: '{"id":9007199254740993}' });
    expect(mapped.identity).toBeNull();
    expect(mapped.note).toBe('nestjs');
  });

  test('an object pattern: one kind, however its members are ordered', () => {
    const kinds = ['{"cmd":"sum","v":{"b":1,"a":2}}', '{"v":{"a":2,"b":1},"cmd":"sum"}'].map(
      (pattern) => map({ body: `{"pattern":${pattern},"data":[1,2]}` }, RULES).job.kind,
    );
    expect(kinds).toEqual(Array(2).fill('{"cmd":"sum","v":{"a":2,"b":1}}'));
  });

  const request: Parts = {
    body: '{"pattern":{"cmd":"sum"},"data":[1,2],"id":"a1b2"}',
    properties: { replyTo: 'amq.rabbitmq.reply-to.g1h2AA', correlationId: 'a1b2' },
  };

  test('a request whose caller waits is excluded, unless a rule names the dialect', () => {
    expect(map(request, RULES)).toMatchObject({ outcome: 'excluded', job: null });
    const rules = [{ match: { queue: 'work' }, dialect: 'nestjs' as const }];
    const mapped = map(request, { rules });
    expect(mapped.job).toMatchObject({ kind: '{"cmd":"sum"}', payloadText: '[1,2]' });
    expect(mapped.identity?.id).toBe('a1b2');
  });

  test.each(['{"response":3,"isDisposed":true,"id":"a1b2"}', '{"err":"no","isDisposed":true,"id":"a"}'])(
    'an answer is no job: %s',
    (body) => {
      expect(map({ body }, RULES).outcome).toBe('excluded');
    },
  );

  const rules = [{ match: { queue: 'work' }, dialect: 'nestjs' as const, kind: 'by.rule' }];

  test.each(['{"data":{"a":1}}', '{"a": 1}', '["favoriteFruit","banana"]'])(
    'from another publisher, kind by rule and the body as it stands: %s',
    (body) => {
      expect(map({ body }, { rules }).job).toMatchObject({
        kind: 'by.rule',
        payloadText: body,
        state: 'ready',
      });
      expect(map({ body }, RULES).outcome).toBe('unmapped');
    },
  );

  test('not JSON on its queue: dead with its bytes and the kind of the rule, optimistic or not', () => {
    const { job } = map({ body: 'not json' }, { rules });
    expect(job).toMatchObject({ kind: 'by.rule', state: 'dead', error: { name: 'body-not-json' } });
    expect(job.body).toEqual(Buffer.from('not json'));
    // Unparsed, it is left to the database, whole: a part of broken JSON would hide that it is broken.
    const broken = '{"pattern":"x","data":{"a":1},';
    expect(map({ body: broken }, { rules, careful: false }).job.payloadText).toBe(broken);
  });

  test('a NUL inside: bytes, dead, the kind known', () => {
    const body = '{"pattern":"user.created","data":{"a":"x\\u0000y"}}';
    const { job, note } = map({ body }, RULES);
    expect(job).toMatchObject({ kind: 'user.created', state: 'dead', payloadText: null });
    expect(note).toContain('body-nul');
  });

  test.each(['{"pattern":"x","data":1,"name":"y"}', '{"pattern":["x"],"data":1}', '{"pattern":"","data":1}'])(
    "anybody's JSON is not claimed: %s",
    (body) => {
      expect(map({ body }, RULES)).toMatchObject({ outcome: 'unmapped', note: null });
    },
  );
});

describe('golevelup and hutch', () => {
  const parts = { exchange: 'orders', routingKey: 'order.paid', body: '{"a":1}' };

  test('nothing marks them: unmapped until a rule names them', () => {
    const headers = { 'X-Request-ID': text('r1') };
    expect(map({ ...parts, headers }, RULES).outcome).toBe('unmapped');
    const by = (dialect: DialectName) => ({ rules: [{ match: { queue: 'work' }, dialect }] });
    expect(map({ ...parts, headers }, by('golevelup')).job.kind).toBe('orders/order.paid');
    expect(map(parts, by('hutch')).job.kind).toBe('order.paid');
  });

  test('an empty body is null', () => {
    const rules = [{ match: { queue: 'work' }, dialect: 'golevelup' as const }];
    expect(map({ ...parts, body: '' }, { rules }).job).toMatchObject({ payloadText: 'null', state: 'ready' });
  });

  test('hutch counts what its queue rejected', () => {
    const headers = { 'x-death': array(death({ queue: 'work', reason: 'rejected', count: 3 })) };
    const rules = [{ match: { queue: 'work' }, dialect: 'hutch' as const }];
    expect(map({ ...parts, headers }, { rules }).job.attempts).toBe(3);
  });
});

describe('rascal', () => {
  const recovered = (recovery: Parameters<typeof fields>[0], more = {}): Parts => ({
    queue: 'work',
    exchange: '',
    routingKey: 'work',
    headers: {
      rascal: fields({
        originalQueue: text('work'),
        originalVhost: text('/'),
        originalExchange: text('orders'),
        originalRoutingKey: text('order.paid'),
        redeliveries: int(7),
        error: fields({ message: text('no stock'), code: text('E42') }),
        recovery: fields(recovery),
        ...more,
      }),
    },
    properties: { messageId: 'm1' },
  });

  test('kind and rule from where it was published first; republished and forwarded are attempts', () => {
    const counts = { work: fields({ republished: int(2), forwarded: int(1) }) };
    const mapped = map(recovered(counts), RULES);
    expect(mapped.job).toMatchObject({ kind: 'order.paid', attempts: 3, state: 'ready' });
    expect(mapped.identity).toEqual({ homeQueue: 'work', id: 'm1', attempt: 3 });
    const rules = [{ match: { exchange: 'orders', routingKey: '*' }, kind: 'paid.{1}' }];
    expect(map(recovered(counts), { rules }).job.kind).toBe('paid.order.paid');
  });

  test('an immediate nack replaces both counters: x-death counts', () => {
    const nacked = recovered({ work: fields({ immediateNack: { tag: 't', value: true } }) });
    const headers = {
      ...(nacked.headers as object),
      'x-death': array(death({ queue: 'work', reason: 'rejected', count: 2 })),
    };
    expect(map({ ...nacked, queue: 'work.dlq', headers }, dead).job.attempts).toBe(2);
  });

  test("another queue's recoveries are not this one's", () => {
    expect(map(recovered({ other: fields({ republished: int(9) }) }), RULES).job.attempts).toBe(0);
  });

  test("older versions took a queue's dots for a path", () => {
    const parts = recovered(
      { a: fields({ b: fields({ republished: int(4) }) }) },
      { originalQueue: text('a.b') },
    );
    expect(map(parts, RULES).job.attempts).toBe(4);
  });

  test('a dead letter has its error', () => {
    expect(map(recovered({}), dead).job).toMatchObject({
      state: 'dead',
      error: { name: 'E42', message: 'no stock' },
    });
  });

  test('encrypted: bytes and the name of the profile; dead, or run by rule', () => {
    const encryption = fields({
      name: text('well-known'),
      iv: text('0011'),
      originalContentType: text('application/json'),
    });
    // Ciphertext that happens to be JSON must not become a payload.
    for (const body of [Buffer.from('12'), Buffer.from('8f00ff', 'hex')]) {
      const parts = { ...recovered({}, { encryption }), body };
      const { job } = map(parts, RULES);
      expect(job).toMatchObject({ state: 'dead', payloadText: null, error: { name: 'encrypted' } });
      expect(job.error?.message).toContain('well-known');
      expect(job.body).toEqual(body);
      expect(job.headers).toMatchObject({ origin: { encryptionProfile: 'well-known' } });
      const rules = [{ match: { queue: 'work' }, body: 'run' as const }];
      expect(map(parts, { rules }).job).toMatchObject({ state: 'ready', payloadText: null });
    }
  });
});

describe('foo-foo-mq', () => {
  const properties = {
    contentType: 'application/json',
    contentEncoding: 'utf8',
    type: 'resize.image',
    correlationId: '',
    messageId: '',
    replyTo: 'host.app.response.queue',
    timestamp: 1_764_428_400_123n,
    appId: 'app',
  };

  test('type; milliseconds read as such; an unset id is none', () => {
    const mapped = map({ properties, body: '{"w":1}' }, RULES);
    expect(mapped.job).toMatchObject({ kind: 'resize.image', payloadText: '{"w":1}' });
    expect(mapped.job.headers).toMatchObject({ amqp: { timestamp: '2025-11-29T15:00:00.123Z' } });
    expect(mapped.identity).toBeNull();
    expect(mapped.note).toBe('foo-foo-mq');
  });

  test('an answer is no job; seconds, or utf-8, are somebody else', () => {
    const headers = { sequence_end: { tag: 't' as const, value: true } };
    expect(map({ properties, headers }, RULES).outcome).toBe('excluded');
    const seconds = { ...properties, timestamp: BigInt(NOW_MS / 1_000) };
    expect(map({ properties: seconds }, RULES).note).toBeNull();
    expect(map({ properties: { ...properties, contentEncoding: 'utf-8' } }, RULES).note).toBeNull();
  });
});
