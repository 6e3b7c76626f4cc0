/**
 * Messages put together at random out of what dialects look for: none makes mapping throw, each is one row or excluded with a
 * reason, and no row holds what Postgres refuses.
 */
import { expect, test } from 'vitest';
import type { Field } from '../../adapters/rabbitmq/headers.js';
import { isStorable, isStorableJson } from '../../src/jobs/text.js';
import { array, fields, int, long, map, type Parts, text } from './delivery-builder.js';

const SEED = 20_260_301;
const MESSAGES = 2_500;

/** mulberry32: the same messages in every run. */
function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

const NAMES =
  `task id retries eta expires timelimit group args kwargs utc actor_name message_id options message_timestamp
  queue_name UUID Name Args RetryCount OnSuccess ETA pattern data messageType message messageId expirationTime headers
  MT-Redelivery-Count MT-Reason MT-Fault-RetryCount MT-Activity-Id MT-MessageType NServiceBus.EnclosedMessageTypes
  NServiceBus.MessageId NServiceBus.TimeSent NServiceBus.FailedQ NServiceBus.TimeToBeReceived NServiceBus.Retries
  NServiceBus.Transport.RabbitMQ.DelayInSeconds rbs2-msg-id rbs2-msg-type rbs2-error-details rbs2-deferred-until
  cap-msg-name cap-msg-id cap-exception message-type attempts keep-until time-to-send cloudEvents:type cloudEvents:id
  cloudEvents_source cloudEvents_expirytime type source data_base64 X-Message-Stamp-x laravel job displayName maxTries
  retryUntil rascal retry_info payload num_attempts failed_at error properties _watermill_message_uuid __TypeId__
  x-exception-message x-original-routingKey Exception Message Queue BasicProperties Exchange x-delay x-death x-retry-count
  isDisposed response sequence_end __proto__ toString valueOf`.split(/\s+/);

const TEXTS = [
  ...[
    '',
    'x',
    'a\u0000b',
    '\ud800',
    '2026-03-01T11:00:00Z',
    '9999-12-31T23:59:59.9999999+14:00',
    '00:00:01',
    '3',
  ],
  ...[
    'urn:message:a:b',
    'A.B, C',
    'App\\X',
    'fault',
    '[{"retryCount":1}]',
    '{"num_attempts":2}',
    'eyJhIjoxfQ==',
  ],
  ...['x'.repeat(300), '-1', '99999999999999999999', '1e5', '{', 'amq.gen-1', 'easynetq.response.1'],
];
const QUEUES = [
  'work',
  'q_error',
  'q_skipped',
  'nsb.v2.delay-level-05',
  'celery_delayed_99',
  'q.delay.5',
  'q.XQ',
];
const TYPES = [
  'application/json',
  'application/vnd.masstransit+json',
  'application/cloudevents+json',
  'x-pickle',
];

test(`${MESSAGES} of them`, () => {
  const next = random(SEED);
  const pick = <T>(list: readonly T[]): T => list[Math.floor(next() * list.length)] as T;

  const value = (depth: number): unknown => {
    const roll = next();
    if (depth > 2 || roll < 0.5) return pick(TEXTS);
    if (roll < 0.65) return pick([0, 1, 7, -1, 2 ** 53, 1e300, 0.5]);
    if (roll < 0.75) return pick([null, true, false]);
    return roll < 0.85 ? [value(depth + 1), value(depth + 1)] : members(depth + 1);
  };
  const members = (depth: number): Record<string, unknown> =>
    Object.fromEntries(Array.from({ length: 1 + Math.floor(next() * 9) }, () => [pick(NAMES), value(depth)]));

  const field = (depth: number): Field => {
    const roll = next();
    if (depth > 2 || roll < 0.6) return text(pick(TEXTS));
    if (roll < 0.7) return int(pick([0, 1, 2, -5, 2 ** 31 - 1]));
    if (roll < 0.75) return long(2n ** 62n);
    if (roll < 0.8) return { tag: 'x', bytes: Buffer.from([0xff, 0, 1]) };
    if (roll < 0.85) return { tag: 'V' };
    return roll < 0.92 ? array(field(depth + 1), field(depth + 1)) : fields(table(depth + 1));
  };
  const table = (depth: number): Record<string, Field> =>
    Object.fromEntries(Array.from({ length: Math.floor(next() * 6) }, () => [pick(NAMES), field(depth)]));

  const seen = new Set<string>();
  for (let count = 0; count < MESSAGES; count += 1) {
    const body = JSON.stringify(next() < 0.9 ? members(0) : value(0));
    const parts: Parts = {
      queue: pick(QUEUES),
      routingKey: pick(TEXTS).slice(0, 200),
      body: next() < 0.9 ? body : body.slice(0, -1),
      headers: table(0),
      properties: {
        contentType: pick(TYPES),
        ...(next() < 0.3 ? { type: pick(TEXTS).slice(0, 200) } : {}),
        ...(next() < 0.2 ? { replyTo: pick(TEXTS).slice(0, 200) } : {}),
      },
    };
    const role = pick(['main', 'wait', 'dead'] as const);
    const rules = next() < 0.5 ? [] : [{ match: { queue: '*' }, kind: 'k' }];
    const mapped = map(parts, { rules, facts: { role, ttlMs: pick([null, 5_000]) }, careful: next() < 0.5 });
    seen.add(`${mapped.note?.split(' ')[0]}`);
    if (mapped.outcome === 'excluded') {
      expect(mapped.job).toBeNull();
      expect(mapped.note).not.toBe('');
      continue;
    }
    const { job } = mapped;
    expect((job.payloadText === null) !== (job.body === null)).toBe(true);
    expect(job.kind.length).toBeGreaterThan(0);
    expect(isStorable(job.kind)).toBe(true);
    expect(isStorableJson(JSON.stringify([job.headers, job.error, job.contentType]))).toBe(true);
    expect(Number.isInteger(job.attempts) && job.attempts >= 0 && job.attempts <= 1_000).toBe(true);
    expect(job.runAtMs === null || Number.isInteger(job.runAtMs)).toBe(true);
    if (job.maxAttempts !== null)
      expect(job.maxAttempts).toBeGreaterThanOrEqual(Math.min(job.attempts + 1, 1_000));
    expect(job.state === 'ready' || job.error !== null).toBe(true);
  }
  // It is no test of dialects if hardly any is met.
  expect(seen.size).toBeGreaterThan(15);
});
