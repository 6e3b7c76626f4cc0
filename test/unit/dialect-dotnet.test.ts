/** MassTransit, NServiceBus, EasyNetQ, Rebus, CAP and Wolverine, from the wire form that they write. */
import { gzipSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { array, death, int, map, NOW_MS, type Parts, text } from './delivery-builder.js';

const RULES = { rules: [] };
const dead = { ...RULES, facts: { role: 'dead' as const } };
const bytes = (value: string) => ({ tag: 'x' as const, bytes: Buffer.from(value) });

describe('masstransit', () => {
  const envelope = (more = '') =>
    `{\r\n  "messageId": "01ea",\r\n  "conversationId": "c1",\r\n  "messageType": [\r\n    "urn:message:Acme.Orders:SubmitOrder",\r\n    "urn:message:Acme.Orders:IOrder"\r\n  ],\r\n  "message": {\r\n    "orderId": 9007199254740993\r\n  },\r\n  "sentTime": "2026-03-01T11:59:00.1234567Z",\r\n  "headers": {}${more}\r\n}`;
  const parts = (body: string, more: Parts = {}): Parts => ({
    queue: 'submit-order',
    exchange: 'submit-order',
    routingKey: '',
    body,
    ...more,
    properties: { contentType: 'application/vnd.masstransit+json', messageId: '01ea', ...more.properties },
  });

  test('the envelope: first type, id, the message as written', () => {
    const mapped = map(parts(envelope()), RULES);
    expect(mapped.job).toMatchObject({
      kind: 'urn:message:Acme.Orders:SubmitOrder',
      payloadText: '{\r\n    "orderId": 9007199254740993\r\n  }',
      state: 'ready',
      attempts: 0,
    });
    expect(mapped.identity).toEqual({ homeQueue: 'submit-order', id: '01ea', attempt: 0 });
    expect(mapped.job.headers).toMatchObject({ origin: { dialect: 'masstransit', conversationId: 'c1' } });
  });

  test('one publish to two queues is two jobs, and so is the same id with another body', () => {
    const [a, b] = ['a', 'b'].map((queue) => map(parts(envelope(), { queue }), RULES));
    expect([a?.outcome, b?.outcome]).toEqual(['row', 'row']);
    expect(a?.identity).not.toEqual(b?.identity);
    const other = map(parts(envelope().replace('740993', '740994')), RULES);
    // Nothing but counting decides what is a duplicate: no key makes the second one vanish.
    expect([a?.job.dedupeKey, other.job.dedupeKey]).toEqual([null, null]);
  });

  test('compressed, whatever the property says: the message out of the inflated envelope', () => {
    const body = gzipSync(envelope());
    for (const contentEncoding of ['gzip', 'gzip:UTF-8', 'utf-8']) {
      const { job } = map(parts('', { body, properties: { contentEncoding } }), RULES);
      expect(job.payloadText).toBe('{\r\n    "orderId": 9007199254740993\r\n  }');
    }
  });

  test('expirationTime in the past: cancelled', () => {
    const past = envelope(',\r\n  "expirationTime": "2026-03-01T11:59:30Z"');
    expect(map(parts(past), RULES).job).toMatchObject({ state: 'cancelled', error: { name: 'expired' } });
    const future = envelope(',\r\n  "expirationTime": "2026-03-01T12:00:30Z"');
    expect(map(parts(future), RULES).job.state).toBe('ready');
  });

  const fault = {
    'MT-Reason': text('fault'),
    'MT-Fault-ExceptionType': text('System.InvalidOperationException'),
    'MT-Fault-Message': text('Order is closed'),
    'MT-Fault-RetryCount': int(2),
    'MT-Activity-Id': text('00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'),
  };

  test('_error: dead with its fault; retries in memory plus the first try are attempts', () => {
    const mapped = map(parts(envelope(), { queue: 'submit-order_error', headers: fault }), dead);
    expect(mapped.job).toMatchObject({
      state: 'dead',
      attempts: 3,
      error: { name: 'System.InvalidOperationException', message: 'Order is closed' },
    });
    expect(mapped.identity?.homeQueue).toBe('submit-order');
    expect(mapped.job.headers).toMatchObject({
      traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
    });
  });

  test('shovelled back to its queue, a fault is work again', () => {
    expect(map(parts(envelope(), { headers: fault }), RULES).job).toMatchObject({
      state: 'ready',
      attempts: 0,
    });
  });

  test('_skipped: unhandled, and not run even where dead letters are retried', () => {
    const skipped = parts(envelope(), {
      queue: 'submit-order_skipped',
      headers: { 'MT-Reason': text('dead-letter') },
    });
    const rules = [{ match: { queue: '*' }, deadLetters: 'retry' as const }];
    for (const options of [dead, { ...dead, rules }, RULES]) {
      expect(map(skipped, options).job).toMatchObject({ state: 'dead', error: { name: 'unhandled' } });
    }
  });

  test('delayed redelivery is counted, whichever type the header has', () => {
    for (const count of [int(4), text('4')]) {
      expect(map(parts(envelope(), { headers: { 'MT-Redelivery-Count': count } }), RULES).job.attempts).toBe(
        4,
      );
    }
  });

  test('raw JSON: type and id in headers, the body is the message', () => {
    const headers = {
      'MT-MessageType': text('urn:message:Acme:Ping;urn:message:Acme:IPing'),
      MessageId: text('02'),
    };
    const mapped = map({ headers, body: '{"n": 1}', properties: { contentType: 'application/json' } }, RULES);
    expect(mapped.job).toMatchObject({ kind: 'urn:message:Acme:Ping', payloadText: '{"n": 1}' });
    expect(mapped.identity?.id).toBe('02');
  });

  test('encrypted or MessagePack: bytes, dead, by whatever kind a rule gives', () => {
    const rules = [{ match: { queue: '*' }, kind: 'k' }];
    const aes = parts('{"not": "json really"}', {
      properties: { contentType: 'application/vnd.masstransit+aes' },
    });
    expect(map(aes, { rules }).job).toMatchObject({ kind: 'k', state: 'dead', error: { name: 'encrypted' } });
    const msgpack = parts('', {
      body: Buffer.from('82a16101', 'hex'),
      properties: { contentType: 'application/vnd.masstransit+msgpack' },
    });
    expect(map(msgpack, { rules }).job.error?.name).toBe('body-binary');
    expect(map(msgpack, RULES).outcome).toBe('unmapped');
  });
});

describe('nservicebus', () => {
  const base = {
    'NServiceBus.MessageId': text('5f3c'),
    'NServiceBus.MessageIntent': text('Send'),
    'NServiceBus.ConversationId': text('c9'),
    'NServiceBus.EnclosedMessageTypes': text(
      'Acme.PlaceOrder, Acme, Version=1.0.0.0, Culture=neutral, PublicKeyToken=null;Acme.ICommand, Acme',
    ),
    'NServiceBus.TimeSent': text('2026-03-01 11:59:30:250000 Z'),
    'NServiceBus.ContentType': text('application/json'),
  };
  const parts = (headers: Parts['headers'], more: Parts = {}): Parts => ({
    queue: 'sales',
    routingKey: 'sales',
    body: '{"OrderId":"a"}',
    headers: { ...base, ...(headers as object) },
    ...more,
  });

  test('the first enclosed type without its version, retries, id', () => {
    const mapped = map(parts({ 'NServiceBus.Retries': text('2') }), RULES);
    expect(mapped.job).toMatchObject({ kind: 'Acme.PlaceOrder, Acme', attempts: 2, state: 'ready' });
    expect(mapped.identity).toEqual({ homeQueue: 'sales', id: '5f3c', attempt: 2 });
  });

  test('an id as bytes is the same id as text', () => {
    const [asText, asBytes] = [text('5f3c'), bytes('5f3c')].map(
      (id) => map(parts({ 'NServiceBus.MessageId': id }), RULES).identity,
    );
    expect(asBytes).toEqual(asText);
  });

  test('a JSON body behind a byte order mark', () => {
    const body = Buffer.concat([Buffer.from('efbbbf', 'hex'), Buffer.from('{"OrderId":"a"}')]);
    expect(map(parts({}, { body }), RULES).job).toMatchObject({
      payloadText: '{"OrderId":"a"}',
      state: 'ready',
    });
  });

  const bits = (seconds: number) => seconds.toString(2).padStart(28, '0').split('').join('.');
  const level = (headers: Parts['headers'], seconds: number, at: number) => ({
    ...parts(headers),
    queue: `nsb.v2.delay-level-${String(at).padStart(2, '0')}`,
    exchange: `nsb.v2.delay-level-${at}`,
    routingKey: `${bits(seconds)}.sales`,
  });
  const wait = { ...RULES, facts: { role: 'wait' as const, ttlMs: 32_000 } };
  const DELAY = 'NServiceBus.Transport.RabbitMQ.DelayInSeconds';

  test('delayed: when it was sent plus the delay', () => {
    const mapped = map(level({ [DELAY]: int(45) }, 45, 5), wait);
    expect(mapped.job.runAtMs).toBe(NOW_MS - 29_750 + 45_000);
    expect(mapped.runAtExact).toBe(true);
    expect(mapped.identity?.homeQueue).toBe('sales');
  });

  test('a delayed retry counts from its own stamp, not from the first sending', () => {
    const headers = {
      [DELAY]: int(30),
      'NServiceBus.Retries': text('1'),
      'NServiceBus.Retries.Timestamp': text('2026-03-01 11:59:50:000000 Z'),
    };
    expect(map(level(headers, 30, 4), wait).job.runAtMs).toBe(NOW_MS + 20_000);
  });

  test('without the seconds: the end of this level and all lower ones, marked', () => {
    const mapped = map(level({}, 45, 5), wait);
    expect(mapped.job.runAtMs).toBe(NOW_MS + 45_000);
    expect(mapped.runAtExact).toBe(false);
    expect(map(level({}, 45, 2), wait).job.runAtMs).toBe(NOW_MS + 5_000);
    expect(map(level({}, 45, 0), wait).job.runAtMs).toBe(NOW_MS + 1_000);
  });

  test('a delay message without headers is dead, whatever kind a rule gives', () => {
    const bare = { queue: 'nsb.v2.delay-level-05', routingKey: `${bits(45)}.sales`, body: '{}' };
    expect(map(bare, wait).job.state).toBe('dead');
    const rules = [{ match: { queue: '*' }, kind: 'k' }];
    expect(map(bare, { ...wait, rules }).job).toMatchObject({
      kind: 'k',
      state: 'dead',
      error: { name: 'no-headers' },
    });
  });

  test('failed: dead where it was moved to, work where it came from', () => {
    const failed = {
      'NServiceBus.FailedQ': text('sales'),
      'NServiceBus.ExceptionInfo.ExceptionType': text('System.TimeoutException'),
      'NServiceBus.ExceptionInfo.Message': text('too\u0000 slow'),
    };
    const mapped = map(parts(failed, { queue: 'error' }), RULES);
    expect(mapped.job).toMatchObject({
      state: 'dead',
      error: { name: 'System.TimeoutException', message: 'too␀ slow' },
    });
    expect(mapped.identity?.homeQueue).toBe('sales');
    expect(map(parts(failed), RULES).job.state).toBe('ready');
  });

  test('an audit copy and a control message are no jobs', () => {
    const audit = { 'NServiceBus.ProcessingEnded': text('2026-03-01 11:59:31:000000 Z') };
    expect(map(parts(audit, { queue: 'audit' }), RULES)).toMatchObject({
      job: null,
      outcome: 'excluded',
      note: 'audit: a copy of a message already handled',
    });
    expect(map(parts({ 'NServiceBus.ControlMessage': text('True') }), RULES).outcome).toBe('excluded');
  });

  test('past its time to be received: cancelled', () => {
    const within = (span: string) => parts({ 'NServiceBus.TimeToBeReceived': text(span) });
    expect(map(within('00:00:29'), RULES).job.state).toBe('cancelled');
    expect(map(within('1.00:00:00'), RULES).job.state).toBe('ready');
  });
});

describe('easynetq', () => {
  const type = 'Acme.Orders.OrderPlaced, Acme.Orders';

  test('type names the kind', () => {
    const mapped = map({ body: '{"Id":1}', properties: { type, messageId: 'm' } }, RULES);
    expect(mapped.job).toMatchObject({ kind: type, payloadText: '{"Id":1}' });
    expect(mapped.note).toBe('easynetq');
  });

  test.each(['OrderPlaced', 'order.placed', 'Resize, please', 'a.b, '])('%s is no .NET type', (other) => {
    expect(map({ properties: { type: other } }, RULES).note).toBeNull();
  });

  const wrapped = (message: string, basic = `{"Type":"${type}","MessageId":"m1","CorrelationId":"c1"}`) =>
    `{"RoutingKey":"order.placed","Exchange":"orders","Queue":"Acme_worker","Exception":"System.AggregateException: One or more errors occurred. (boom)\\r\\n ---> System.Exception: boom\\r\\n   at Acme","Message":${JSON.stringify(message)},"DateTime":"2026-03-01T11:58:00.1234567Z","BasicProperties":${basic}}`;
  const inErrors = (body: string): Parts => ({
    queue: 'EasyNetQ_Default_Error_Queue',
    exchange: 'ErrorExchange_order.placed',
    routingKey: 'order.placed',
    body,
    properties: { type: 'EasyNetQ.SystemMessages.Error, EasyNetQ' },
  });

  test('the error queue: the original, its type, its home, the exception', () => {
    const message = '{"Id":9007199254740993,"s":"\\u00e9\\"x\\""}';
    const mapped = map(inErrors(wrapped(message)), dead);
    expect(mapped.job).toMatchObject({
      kind: type,
      payloadText: message,
      state: 'dead',
      error: { name: 'System.AggregateException', message: 'One or more errors occurred. (boom)' },
    });
    expect(mapped.identity).toEqual({ homeQueue: 'Acme_worker', id: 'm1', attempt: 0 });
    expect(mapped.job.headers).toMatchObject({
      origin: { correlationId: 'c1', failedAt: '2026-03-01T11:58:00.124Z' },
    });
    // A rule speaks of where it was published first.
    const rules = [{ match: { exchange: 'orders', routingKey: 'order.*' }, kind: 'order.{1}' }];
    expect(map(inErrors(wrapped(message)), { ...dead, rules }).job.kind).toBe('order.placed');
  });

  test('an original that is not JSON: its own bytes, dead', () => {
    const { job } = map(inErrors(wrapped('<order/>')), dead);
    expect(job).toMatchObject({ payloadText: null, state: 'dead' });
    expect(job.body).toEqual(Buffer.from('<order/>'));
  });

  test('an original without a type: unmapped, the wrapper kept', () => {
    const { job, outcome } = map(inErrors(wrapped('{}', '{}')), dead);
    expect(outcome).toBe('unmapped');
    expect(job.payloadText).toContain('"Exception"');
  });

  test('a request waits on a response queue', () => {
    expect(map({ properties: { type, replyTo: 'easynetq.response.1f' } }, RULES).outcome).toBe('excluded');
  });
});

describe('rebus', () => {
  const base = {
    'rbs2-msg-id': text('r1'),
    'rbs2-msg-type': text('Acme.Bill, Acme'),
    'rbs2-corr-id': text('r0'),
    'rbs2-senttime': text('2026-03-01T12:59:00.0000000+01:00'),
    'rbs2-content-type': text('application/json;charset=utf-8'),
  };

  test('type, id, correlation; deferred until', () => {
    const headers = { ...base, 'rbs2-deferred-until': text('2026-03-01T14:00:00.0000000+01:00') };
    const mapped = map({ queue: 'billing', headers }, RULES);
    expect(mapped.job).toMatchObject({ kind: 'Acme.Bill, Acme', runAtMs: NOW_MS + 3_600_000 });
    expect(mapped.identity?.id).toBe('r1');
    expect(mapped.job.headers).toMatchObject({ origin: { correlationId: 'r0' } });
  });

  test('x-delay as text has elapsed', () => {
    expect(map({ headers: { ...base, 'x-delay': text('60000') } }, RULES).job.runAtMs).toBeNull();
  });

  test('in the error queue: dead, at home where it failed', () => {
    const headers = {
      ...base,
      'rbs2-source-queue': text('billing'),
      'rbs2-error-details': text('2 unhandled exceptions\nSystem.Exception: no\n   at Acme'),
    };
    const mapped = map({ queue: 'error', headers }, RULES);
    expect(mapped.job).toMatchObject({ state: 'dead', error: { name: 'System.Exception', message: 'no' } });
    expect(mapped.identity?.homeQueue).toBe('billing');
    expect(map({ queue: 'billing', headers }, RULES).job.state).toBe('ready');
  });

  test('past its time to be received: cancelled', () => {
    const within = (span: string) => ({ headers: { ...base, 'rbs2-time-to-be-received': text(span) } });
    expect(map(within('00:00:59'), RULES).job.state).toBe('cancelled');
    expect(map(within('00:01:01'), RULES).job.state).toBe('ready');
  });
});

describe('cap', () => {
  const base = {
    'cap-msg-id': text('3595776088887042141'),
    'cap-msg-name': text('order.created'),
    'cap-msg-type': text('OrderCreated'),
    'cap-corr-id': text('3595776088887042140'),
    'cap-senttime': text('03/01/2026 11:59:00'),
  };

  test('name, id, the value as written; a delay has passed in its own database', () => {
    const headers = { ...base, 'cap-delaytime': text('00:05:00') };
    const mapped = map({ queue: 'cap.queue.orders.v1', headers, body: '{"Id":1}' }, RULES);
    expect(mapped.job).toMatchObject({ kind: 'order.created', payloadText: '{"Id":1}', runAtMs: null });
    expect(mapped.identity).toEqual({
      homeQueue: 'cap.queue.orders.v1',
      id: '3595776088887042141',
      attempt: 0,
    });
  });

  test('its exception is the error of a dead letter', () => {
    const headers = { ...base, 'cap-exception': text('SubscriberExecutionFailedException-->no stock') };
    expect(map({ headers }, dead).job.error).toEqual({
      name: 'SubscriberExecutionFailedException',
      message: 'no stock',
    });
  });
});

describe('wolverine', () => {
  const base = { 'message-type': text('Acme.Ship'), id: text('w1'), attempts: text('2') };

  test('type, id, attempts, time to send', () => {
    const headers = { ...base, 'time-to-send': text('2026-03-01 12:30:00:000000 Z') };
    const mapped = map({ headers }, RULES);
    expect(mapped.job).toMatchObject({ kind: 'Acme.Ship', attempts: 2, runAtMs: NOW_MS + 1_800_000 });
    expect(mapped.identity).toEqual({ homeQueue: 'work', id: 'w1', attempt: 2 });
  });

  test.each(['keep-until', 'deliver-by'])('%s in the past: cancelled', (name) => {
    const at = (time: string) => map({ headers: { ...base, [name]: text(time) } }, RULES).job.state;
    expect(at('2026-03-01T11:59:59.9999999+00:00')).toBe('ready');
    expect(at('2026-03-01T11:59:59.0000000+00:00')).toBe('cancelled');
    expect(at('2026-03-01T12:00:01Z')).toBe('ready');
  });

  test('type and id in properties, the rest in headers', () => {
    const headers = {
      'accepted-content-types': text('application/json'),
      'conversation-id': text('c'),
      source: text('Shop'),
      attempts: int(0),
    };
    const mapped = map({ headers, properties: { type: 'Acme.Ship', messageId: 'w2' } }, RULES);
    expect(mapped.note).toBe('wolverine');
    expect(mapped.identity?.id).toBe('w2');
  });

  test('one plain header alone is no mark', () => {
    expect(map({ headers: { attempts: int(2) }, properties: { type: 't' } }, RULES).note).toBeNull();
    expect(map({ headers: { 'message-type': text('t') } }, RULES).outcome).toBe('unmapped');
  });

  test('its dead letters say what failed', () => {
    const headers = {
      ...base,
      'exception-type': text('System.Exception'),
      'exception-message': text('no'),
      'x-death': array(death({ queue: 'ship', reason: 'rejected', count: 1 })),
    };
    expect(map({ queue: 'wolverine-dead-letter-queue', headers }, dead).job).toMatchObject({
      state: 'dead',
      error: { name: 'System.Exception', message: 'no' },
    });
  });
});
