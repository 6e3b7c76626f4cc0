/** The HTTP face of the scheduling service. */
import { randomUUID } from 'node:crypto';
import type { FastifyInstance } from 'fastify';
import { type Bus, isObject } from '../common/bus.js';
import { createApp, HttpError, invalid, limitOf, notFound, orUnavailable } from '../common/web.js';
import { BadRequest, fromHttp, type Planned, Unsupported } from './request.js';
import type { ScheduleStore } from './store.js';
import { wait } from './timer.js';

type Query = Record<string, string | undefined>;

export function createHttp(bus: Bus, store: ScheduleStore): FastifyInstance {
  const app = createApp();

  app.post('/schedules', async (request, reply) => {
    const { schedule, delayMs } = read(request.body);
    await store.insert(schedule);
    await orUnavailable(wait(bus, schedule, delayMs));
    const { id, name, runAt } = schedule;
    return reply
      .code(201)
      .header('location', `/schedules/${id}`)
      .send({ id, name, status: 'scheduled', runAt });
  });

  app.get<{ Params: { id: string } }>('/schedules/:id', async (request) => {
    const found = await store.find(request.params.id);
    if (found === undefined) throw notFound('schedule');
    return found;
  });

  app.get<{ Querystring: Query }>('/schedules', async ({ query }) => ({
    items: await store.list(query['status'] ?? null, query['name'] ?? null, limitOf(query)),
  }));

  app.delete<{ Params: { id: string } }>('/schedules/:id', async (request, reply) => {
    const { id } = request.params;
    if (await store.cancel(id)) return reply.code(204).send();
    const found = await store.find(id);
    if (found === undefined) throw notFound('schedule');
    if (found.status === 'cancelled') return reply.code(204).send();
    throw new HttpError(409, 'conflict', `the schedule is ${found.status}`);
  });

  return app;
}

function read(body: unknown): Planned {
  if (!isObject(body)) throw invalid('body is not an object');
  try {
    return fromHttp(body, randomUUID(), Date.now());
  } catch (error) {
    if (error instanceof BadRequest) throw invalid(error.message);
    if (error instanceof Unsupported) throw new HttpError(422, 'unsupported', error.message);
    throw error;
  }
}
