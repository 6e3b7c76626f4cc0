/**
 * Traces across the table, for callers who have OpenTelemetry: an enqueue puts the caller's context into the job's
 * headers, and each run of the job is a span of its own, linked to it. Linked, not nested: a job may run a day after its
 * trace has ended, and many times. `@opentelemetry/api` is the caller's and is passed in; nothing is imported here.
 */
import type { EnqueueClient } from './enqueue.js';
import { type Handler, type HandlerFunction, type HandlerJob, LeaseLost } from './jobs/handler.js';
import type { EnqueueOptions, Json } from './jobs/job.js';
import { Snooze } from './jobs/settle.js';
import { errorFields } from './thrown.js';

/** What is used of `@opentelemetry/api` 1.x: `import * as api from '@opentelemetry/api'` fits. */
export interface TracingApi {
  readonly ROOT_CONTEXT: unknown;
  readonly SpanKind: { readonly CONSUMER: number };
  readonly SpanStatusCode: { readonly ERROR: number };
  readonly context: {
    active(): unknown;
    with(context: unknown, run: () => Promise<unknown>): Promise<unknown>;
  };
  readonly propagation: {
    inject(context: unknown, carrier: unknown): void;
    extract(context: unknown, carrier: unknown): unknown;
  };
  readonly trace: {
    getTracer(name: string): TracingTracer;
    getSpanContext(context: unknown): unknown;
    setSpan(context: unknown, span: TracingSpan): unknown;
    deleteSpan(context: unknown): unknown;
  };
}

interface TracingTracer {
  startSpan(name: string, options: unknown, context: unknown): TracingSpan;
}

interface TracingSpan {
  setAttribute(name: string, value: string): unknown;
  setStatus(status: { readonly code: number; readonly message?: string }): unknown;
  end(): void;
}

export interface Tracing {
  /** The same handlers; each run of one is a span `process <kind>`. */
  handlers(handlers: Readonly<Record<string, Handler>>): Record<string, Handler>;
  /** The same client; jobs carry the active context in their headers. */
  client(client: EnqueueClient): EnqueueClient;
  /** These headers with the active context beside them. */
  headers(headers?: EnqueueOptions['headers']): NonNullable<EnqueueOptions['headers']>;
}

/** Throws TypeError for what is not that API, or a part of it. */
export function createTracing(api: TracingApi): Tracing {
  checkApi(api);
  const tracer = api.trace.getTracer('unbroker');
  const headers: Tracing['headers'] = (given = {}) => {
    const carrier: Record<string, string> = {};
    api.propagation.inject(api.context.active(), carrier);
    // A job that passes its context on by hand (a bridge, a replay) keeps what it has.
    return { ...carrier, ...given };
  };
  const traced = <Options extends EnqueueOptions>(options: Options): Options => {
    const all = headers(options.headers);
    return Object.keys(all).length === 0 ? options : { ...options, headers: all };
  };
  return {
    headers,
    client: (client) => {
      // A function that came in its place (`enqueue` itself) would fail the first enqueue of a caller instead.
      if (typeof client?.enqueue !== 'function' || typeof client.enqueueMany !== 'function')
        throw new TypeError('tracing.client takes a client: give createEnqueue()');
      const { enqueue, enqueueMany } = client;
      return {
        enqueue: (tx, kind, payload, options = {}) => enqueue(tx, kind, payload, traced(options)),
        enqueueMany: (tx, jobs) => enqueueMany(tx, jobs.map(traced)),
      };
    },
    handlers: (handlers) =>
      Object.fromEntries(
        Object.entries(handlers).map(([kind, handler]) => [
          kind,
          typeof handler === 'function'
            ? traceHandler(api, tracer, handler)
            : // Called on what it belongs to, as a worker does.
              {
                ...handler,
                handle: traceHandler(api, tracer, (job, context) => handler.handle(job, context)),
              },
        ]),
      ),
  };
}

/**
 * From JavaScript a part of it may come: the package's default export has neither SpanKind nor ROOT_CONTEXT, with which each job
 * would fail at its start, and spend its attempts.
 */
function checkApi(api: unknown): void {
  const parts = ['ROOT_CONTEXT', 'SpanKind', 'SpanStatusCode', 'context', 'propagation', 'trace'] as const;
  const given = (typeof api === 'object' && api !== null ? api : {}) as Partial<TracingApi>;
  const missing = parts.filter((part) => given[part] === undefined);
  if (missing.length > 0)
    throw new TypeError(
      `createTracing takes the whole of OpenTelemetry's API, and this has no ${missing.join(', ')}: import * as api from '@opentelemetry/api'`,
    );
}

function traceHandler(api: TracingApi, tracer: TracingTracer, handle: HandlerFunction): HandlerFunction {
  return async (job, context) => {
    const sent = api.propagation.extract(api.ROOT_CONTEXT, carrierOf(job.headers));
    const origin = api.trace.getSpanContext(sent);
    // Without the sender's span: its baggage comes along, its trace is linked.
    const base = api.trace.deleteSpan(sent);
    const links = origin === undefined ? [] : [{ context: origin }];
    const options = { kind: api.SpanKind.CONSUMER, root: true, links, attributes: attributesOf(job) };
    const span = tracer.startSpan(`process ${job.kind}`, options, base);
    try {
      return await api.context.with(api.trace.setSpan(base, span), async () => handle(job, context));
    } catch (error) {
      noteEnd(api, span, error);
      throw error;
    } finally {
      span.end();
    }
  };
}

/** Names of OpenTelemetry's conventions for messaging. */
function attributesOf(job: HandlerJob): Record<string, string | number> {
  return {
    'messaging.system': 'unbroker',
    'messaging.operation.name': 'process',
    'messaging.operation.type': 'process',
    'messaging.destination.name': job.kind,
    'messaging.message.id': job.id,
    'unbroker.attempt': job.attempt,
  };
}

/** The error's class, not its message: that may quote a payload. A snooze is no failure. */
function noteEnd(api: TracingApi, span: TracingSpan, error: unknown): void {
  if (isOf(error, Snooze)) {
    span.setAttribute('unbroker.end', 'snooze');
    return;
  }
  const { error: name } = errorFields(error);
  span.setAttribute('unbroker.end', isOf(error, LeaseLost) ? 'lost' : 'threw');
  span.setAttribute('error.type', name);
  span.setStatus({ code: api.SpanStatusCode.ERROR, message: name });
}

/** A revoked proxy, which may be thrown too, is of nothing. */
function isOf(error: unknown, ending: typeof Snooze | typeof LeaseLost): boolean {
  try {
    return error instanceof ending;
  } catch {
    return false;
  }
}

function carrierOf(headers: Json): Record<string, Json> {
  return typeof headers === 'object' && headers !== null && !Array.isArray(headers)
    ? (headers as Record<string, Json>)
    : {};
}
