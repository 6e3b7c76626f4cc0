/** Celery and Dramatiq, from the wire form that their producers write. */
import { describe, expect, test } from 'vitest';
import type { Field } from '../../adapters/rabbitmq/headers.js';
import { array, int, map, NOW_MS, type Parts, text } from './delivery-builder.js';

const RULES = { rules: [] };
const NONE: Field = { tag: 'V' };
const EMBED = '{"callbacks": null, "errbacks": null, "chain": null, "chord": null}';

/** Protocol 2 as kombu publishes it. */
const celery2 = (headers: Parts['headers'] = {}, body = `[[2], {}, ${EMBED}]`, parts: Parts = {}) => ({
  queue: 'celery',
  routingKey: 'celery',
  headers: {
    lang: text('py'),
    task: text('proj.tasks.add'),
    id: text('d1e2'),
    shadow: NONE,
    eta: NONE,
    expires: NONE,
    group: NONE,
    retries: int(0),
    timelimit: array(NONE, NONE),
    root_id: text('d1e2'),
    parent_id: NONE,
    argsrepr: text('(2,)'),
    kwargsrepr: text('{}'),
    origin: text('gen17@host'),
    ...(headers as Readonly<Record<string, Field>>),
  },
  body,
  ...parts,
  properties: {
    contentType: 'application/json',
    contentEncoding: 'utf-8',
    deliveryMode: 2,
    priority: 0,
    correlationId: 'd1e2',
    replyTo: '5c6a3b1e-8c7e-3b6e-9d53-6f2f7c6d1a10',
    ...parts.properties,
  },
});

describe('celery protocol 2', () => {
  test('task, args and kwargs as written; the reply-to of every task makes it no request', () => {
    const mapped = map(celery2({}, `[[9007199254740993, "é"], {"amt": 10.10}, ${EMBED}]`), RULES);
    expect(mapped.outcome).toBe('row');
    expect(mapped.job).toMatchObject({
      kind: 'proj.tasks.add',
      payloadText: '{"args":[9007199254740993, "é"],"kwargs":{"amt": 10.10}}',
      attempts: 0,
      runAtMs: null,
      state: 'ready',
    });
    expect(mapped.identity).toEqual({ homeQueue: 'celery', id: 'd1e2', attempt: 0 });
    expect(mapped.note).toBe('celery');
    const direct = celery2({}, undefined, { properties: { replyTo: 'amq.gen-Xa2' } });
    expect(map(direct, RULES).outcome).toBe('row');
  });

  test('eta with an offset, to the microsecond and never early', () => {
    const at = (eta: string) => map(celery2({ eta: text(eta) }), RULES).job.runAtMs;
    expect(at('2026-11-29T15:00:00+02:00')).toBe(Date.parse('2026-11-29T13:00:00Z'));
    expect(at('2026-11-29T15:00:00.123456+00:00')).toBe(Date.parse('2026-11-29T15:00:00.124Z'));
    expect(at('2026-02-28T15:00:00+00:00')).toBeNull();
  });

  test('a chain is kept and marked, a chord too, with its group', () => {
    const chain = '{"callbacks": null, "errbacks": null, "chain": [{"task": "proj.mul"}], "chord": null}';
    const chained = map(celery2({}, `[[2], {}, ${chain}]`), RULES);
    expect(chained.job.payloadText).toBe(`{"args":[2],"kwargs":{},"embed":${chain}}`);
    expect(chained.note).toBe('celery celery-chain');
    const chord = '{"callbacks": [], "errbacks": null, "chain": null, "chord": {"task": "proj.sum"}}';
    const member = map(celery2({ group: text('g1') }, `[[2], {}, ${chord}]`), RULES);
    expect(member.note).toBe('celery celery-chord celery-group');
    expect(member.job.headers).toMatchObject({ origin: { dialect: 'celery', group: 'g1' } });
  });

  test('timelimit is hard, then soft', () => {
    const { job } = map(celery2({ timelimit: array(int(300), int(240)) }), RULES);
    expect(job.headers).toMatchObject({ origin: { timeLimitSeconds: { hard: 300, soft: 240 } } });
    const softOnly = map(celery2({ timelimit: array(NONE, int(240)) }), RULES).job;
    expect(softOnly.headers).toMatchObject({ origin: { timeLimitSeconds: { hard: null, soft: 240 } } });
  });

  test('a retry keeps its id and is another job', () => {
    const mapped = map(celery2({ retries: int(3) }), RULES);
    expect(mapped.job.attempts).toBe(3);
    expect(mapped.identity).toEqual({ homeQueue: 'celery', id: 'd1e2', attempt: 3 });
  });

  test('NaN, which Python writes: its bytes, dead, the task still known', () => {
    const { job } = map(celery2({}, `[[NaN], {}, ${EMBED}]`), RULES);
    expect(job).toMatchObject({ kind: 'proj.tasks.add', state: 'dead', error: { name: 'body-not-json' } });
  });

  test('expired by its own expiry: cancelled; not yet: runs, with the time for the worker to look at', () => {
    const expires = (ms: number) => ({ expires: text(new Date(ms).toISOString().replace('Z', '+00:00')) });
    const past = map(celery2(expires(NOW_MS - 1)), RULES).job;
    expect(past).toMatchObject({ state: 'cancelled', error: { name: 'expired' } });
    // Who retries it nevertheless wants it to run.
    expect(past.headers).not.toHaveProperty('origin.expiresAt');
    const ahead = map(celery2(expires(NOW_MS + 1)), RULES).job;
    expect(ahead.state).toBe('ready');
    expect(ahead.headers).toMatchObject({ origin: { expiresAt: new Date(NOW_MS + 1).toISOString() } });
  });

  test.each(['application/x-python-serialize', 'application/x-python-pickle'])(
    'a body of %s is kept as bytes and waits for a person, or runs by rule',
    (contentType) => {
      // Protocol 4 of pickle, and its old text form, which looks like nothing in particular.
      for (const body of [Buffer.from('80049512000000', 'hex'), Buffer.from('[]pickle')]) {
        const parts = celery2({}, undefined, { body, properties: { contentType } });
        const { job, outcome } = map(parts, RULES);
        expect(outcome).toBe('row');
        expect(job).toMatchObject({ kind: 'proj.tasks.add', state: 'dead', payloadText: null, contentType });
        expect(job.error?.name).toBe('pickle');
        expect(job.body).toEqual(body);
        const rules = [{ match: { queue: 'celery' }, body: 'run' as const }];
        expect(map(parts, { rules }).job).toMatchObject({ state: 'ready', payloadText: null });
      }
    },
  );

  test('in a level of native delayed delivery: its eta, else the end of all levels to come', () => {
    // Bits 5, 3 and 0 of 41 seconds; lying in level 5, which holds for at most 32.
    const bits = '0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.1.0.1.0.0.1';
    const parts = { queue: 'celery_delayed_5', routingKey: `${bits}.celery` };
    const facts = { role: 'wait' as const, ttlMs: 32_000 };
    const bounded = map(celery2({}, undefined, parts), { ...RULES, facts });
    expect(bounded.job.runAtMs).toBe(NOW_MS + 41_000);
    expect(bounded.runAtExact).toBe(false);
    expect(bounded.identity?.homeQueue).toBe('celery');
    const eta = { eta: text('2026-03-01T12:00:39+00:00') };
    const exact = map(celery2(eta, undefined, parts), { ...RULES, facts });
    expect(exact.job.runAtMs).toBe(NOW_MS + 39_000);
    expect(exact.runAtExact).toBe(true);
  });
});

describe('celery protocol 1', () => {
  const body = (more = '') =>
    `{"task": "proj.tasks.add", "id": "e5", "args": [4, 1.0], "kwargs": {}, "retries": 2, "eta": "2026-03-01T13:00:00", "expires": null, "utc": true, "callbacks": null, "errbacks": null, "timelimit": [300, 240], "taskset": null, "chord": null${more}}`;

  test('everything in the body; eta without a zone is UTC', () => {
    const mapped = map({ queue: 'celery', body: body() }, RULES);
    expect(mapped.job).toMatchObject({
      kind: 'proj.tasks.add',
      payloadText: '{"args":[4, 1.0],"kwargs":{}}',
      attempts: 2,
      runAtMs: NOW_MS + 3_600_000,
    });
    expect(mapped.identity?.id).toBe('e5');
    expect(mapped.note).toBe('celery');
    expect(mapped.job.headers).toMatchObject({ origin: { timeLimitSeconds: { hard: 300, soft: 240 } } });
  });

  test('not said to be UTC: taken for it, and noted', () => {
    const local = body().replace('"utc": true', '"utc": false');
    expect(map({ body: local }, RULES).note).toBe('celery eta-zone-assumed-utc');
  });

  test('the hybrid: headers win', () => {
    const headers = { task: text('proj.tasks.mul'), id: text('f6'), retries: int(5) };
    const mapped = map({ body: body(), headers }, RULES);
    expect(mapped.job).toMatchObject({ kind: 'proj.tasks.mul', attempts: 5 });
    expect(mapped.identity?.id).toBe('f6');
  });

  test.each([
    '{"task": "x", "id": "1"}',
    '{"task": "x", "id": "1", "args": {}, "kwargs": {}}',
    '{"data": {"task": "x", "id": "1", "args": [], "kwargs": {}}}',
    '["task", "id", "args", "kwargs"]',
    '{"task": "x", "id": "1", "args": [], "kwargs": {}',
  ])('not one: %s', (other) => {
    expect(map({ body: other }, RULES)).toMatchObject({
      outcome: 'unmapped',
      note: expect.not.stringContaining('celery') as string,
    });
  });
});

describe('dramatiq', () => {
  const body = (options: string) =>
    `{"queue_name":"default","actor_name":"count_words","args":["https://example.org",9007199254740993],"kwargs":{},"options":${options},"message_id":"7c2a","message_timestamp":${NOW_MS - 60_000}}`;

  test('delayed in its .DQ: eta in milliseconds, id, retries, the last error', () => {
    const options = `{"retries":2,"max_retries":5,"eta":${NOW_MS + 15_000},"traceback":"Traceback (most recent call last):\\n  File \\"x.py\\"\\nValueError: no words\\n","time_limit":600000}`;
    const mapped = map({ queue: 'default.DQ', body: body(options) }, RULES);
    expect(mapped.job).toMatchObject({
      kind: 'count_words',
      payloadText: '{"args":["https://example.org",9007199254740993],"kwargs":{}}',
      attempts: 2,
      maxAttempts: 6,
      runAtMs: NOW_MS + 15_000,
      state: 'ready',
    });
    expect(mapped.runAtExact).toBe(true);
    expect(mapped.identity).toEqual({ homeQueue: 'default', id: '7c2a', attempt: 2 });
    expect(mapped.job.headers).toMatchObject({ origin: { timeLimitMs: 600_000 } });
    const dead = map({ queue: 'default.XQ', body: body(options) }, { ...RULES, facts: { role: 'dead' } });
    expect(dead.job).toMatchObject({ state: 'dead', error: { name: 'ValueError', message: 'no words' } });
  });

  test('too old for its own max_age: cancelled', () => {
    expect(map({ body: body('{"max_age":59999}') }, RULES).job.state).toBe('cancelled');
    expect(map({ body: body('{"max_age":60000}') }, RULES).job.state).toBe('ready');
  });

  test('a pipeline keeps its options and is marked', () => {
    const mapped = map({ body: body('{"pipe_target":{"actor_name":"next"}}') }, RULES);
    expect(mapped.note).toBe('dramatiq dramatiq-workflow');
    expect(mapped.job.payloadText).toContain('"options":{"pipe_target":{"actor_name":"next"}}');
  });
});
