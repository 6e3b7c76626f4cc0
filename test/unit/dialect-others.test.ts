/** Spring AMQP, Laravel, Symfony, Sneakers and Kicks, Watermill, Machinery and CloudEvents, from their wire form. */
import { describe, expect, test } from 'vitest';
import { array, death, fields, int, map, NOW_MS, type Parts, text } from './delivery-builder.js';

const RULES = { rules: [] };
const dead = { ...RULES, facts: { role: 'dead' as const } };

describe('spring', () => {
  test('the type; of a collection with what it holds', () => {
    expect(map({ headers: { __TypeId__: text('com.acme.Order') } }, RULES).job.kind).toBe('com.acme.Order');
    const list = { __TypeId__: text('java.util.ArrayList'), __ContentTypeId__: text('com.acme.Order') };
    expect(map({ headers: list }, RULES).job.kind).toBe('java.util.ArrayList<com.acme.Order>');
  });

  test('republished after failures: where it was, what failed, how often', () => {
    const headers = {
      __TypeId__: text('com.acme.Order'),
      'x-exception-message': text('no stock'),
      'x-exception-stacktrace': text('com.acme.NoStock: no stock\n\tat com.acme.Shop'),
      'x-original-exchange': text('orders'),
      'x-original-routingKey': text('order.paid'),
      'retry-count': int(3),
    };
    const parts = { queue: 'error.orders', exchange: '', routingKey: 'error.orders', headers };
    expect(map(parts, dead).job).toMatchObject({
      kind: 'com.acme.Order',
      attempts: 3,
      state: 'dead',
      error: { name: 'com.acme.NoStock', message: 'no stock' },
    });
    const rules = [{ match: { exchange: 'orders', routingKey: 'order.*' }, kind: 'order.{1}' }];
    expect(map(parts, { ...dead, rules }).job.kind).toBe('order.paid');
  });

  test('attempts from x-death of its queue when it does not count itself', () => {
    const headers = {
      __TypeId__: text('T'),
      'x-death': array(
        death({ queue: 'work.wait', reason: 'expired', count: 2 }),
        death({ queue: 'work', reason: 'rejected', count: 2 }),
      ),
    };
    expect(map({ headers }, RULES).job.attempts).toBe(2);
  });

  test('a Java object: its bytes; a request that waits: no job', () => {
    const headers = { __TypeId__: text('T') };
    const properties = { contentType: 'application/x-java-serialized-object' };
    const { job } = map({ headers, properties, body: Buffer.from('aced0005', 'hex') }, RULES);
    expect(job).toMatchObject({ kind: 'T', state: 'dead', error: { name: 'body-binary' } });
    expect(map({ headers, properties: { replyTo: 'amq.rabbitmq.reply-to.x' } }, RULES).outcome).toBe(
      'excluded',
    );
  });
});

describe('laravel', () => {
  const body = (more = '') =>
    `{"uuid":"u1","displayName":"App\\\\Jobs\\\\SendMail","job":"Illuminate\\\\Queue\\\\CallQueuedHandler@call","maxTries":3,"backoff":null,"timeout":60,"retryUntil":null,"data":{"commandName":"App\\\\Jobs\\\\SendMail","command":"O:17:\\"App\\\\Jobs\\\\SendMail\\":1:{s:2:\\"id\\";i:7;}"}${more},"id":"l1"}`;
  const parts = (attempts: number, more: Parts = {}): Parts => ({
    queue: 'q',
    body: body(),
    headers: { laravel: fields({ attempts: int(attempts) }) },
    ...more,
    properties: { contentType: 'application/json', correlationId: 'l1' },
  });

  test('in its delay queue: at the end of the bounds, no attempt made; the PHP command stays as it is', () => {
    const facts = { role: 'wait' as const, ttlMs: 30_000 };
    const mapped = map(parts(0, { queue: 'q.delay.30000', routingKey: 'q.delay.30000' }), {
      ...RULES,
      facts,
    });
    expect(mapped.job).toMatchObject({
      kind: 'App\\Jobs\\SendMail',
      payloadText: body(),
      attempts: 0,
      maxAttempts: 3,
      runAtMs: NOW_MS + 30_000,
      state: 'ready',
    });
    expect(mapped.runAtExact).toBe(false);
    expect(mapped.identity).toEqual({ homeQueue: 'q', id: 'l1', attempt: 0 });
  });

  test('its header counts attempts made; x-death of its many delay queues does not', () => {
    const headers = {
      laravel: fields({ attempts: int(2) }),
      'x-death': array(death({ queue: 'q', reason: 'rejected', count: 9 })),
    };
    expect(map({ ...parts(2), headers }, RULES).job.attempts).toBe(2);
  });

  test('no more tries after retryUntil: cancelled', () => {
    const until = (seconds: number) =>
      map(parts(1, { body: body().replace('"retryUntil":null', `"retryUntil":${seconds}`) }), RULES).job
        .state;
    expect(until(NOW_MS / 1_000 - 1)).toBe('cancelled');
    expect(until(NOW_MS / 1_000 + 1)).toBe('ready');
  });

  test('a job and data of somebody else are not claimed', () => {
    expect(map({ body: '{"job":"print","data":{"pages":2}}' }, RULES).outcome).toBe('unmapped');
  });
});

describe('symfony', () => {
  const STAMP = 'X-Message-Stamp-Symfony\\Component\\Messenger\\Stamp\\';
  const base = {
    type: text('App\\Message\\SendMail'),
    [`${STAMP}BusNameStamp`]: text('[{"busName":"messenger.bus.default"}]'),
    'Content-Type': text('application/json'),
  };

  test('type is the kind, the newest redelivery stamp counts', () => {
    const headers = {
      ...base,
      [`${STAMP}RedeliveryStamp`]: text('[{"retryCount":1},{"retryCount":2}]'),
      [`${STAMP}DelayStamp`]: text('[{"delay":4000}]'),
    };
    const facts = { role: 'wait' as const, ttlMs: 4_000 };
    const mapped = map(
      // Copied from the first publish an hour ago: it dates nothing.
      {
        queue: 'delay_messages__high_4000_retry',
        headers,
        body: '{"to":"a"}',
        properties: { timestamp: BigInt(NOW_MS / 1_000 - 3_600) },
      },
      { ...RULES, facts },
    );
    expect(mapped.job).toMatchObject({
      kind: 'App\\Message\\SendMail',
      payloadText: '{"to":"a"}',
      attempts: 2,
      runAtMs: NOW_MS + 4_000,
    });
    expect(mapped.runAtExact).toBe(false);
  });

  test('retried to an exchange of many queues: home is the queue it lies in', () => {
    const parts = (queue: string) => ({ queue, headers: base, properties: { messageId: 'm' } });
    expect(map(parts('high'), RULES).identity?.homeQueue).toBe('high');
    expect(map(parts('low'), RULES).identity?.homeQueue).toBe('low');
  });

  test('in the failure transport: dead with its error', () => {
    const headers = {
      ...base,
      [`${STAMP}SentToFailureTransportStamp`]: text('[{"originalReceiverName":"async"}]'),
      [`${STAMP}ErrorDetailsStamp`]: text(
        '[{"exceptionClass":"App\\\\NoMail","exceptionCode":0,"exceptionMessage":"no mail"}]',
      ),
    };
    expect(map({ queue: 'mail', headers }, RULES).job).toMatchObject({
      state: 'dead',
      error: { name: 'App\\NoMail', message: 'no mail' },
    });
  });

  const php = String.raw`O:36:\"Symfony\\Component\\Messenger\\Envelope\":2:{s:44:\"\0Symfony\\Component\\Messenger\\Envelope\0stamps\";a:0:{}s:45:\"\0Symfony\\Component\\Messenger\\Envelope\0message\";O:20:\"App\\Message\\SendMail\":1:{s:2:\"to\";s:1:\"a\";}}`;
  const plain = php.replaceAll('\\"', '"').replaceAll('\\\\', '\\').replaceAll('\\0', '\0');

  test.each([
    ['with slashes added', Buffer.from(php)],
    ['plain, with NULs', Buffer.from(plain)],
    ['in Base64', Buffer.from(Buffer.from(plain).toString('base64'))],
  ])("PHP's own serialisation, %s: bytes, dead, its class as the kind", (_, body) => {
    const { job } = map({ queue: 'messages', body }, RULES);
    expect(job).toMatchObject({
      kind: 'App\\Message\\SendMail',
      state: 'dead',
      payloadText: null,
      error: { name: 'php-serialized' },
    });
    expect(job.body).toEqual(body);
  });

  test('a stamp that is not JSON counts nothing; a plain type header is no mark', () => {
    const headers = { ...base, [`${STAMP}RedeliveryStamp`]: text('oops') };
    expect(map({ headers }, RULES).job.attempts).toBe(0);
    expect(map({ headers: { type: text('SendMail') } }, RULES).outcome).toBe('unmapped');
  });
});

describe('sneakers and kicks', () => {
  const encoded = (value: string): string =>
    Buffer.from(value)
      .toString('base64')
      .replace(/(.{60})/g, '$1\n')
      .concat('\n');

  test('the old error body: the original out of Base64 with its line breaks, dead, six attempts', () => {
    const payload = `{"id":9007199254740993,"text":"${'é'.repeat(60)}"}`;
    const properties = '{"content_type":"application/json","message_id":"m6","headers":{}}';
    const body = JSON.stringify({
      error: 'boom',
      num_attempts: 6,
      failed_at: '2026-03-01T11:00:00Z',
      payload: encoded(payload),
      properties: encoded(properties),
      error_class: 'RuntimeError',
      error_message: 'boom',
    });
    expect(body).toContain('\\n');
    // Whatever its queue is called.
    for (const options of [RULES, dead]) {
      const mapped = map({ queue: 'mail-error', routingKey: 'mail', body }, options);
      expect(mapped.job).toMatchObject({
        kind: 'mail',
        payloadText: payload,
        state: 'dead',
        attempts: 6,
        error: { name: 'RuntimeError', message: 'boom' },
      });
      expect(mapped.identity).toEqual({ homeQueue: 'mail', id: 'm6', attempt: 6 });
    }
  });

  test('an original that is not text: its own bytes', () => {
    const body = JSON.stringify({
      error: 'reject',
      num_attempts: 2,
      failed_at: 'x',
      payload: encoded('\u00ff\u0000'),
    });
    const { job } = map({ body, routingKey: 'mail' }, RULES);
    expect(job.body).toEqual(Buffer.from('\u00ff\u0000'));
    expect(job).toMatchObject({ state: 'dead', payloadText: null, contentType: null });
  });

  const failure = (attempts: number) => ({
    error: 'boom',
    num_attempts: attempts,
    failed_at: '2026-03-01T11:00:00Z',
    properties: { message_id: 'm7', headers: {} },
    error_class: 'RuntimeError',
    error_message: 'boom',
  });

  test.each([
    ['an object', failure(6)],
    ['a list, newest first', [failure(6), failure(2)]],
  ])('retry_info as %s', (_, info) => {
    const headers = { retry_info: text(JSON.stringify(info)) };
    const mapped = map({ queue: 'mail-error', routingKey: 'mail', headers, body: '{"a":1}' }, dead);
    expect(mapped.job).toMatchObject({
      kind: 'mail',
      payloadText: '{"a":1}',
      attempts: 6,
      state: 'dead',
      error: { name: 'RuntimeError' },
    });
    expect(mapped.identity).toEqual({ homeQueue: 'mail', id: 'm7', attempt: 6 });
  });

  test('moved back to work it begins anew', () => {
    const headers = { retry_info: text(JSON.stringify(failure(6))) };
    expect(map({ queue: 'mail', headers }, RULES).job).toMatchObject({ state: 'ready', attempts: 0 });
  });

  test('rejections of the work queue count, expiries in its retry queue do not', () => {
    const headers = {
      retry_info: text('not json'),
      'x-death': array(
        death({ queue: 'mail-retry', reason: 'expired', count: 3 }),
        death({ queue: 'mail', reason: 'rejected', count: 3 }),
      ),
    };
    expect(map({ queue: 'mail', headers }, RULES).job.attempts).toBe(3);
  });
});

describe('watermill', () => {
  test('the topic, the uuid, and a counter that is no text', () => {
    const headers = {
      _watermill_message_uuid: text('w1'),
      'x-delivery-count': int(2),
      traceparent: text('00-a-b-01'),
    };
    const mapped = map({ queue: 'orders_worker', exchange: 'orders', routingKey: '', headers }, RULES);
    expect(mapped.job).toMatchObject({ kind: 'orders', attempts: 2 });
    expect(mapped.identity).toEqual({ homeQueue: 'orders_worker', id: 'w1', attempt: 2 });
    expect(mapped.job.headers).toMatchObject({ traceparent: '00-a-b-01' });
    expect(map({ queue: 'orders', exchange: '', routingKey: 'orders', headers }, RULES).job.kind).toBe(
      'orders',
    );
  });
});

describe('machinery', () => {
  const body = (more: Readonly<Record<string, unknown>> = {}) =>
    JSON.stringify({
      UUID: 'task_1',
      Name: 'add',
      RoutingKey: 'machinery_task',
      ETA: null,
      GroupUUID: '',
      GroupTaskCount: 0,
      Args: [{ Name: '', Type: 'int64', Value: 1 }],
      Headers: {},
      Priority: 0,
      Immutable: false,
      RetryCount: 3,
      RetryTimeout: 0,
      OnSuccess: null,
      OnError: null,
      ChordCallback: null,
      ...more,
    });

  test('RetryCount is what remains', () => {
    const mapped = map({ queue: 'machinery_tasks', body: body() }, RULES);
    expect(mapped.job).toMatchObject({ kind: 'add', attempts: 0, maxAttempts: 3, payloadText: body() });
    expect(mapped.identity?.id).toBe('task_1');
    const headers = { 'x-death': array(death({ queue: 'work', reason: 'rejected', count: 2 })) };
    expect(map({ body: body(), headers }, RULES).job).toMatchObject({ attempts: 2, maxAttempts: 5 });
    // None left: the one that waits is still due.
    expect(map({ body: body({ RetryCount: 0 }) }, RULES).job.maxAttempts).toBe(1);
  });

  test('its ETA rather than the TTL of its delay queue', () => {
    const delayed = body({ ETA: '2026-03-01T12:00:20.123456789Z' });
    const facts = { role: 'wait' as const, ttlMs: 60_000 };
    const mapped = map({ queue: 'delay.60000.ex.rk', body: delayed }, { ...RULES, facts });
    expect(mapped.job.runAtMs).toBe(NOW_MS + 20_124);
    expect(mapped.runAtExact).toBe(true);
  });

  test('followers are marked', () => {
    expect(map({ body: body({ OnSuccess: [{ Name: 'next' }] }) }, RULES).note).toContain(
      'machinery-workflow',
    );
    expect(map({ body: body() }, RULES).note).not.toContain('workflow');
  });
});

describe('cloudevents', () => {
  const attributes = (prefix: string) => ({
    [`${prefix}specversion`]: text('1.0'),
    [`${prefix}type`]: text('com.acme.order.paid'),
    [`${prefix}source`]: text('/orders'),
    [`${prefix}id`]: text('17'),
    [`${prefix}time`]: text('2027-01-01T00:00:00Z'),
    [`${prefix}traceparent`]: text('00-a-b-01'),
  });

  test('binary: either prefix, the same kind and identity; time is not when it is due', () => {
    const [colon, underscore] = ['cloudEvents:', 'cloudEvents_'].map((prefix) =>
      map({ headers: attributes(prefix), body: '{"n":1}' }, RULES),
    );
    expect(colon?.job).toMatchObject({
      kind: 'com.acme.order.paid',
      payloadText: '{"n":1}',
      runAtMs: null,
      headers: { traceparent: '00-a-b-01', origin: { source: '/orders' } },
    });
    expect(colon?.identity).toEqual({ homeQueue: 'work', id: '/orders 17', attempt: 0 });
    expect(underscore?.job.kind).toBe(colon?.job.kind);
    expect(underscore?.identity).toEqual(colon?.identity);
  });

  const structured = (data: string): Parts => ({
    body: `{"specversion":"1.0","type":"com.acme.order.paid","source":"/orders","id":"17",${data}"subject":"s"}`,
    properties: { contentType: 'application/cloudevents+json; charset=UTF-8' },
  });

  test('structured: data as written, or out of Base64', () => {
    const mapped = map(structured('"data":{"n": 9007199254740993},'), RULES);
    expect(mapped.job).toMatchObject({
      kind: 'com.acme.order.paid',
      payloadText: '{"n": 9007199254740993}',
    });
    expect(mapped.identity?.id).toBe('/orders 17');
    expect(map(structured('"data_base64":"eyJuIjoxfQ==",'), RULES).job.payloadText).toBe('{"n":1}');
    const binary = map(structured('"datacontenttype":"image/png","data_base64":"iVBORw==",'), RULES).job;
    expect(binary).toMatchObject({ state: 'dead', payloadText: null, contentType: 'image/png' });
    expect(binary.body).toEqual(Buffer.from('89504e47', 'hex'));
    expect(map(structured(''), RULES).job.payloadText).toBe('null');
  });

  test('the same members under another content type are anybody’s JSON', () => {
    expect(map({ body: structured('"data":1,').body as string }, RULES).outcome).toBe('unmapped');
  });
});
