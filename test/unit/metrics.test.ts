/** The text is what Prometheus reads, whatever the labels hold; histograms add up; labels stay few. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { createBridgeMetrics } from '../../src/cli/bridge-metrics.js';
import type { ClaimedJob } from '../../src/jobs/job.js';
import { createMetrics } from '../../src/jobs/worker-metrics.js';
import { Registry } from '../../src/metrics.js';
import { parseExposition, sampleOf } from '../support/exposition.js';

const job = (kind: string, runAtMs = Date.now()): ClaimedJob => ({
  id: '1',
  kind,
  payloadText: 'null',
  body: null,
  contentType: null,
  attempt: 1,
  maxAttempts: 20,
  leaseToken: '1',
  priority: 0,
  runAtMs,
  createdAtMs: runAtMs,
  headers: null,
  progress: null,
  dedupeKey: null,
  source: null,
  retryPolicy: null,
  orderingKey: null,
});

test('labels that would end early come back as they were', () => {
  const registry = new Registry();
  const nasty = 'a"b\\c\nd}e{f,g="h" ü';
  registry.counter('nasty_total', 'help with \\ and\nline').with({ kind: nasty, other: '' }).value = 3;
  const families = parseExposition(registry.text());
  expect(sampleOf(families, 'nasty_total', { kind: nasty, other: '' })).toBe(3);
  expect(families.get('nasty_total')?.help).toBe('help with \\\\ and\\nline');
});

test('a histogram is cumulative, a value on a bound belongs to it, the rest is in +Inf', () => {
  const registry = new Registry();
  const seconds = registry.histogram('h_seconds', 'h', [0.1, 1]).with({ kind: 'a' });
  for (const value of [0.05, 0.1, 0.5, 7]) seconds.observe(value);
  const families = parseExposition(registry.text());
  const bucket = (le: string) => sampleOf(families, 'h_seconds_bucket', { kind: 'a', le });
  expect([bucket('0.1'), bucket('1'), bucket('+Inf')]).toEqual([2, 3, 4]);
  expect(sampleOf(families, 'h_seconds_count')).toBe(4);
  expect(sampleOf(families, 'h_seconds_sum')).toBeCloseTo(7.65);
});

test('a name is taken once and must be one', () => {
  const registry = new Registry();
  registry.counter('a_total', 'a');
  expect(() => registry.counter('a_total', 'a')).toThrow(TypeError);
  expect(() => registry.counter('a-b', 'a')).toThrow(TypeError);
});

test('events become counts', async () => {
  const metrics = createMetrics();
  const [done, failed, lost, late] = [job('a', Date.now() - 2_000), job('a'), job('b'), job('b')];
  metrics.onEvent({ type: 'claimed', jobs: [done, failed, lost, late] });
  metrics.onEvent({
    ...{ type: 'settled', job: done, heldMs: 40 },
    outcome: { type: 'complete', resultText: null },
  });
  metrics.onEvent({
    ...{ type: 'settled', job: failed, heldMs: 7_000 },
    outcome: { type: 'retry', delayMs: 1, name: 'E', message: 'm' },
  });
  expect(sampleOf(parseExposition(await metrics.text()), 'unbroker_worker_jobs')).toBe(2);
  metrics.onEvent({ type: 'lost', job: lost });
  metrics.onEvent({ type: 'released', jobs: [late] });
  metrics.onEvent({ type: 'reaped', jobs: [{ id: '9', kind: 'c', state: 'dead' }] });
  metrics.onEvent({
    type: 'fired',
    schedules: [{ id: '8', name: 's', kind: 'd', ended: false, jobs: ['1', '2'] }],
  });
  metrics.onEvent({ type: 'database-error', error: new Error('away') });
  metrics.onEvent({ type: 'idle' });
  const families = parseExposition(await metrics.text());
  const value = (name: string, labels = {}) => sampleOf(families, name, labels);
  expect(value('unbroker_jobs_claimed_total', { kind: 'a' })).toBe(2);
  expect(value('unbroker_jobs_settled_total', { kind: 'a', outcome: 'complete' })).toBe(1);
  expect(value('unbroker_jobs_settled_total', { kind: 'a', outcome: 'retry' })).toBe(1);
  expect(value('unbroker_leases_lost_total', { kind: 'b' })).toBe(1);
  expect(value('unbroker_jobs_released_total', { kind: 'b' })).toBe(1);
  expect(value('unbroker_jobs_reaped_total', { kind: 'c', state: 'dead' })).toBe(1);
  expect(value('unbroker_jobs_fired_total', { kind: 'd' })).toBe(2);
  expect(value('unbroker_database_errors_total')).toBe(1);
  expect(value('unbroker_worker_jobs')).toBe(0);
  expect(value('unbroker_job_duration_seconds_count', { kind: 'a' })).toBe(2);
  expect(value('unbroker_job_duration_seconds_sum', { kind: 'a' })).toBeCloseTo(7.04);
  expect(value('unbroker_job_lag_seconds_bucket', { kind: 'a', le: '1' })).toBe(1);
  expect(value('unbroker_job_lag_seconds_bucket', { kind: 'a', le: '2.5' })).toBe(2);
  // Without a database nothing is said of the table.
  expect(families.has('unbroker_jobs_due')).toBe(false);
});

test('kinds past the limit share one label', async () => {
  const metrics = createMetrics({ maxKinds: 2 });
  for (let i = 0; i < 50; i += 1) metrics.onEvent({ type: 'claimed', jobs: [job(`kind-${i}`)] });
  const families = parseExposition(await metrics.text());
  expect(families.get('unbroker_jobs_claimed_total')?.samples).toEqual([
    { name: 'unbroker_jobs_claimed_total', labels: { kind: 'kind-0' }, value: 1 },
    { name: 'unbroker_jobs_claimed_total', labels: { kind: 'kind-1' }, value: 1 },
    { name: 'unbroker_jobs_claimed_total', labels: { kind: '(other)' }, value: 48 },
  ]);
});

test('every metric is documented, and no other', async () => {
  const metrics = createMetrics({ db: { query: () => Promise.reject(new Error('away')) } });
  const page = readFileSync(join(import.meta.dirname, '../../docs/lookup/metrics.md'), 'utf8');
  const documented = [...page.matchAll(/^\| `([^`]+)` \| (counter|gauge|histogram)/gm)]
    .map(([, name, type]) => `${name} ${type}`)
    // Those of unbroker serve; test/db/metrics.test.ts sees them.
    .filter((line) => !line.startsWith('unbroker_http_'));
  const texts = [await metrics.text(), await createBridgeMetrics().text()];
  const served = texts.flatMap((text) =>
    [...parseExposition(text)].map(([name, { type }]) => `${name} ${type}`),
  );
  expect(documented.sort()).toEqual(served.sort());
});

test.each([
  [{ pool: {} }, 'createMetrics.pool is not a known key'],
  [{ sampleMS: 5 }, 'did you mean sampleMs?'],
  [{ db: 'postgres://x' }, 'It must be a pool of pg'],
  [{ maxKinds: -1 }, 'a whole number from 1 to 10000'],
  [{ sampleMs: Number.NaN }, 'a whole number from 0'],
])('%j is refused, and it says what would do', (options, words) => {
  let refusal: unknown;
  try {
    createMetrics(options as never);
  } catch (error) {
    refusal = error;
  }
  expect(refusal).toMatchObject({ code: 'config-invalid' });
  const { message, hint } = refusal as { message: string; hint: string };
  expect(`${message}. ${hint}`).toContain(words);
});
