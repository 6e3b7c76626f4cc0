/**
 * Answers for requests of NestJS clients (`client.send`): what a handler returns goes to the queue that the client waits
 * on, as Nest's own server would send it, by a job of kind relay.amqp. It is enqueued before the request is settled, under
 * the request's id, so a second run answers nothing new. Handlers of events come through unchanged.
 */
import { createEnqueue } from '../../src/enqueue.js';
import type { HandlerFunction } from '../../src/jobs/handler.js';
import type { Json, Queryable } from '../../src/jobs/job.js';
import { RELAY_AMQP } from './relay-kind.js';

export interface AnswerOptions {
  readonly db: Queryable;
  /** Default `unbroker`. */
  readonly schema?: string | undefined;
}

/**
 * The same handler, with an answer. What it throws is not told to the client before the last attempt, which then gets
 * `{err}`; a client that has given up meanwhile is answered into nothing.
 */
export function answerNest(handle: HandlerFunction, { db, schema }: AnswerOptions): HandlerFunction {
  const { enqueue } = createEnqueue(schema);
  return async (job, context) => {
    const caller = callerOf(job.headers);
    if (caller === null) return handle(job, context);
    const answer = async (body: object): Promise<void> => {
      const payload = {
        exchange: '',
        routingKey: caller.replyTo,
        body: { ...body, isDisposed: true },
        properties: { correlationId: caller.correlationId },
      };
      await enqueue(db, RELAY_AMQP, payload, {
        dedupeKey: `nest:${job.id}`,
        maxAttempts: 3,
        source: 'nest:answer',
      });
    };
    try {
      const result = await handle(job, context);
      await answer({ response: result ?? null });
      return result;
    } catch (error) {
      if (job.attempt >= job.maxAttempts && !context.signal.aborted)
        await answer({ err: { status: 'error', message: 'Internal server error' } });
      throw error;
    }
  };
}

function callerOf(headers: Json): { readonly replyTo: string; readonly correlationId: string } | null {
  const { amqp } = (headers ?? {}) as { amqp?: { replyTo?: unknown; correlationId?: unknown } };
  const { replyTo, correlationId } = amqp ?? {};
  return typeof replyTo === 'string' && typeof correlationId === 'string' ? { replyTo, correlationId } : null;
}
