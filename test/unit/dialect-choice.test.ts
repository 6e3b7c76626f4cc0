/** Which dialect reads a message: on its marks, in a fixed order, or by rule; never by a guess. And what surrounds any. */
import { afterEach, describe, expect, test } from 'vitest';
import { instantMs, printedError, timeSpanMs } from '../../adapters/rabbitmq/dialects/dialect.js';
import { DIALECTS, dialectNamed, FALLBACK } from '../../adapters/rabbitmq/dialects/known.js';
import { DIALECT_NAMES, type DialectName } from '../../adapters/rabbitmq/dialects/names.js';
import { checkDrainConfig } from '../../adapters/rabbitmq/drain-config.js';
import { array, death, delivery, int, long, map, NOW_MS, type Parts, text } from './delivery-builder.js';

const RULES = { rules: [] };
const wait = (ttlMs: number | null) => ({ role: 'wait' as const, ttlMs });

describe('choice', () => {
  test('every dialect has a name of its own by which a rule finds it', () => {
    const names = [...DIALECTS, FALLBACK].map(({ name }) => name);
    expect(names).toEqual(DIALECT_NAMES);
    expect(new Set(names).size).toBe(names.length);
    for (const name of names) expect(dialectNamed(name)?.name).toBe(name);
  });

  test('a rule that names none of them is refused before anything is read', () => {
    const rule = (dialect: string) => ({ rules: [{ match: { queue: 'q' }, dialect }] });
    expect(checkDrainConfig(rule('celery'), 'drain')).toEqual(rule('celery'));
    expect(() => checkDrainConfig(rule('celry'), 'drain')).toThrow(/drain\.rules/);
  });

  test.each<[string, Parts]>([
    ['nothing', {}],
    ['an array', { body: '["task","id"]' }],
    ['words that dialects use', { body: '{"task":"x","pattern":"y","Message":"z","job":1}' }],
    ['the words inside a string', { body: '{"note":"\\"actor_name\\" \\"message_id\\" \\"args\\""}' }],
    ['headers of nobody', { headers: { id: text('1'), type: text('t'), source: text('s') } }],
    ['numbers where text belongs', { headers: { task: int(1), id: int(2), 'cap-msg-name': long(3n) } }],
  ])('claimed by none: %s', (_, parts) => {
    expect(map(parts, RULES)).toMatchObject({ outcome: 'unmapped', note: null });
  });

  test('headers before bodies: a Celery header over a Nest body', () => {
    const headers = { task: text('proj.add'), id: text('1') };
    expect(map({ headers, body: '{"pattern":"p","data":1}' }, RULES).job.kind).toBe('proj.add');
  });

  test("a library's mark before a routing key like the trio's", () => {
    const parts = { exchange: 'notifications', routingKey: 'notification.order.created', body: '{"to":"a"}' };
    expect(map(parts, RULES).note).toBe('trio');
    const headers = { 'cap-msg-name': text('order.created'), 'cap-msg-id': text('1') };
    expect(map({ ...parts, headers }, RULES).job.kind).toBe('order.created');
  });

  test("a library's mark before what surrounds it: x-delay, a wait queue", () => {
    const headers = { 'rbs2-msg-type': text('T'), 'rbs2-msg-id': text('1'), 'x-delay': int(5) };
    expect(map({ headers }, { ...RULES, facts: wait(1_000) }).note).toContain('rebus');
  });

  test('a rule overrides: another dialect, or none', () => {
    const headers = { task: text('proj.add'), id: text('1') };
    const by = (dialect: DialectName) => ({ rules: [{ match: { queue: 'work' }, dialect }] });
    const body = '{"pattern":"p","data":1}';
    expect(map({ headers, body }, by('nestjs')).job.kind).toBe('p');
    expect(map({ headers, body }, by('raw-json')).outcome).toBe('unmapped');
  });

  test('no dialect throws on any message, and none reads a field from one that says nothing', () => {
    const odd: Parts[] = [
      {},
      { body: '' },
      { body: 'null' },
      { body: Buffer.from([0x4f, 0xff]) },
      { body: '{"messageType":["urn:message:x"],"message":' },
      { headers: { rascal: text('x'), laravel: array(), 'x-death': text('x'), timelimit: int(1) } },
      { headers: Buffer.from([255, 1, 2]) },
    ];
    for (const parts of odd) {
      for (const { name } of [...DIALECTS, FALLBACK]) {
        const rules = [{ match: { queue: 'work' }, dialect: name, kind: 'k' }];
        for (const role of ['main', 'wait', 'dead'] as const) {
          const mapped = map(parts, { rules, facts: { role } });
          expect(mapped.job.kind).toBe('k');
          expect(mapped.job.attempts).toBe(0);
        }
      }
    }
    expect(delivery(odd[6]).headers.length).toBe(1);
  });
});

describe('times as libraries write them', () => {
  const zone = process.env['TZ'];
  afterEach(() => {
    if (zone === undefined) delete process.env['TZ'];
    else process.env['TZ'] = zone;
  });

  test.each([
    ['2026-03-01T12:00:00Z', 0],
    ['2026-03-01T12:00:00', 0],
    ['2026-03-01 12:00:00:000000 Z', 0],
    ['2026-03-01T13:30:00.5+01:30', 500],
    ['2026-03-01T13:30:00+0130', 0],
    ['2026-03-01T12:00:00.000000001Z', 1],
    ['2026-03-01T12:00:00.0010000Z', 1],
  ])('%s, wherever this machine is', (written, more) => {
    for (const here of ['America/New_York', 'Asia/Kolkata']) {
      process.env['TZ'] = here;
      expect(new Date(2026, 2, 1).getTimezoneOffset()).not.toBe(0);
      expect(instantMs(written)).toBe(NOW_MS + more);
    }
  });

  test.each(['', 'soon', '2026-13-01T12:00:00Z', '2026-03-01', '03/01/2026 12:00:00', null, 1, {}])(
    'not one: %s',
    (written) => {
      expect(instantMs(written)).toBeUndefined();
    },
  );

  test('time spans', () => {
    const spans = ['00:00:01', '1.02:03:04.5', '00:00:00.0000001', '5', undefined].map(timeSpanMs);
    expect(spans).toEqual([1_000, 93_784_500, 1, undefined, undefined]);
  });

  test('errors as they print themselves; prose is no name', () => {
    expect(printedError('a.B$C: x: y\n at', 'e')).toEqual({ name: 'a.B$C', message: 'x: y' });
    expect(printedError('it broke', 'e')).toEqual({ name: 'e', message: 'it broke' });
    expect(printedError(undefined, 'e')).toBeUndefined();
  });
});

describe('delayed exchange', () => {
  test.each([int(60_000), int(-60_000), long(60_000n), text('60000')])(
    'of either sign and any type, the delay has elapsed',
    (delay) => {
      const { job, note } = map({ headers: { 'x-delay': delay }, properties: { type: 't' } }, RULES);
      expect(job).toMatchObject({ kind: 't', runAtMs: null, state: 'ready' });
      expect(job.headers).toMatchObject({ origin: { dialect: 'delayed-exchange', delayMs: 60_000 } });
      expect(note).toBe('delayed-exchange');
    },
  );

  test('a request is still a request, and a counter still counts', () => {
    const headers = { 'x-delay': int(5), 'x-retry-count': int(2) };
    expect(map({ headers, properties: { replyTo: 'amq.gen-1' } }, RULES).outcome).toBe('excluded');
    expect(map({ headers, properties: { type: 't' } }, RULES).job.attempts).toBe(2);
  });
});

describe('TTL ladder', () => {
  const notes = (queue: string, ttlMs: number | null, parts: Parts = {}) =>
    map({ queue, properties: { type: 't' }, ...parts }, { ...RULES, facts: wait(ttlMs) }).note;

  test.each([
    ['retry.wait.60000', 60_000],
    ['retry-60s', 60_000],
    ['orders.delay.5m', 300_000],
    ['retry_60', 60_000],
    ['orders.retry', 60_000],
  ])('%s holds what its argument says; its name agrees or says nothing', (queue, ttlMs) => {
    expect(notes(queue, ttlMs)).toBe('ttl-ladder run-at-bounds');
  });

  test('a name that says otherwise is noted; the argument decides', () => {
    const mapped = map({ queue: 'retry.30s', properties: { type: 't' } }, { ...RULES, facts: wait(60_000) });
    expect(mapped.note).toContain('ttl-differs-from-name');
    expect(mapped.job.runAtMs).toBe(NOW_MS + 60_000);
  });

  test('where the argument is not to be seen, the name does not take its place', () => {
    expect(notes('retry.wait.60000', null)).toContain('ttl-unknown');
    const own = { properties: { type: 't', expiration: '500' } };
    expect(notes('retry.wait.60000', null, own)).not.toContain('ttl-unknown');
  });

  test('back in the main queue: rejections are attempts, expiries are not', () => {
    const headers = {
      'x-death': array(
        death({ queue: 'retry.10s', reason: 'expired', count: 1 }),
        death({ queue: 'retry.1s', reason: 'expired', count: 1 }),
        death({ queue: 'work', reason: 'rejected', count: 2 }),
      ),
    };
    const mapped = map({ headers, properties: { type: 't' } }, RULES);
    expect(mapped.job.attempts).toBe(2);
    expect(mapped.note).toBe('ttl-ladder');
  });
});
