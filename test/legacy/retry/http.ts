/** The HTTP face of the retry service. */
import { randomUUID } from 'node:crypto';
import type { FastifyInstance } from 'fastify';
import { type Bus, isObject, isTarget } from '../common/bus.js';
import { createApp, invalid, limitOf, notFound, orUnavailable } from '../common/web.js';
import { SCHEDULED } from './broker.js';
import { isPolicy } from './ladder.js';
import { discard, list, replay } from './parking.js';
import type { RetryRequest, RetryStore } from './store.js';

type Query = Record<string, string | undefined>;
type WithId = { Params: { id: string } };

export function createHttp(bus: Bus, store: RetryStore): FastifyInstance {
  const app = createApp();

  app.post('/retries', async ({ body }, reply) => {
    const request = read(body);
    await store.insert(request);
    await orUnavailable(
      bus.publish('', SCHEDULED, request, { messageId: request.id, type: 'retry', appId: 'retry' }),
    );
    return reply
      .code(202)
      .header('location', `/retries/${request.id}`)
      .send({ id: request.id, status: 'waiting' });
  });

  app.get<WithId>('/retries/:id', async ({ params: { id } }) => {
    const found = await store.find(id);
    if (found === undefined) throw notFound('retry');
    return found;
  });

  app.get<{ Querystring: Query }>('/dead-letters', async ({ query }) => list(bus, limitOf(query)));

  app.post<WithId>('/dead-letters/:id/replay', async ({ params: { id } }, reply) => {
    if (!(await replay(bus, id))) throw notFound('dead letter');
    return reply.code(202).send({ id, status: 'replayed' });
  });

  app.post<WithId>('/dead-letters/:id/discard', async ({ params: { id } }, reply) => {
    if (!(await discard(bus, id))) throw notFound('dead letter');
    return reply.code(204).send();
  });

  return app;
}

function read(body: unknown): RetryRequest {
  if (!isObject(body)) throw invalid('body is not an object');
  const { payload, target, error = null, attempt = 1, policy = null } = body;
  if (payload === undefined) throw invalid('payload is missing');
  if (!isTarget(target)) throw invalid('target is none of {queue}, {exchange, routingKey?}, {url}');
  if (error !== null && typeof error !== 'string') throw invalid('error is not a string');
  if (typeof attempt !== 'number' || !Number.isInteger(attempt) || attempt < 0) {
    throw invalid('attempt is not a whole number');
  }
  if (policy !== null && !isPolicy(policy)) throw invalid('policy is not fixed, exponential or ladder');
  return { id: randomUUID(), payload, target, error, attempt, policy };
}
