/** A trace across the table, with the real OpenTelemetry: enqueued under one trace, run as linked spans of its own. */
import * as api from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import { W3CTraceContextPropagator } from '@opentelemetry/core';
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base';
import { afterAll, afterEach, beforeEach, expect, test } from 'vitest';
import { createEnqueue } from '../../src/enqueue.js';
import { createTracing, Snooze } from '../../src/index.js';
import { jobsDatabase } from '../support/jobs.js';
import { startWorker, type TestWorker } from '../support/workers.js';

const exporter = new InMemorySpanExporter();
api.context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
api.propagation.setGlobalPropagator(new W3CTraceContextPropagator());
api.trace.setGlobalTracerProvider(
  new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }),
);

const db = await jobsDatabase();
const tracing = createTracing(api);
const client = tracing.client(createEnqueue(db.schema));
const tracer = api.trace.getTracer('test');
let worker: TestWorker | undefined;
afterAll(() => db.close());
beforeEach(async () => {
  exporter.reset();
  await db.clear();
});
afterEach(async () => {
  await worker?.close();
  worker = undefined;
});

const spans = (name: string) => exporter.getFinishedSpans().filter((span) => span.name === name);

test('each run is a span of its own trace, linked to the one that enqueued', async () => {
  const id = await tracer.startActiveSpan('place order', async (span) => {
    const { id } = await client.enqueue(db.pool, 'receipt', { to: 'x' }, { headers: { tenant: 'a' } });
    span.end();
    return id;
  });
  expect((await db.job(id)).headers).toEqual({
    tenant: 'a',
    traceparent: expect.stringMatching(/^00-[0-9a-f]{32}-[0-9a-f]{16}-01$/),
  });
  worker = startWorker({
    url: db.url,
    handlers: tracing.handlers({
      receipt: {
        retryPolicy: { type: 'fixed', delayMs: 1 },
        handle: async ({ attempt }) => {
          await Promise.resolve();
          tracer.startSpan('inside').end();
          if (attempt === 1) throw new RangeError('the card 4111 was refused');
          return null;
        },
      },
    }),
  });
  await worker.untilEnded(2);
  const [sender] = spans('place order');
  const [first, second] = spans('process receipt');
  const inside = spans('inside');
  expect(first?.spanContext().traceId).not.toBe(sender?.spanContext().traceId);
  expect(second?.spanContext().traceId).not.toBe(first?.spanContext().traceId);
  for (const [at, run] of [first, second].entries()) {
    expect(run?.kind).toBe(api.SpanKind.CONSUMER);
    expect(run?.links.map(({ context }) => [context.traceId, context.spanId])).toEqual([
      [sender?.spanContext().traceId, sender?.spanContext().spanId],
    ]);
    expect(run?.attributes).toMatchObject({ 'messaging.message.id': id, 'unbroker.attempt': at + 1 });
    // What a handler starts is under its run.
    expect(inside[at]?.spanContext().traceId).toBe(run?.spanContext().traceId);
  }
  expect(first?.status).toEqual({ code: api.SpanStatusCode.ERROR, message: 'RangeError' });
  expect(second?.status.code).toBe(api.SpanStatusCode.UNSET);
  expect(JSON.stringify([first?.attributes, first?.events, first?.status])).not.toContain('4111');
});

test('enqueueMany carries it too; without a context, or with headers that are none, there is no link', async () => {
  await tracer.startActiveSpan('batch', async (span) => {
    await client.enqueueMany(db.pool, [{ kind: 'many' }, { kind: 'many' }]);
    span.end();
  });
  const { id } = await client.enqueue(db.pool, 'alone');
  expect((await db.job(id)).headers).toBeNull();
  await db.pool.query(
    `insert into unbroker.jobs (kind, headers) values ('odd', '[1]'), ('odd', '{"traceparent": 7}'), ('odd', '{"traceparent": "x"}')`,
  );
  const nothing = () => null;
  worker = startWorker({
    url: db.url,
    handlers: tracing.handlers({ many: nothing, alone: nothing, odd: nothing }),
  });
  await worker.untilEnded(6);
  expect(spans('process many').map((span) => span.links.length)).toEqual([1, 1]);
  expect(spans('process alone').map((span) => span.links.length)).toEqual([0]);
  expect(spans('process odd').map((span) => span.links.length)).toEqual([0, 0, 0]);
});

test('a snooze is no failure', async () => {
  await client.enqueue(db.pool, 'later');
  worker = startWorker({
    url: db.url,
    handlers: tracing.handlers({
      later: () => {
        throw new Snooze(3_600_000);
      },
    }),
  });
  await worker.untilEnded(1);
  expect(spans('process later')[0]?.status.code).toBe(api.SpanStatusCode.UNSET);
  expect(worker.settled()[0]?.outcome.type).toBe('snooze');
});

test('a handler is called on what it belongs to, and what it throws goes on as it is', async () => {
  const { id } = await client.enqueue(db.pool, 'own', null, { maxAttempts: 1 });
  const revoked = Proxy.revocable({}, {});
  revoked.revoke();
  const own = {
    thrown: revoked.proxy,
    handle() {
      throw this.thrown;
    },
  };
  worker = startWorker({ url: db.url, handlers: tracing.handlers({ own }) });
  await worker.untilEnded(1);
  expect((await db.job(id)).errors).toMatchObject([{ message: 'what was thrown cannot be read' }]);
  expect(spans('process own')[0]?.status).toEqual({
    code: api.SpanStatusCode.ERROR,
    message: 'unreadable',
  });
});

test('a part of the API, and what is no client, are refused at once: a job would fail at each start', () => {
  const { ROOT_CONTEXT, SpanKind, ...part } = api;
  expect(() => createTracing(part as never)).toThrow(/no ROOT_CONTEXT, SpanKind: import \* as api/);
  for (const none of [undefined, null, api.trace])
    expect(() => createTracing(none as never)).toThrow(/whole of OpenTelemetry's API/);
  for (const none of [undefined, createEnqueue().enqueue, { enqueue: createEnqueue().enqueue }])
    expect(() => tracing.client(none as never)).toThrow('give createEnqueue()');
});
