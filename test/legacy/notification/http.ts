/** The HTTP face of the notification service: accept, look up, edit templates. */
import { randomUUID } from 'node:crypto';
import type { FastifyInstance } from 'fastify';
import { type Bus, isObject } from '../common/bus.js';
import { createApp, HttpError, invalid, limitOf, notFound, orUnavailable } from '../common/web.js';
import { EXCHANGE } from './consumer.js';
import { BadRequest, readRequest } from './request.js';
import { type NotificationRequest, type NotificationStore, STATUSES } from './store.js';
import { isKey, isLocale, PARTS, type Parts, RenderError, type Templates } from './templates.js';

const MAX_BATCH = 100;
type Query = Record<string, string | undefined>;

export function createHttp(bus: Bus, store: NotificationStore, templates: Templates): FastifyInstance {
  const app = createApp();

  async function accept(request: NotificationRequest): Promise<string> {
    const id = randomUUID();
    await store.insert(id, request);
    await orUnavailable(
      bus.publish(EXCHANGE, `notification.${request.template}.${request.channel}`, request, {
        messageId: id,
        type: request.template,
        appId: 'notification',
      }),
    );
    return id;
  }

  app.post('/notifications', async (request, reply) => {
    const id = await accept(readBody(request.body));
    return reply.code(202).header('location', `/notifications/${id}`).send({ id, status: 'accepted' });
  });

  app.post('/notifications/batch', async (request, reply) => {
    const list = isObject(request.body) ? request.body['notifications'] : undefined;
    if (!Array.isArray(list) || list.length === 0 || list.length > MAX_BATCH) {
      throw invalid(`notifications is not a list of 1 to ${MAX_BATCH}`);
    }
    const results: object[] = [];
    for (const [index, item] of list.entries()) {
      try {
        results.push({ index, id: await accept(readBody(item)), status: 'accepted' });
      } catch (error) {
        if (!(error instanceof HttpError)) throw error;
        results.push({ index, status: 'rejected', error: error.message });
      }
    }
    return reply.code(202).send({ results });
  });

  app.get<{ Params: { id: string } }>('/notifications/:id', async (request) => {
    const found = await store.find(request.params.id);
    if (found === undefined) throw notFound('notification');
    return found;
  });

  app.get<{ Querystring: Query }>('/notifications', async ({ query }) => {
    const before = query['before'] === undefined ? null : new Date(query['before']);
    if (before !== null && Number.isNaN(before.getTime())) throw invalid('before is not a time');
    const status = query['status'] ?? null;
    if (status !== null && !STATUSES.includes(status))
      throw invalid(`status is none of ${STATUSES.join(', ')}`);
    const reference = query['reference'] ?? null;
    return { items: await store.list({ status, reference, before, limit: limitOf(query) }) };
  });

  templateRoutes(app, templates);
  return app;
}

function templateRoutes(app: FastifyInstance, templates: Templates): void {
  type Keyed = { Params: { key: string } };

  app.get<Keyed>('/templates/:key', async ({ params: { key } }) => {
    const variants = await templates.variants(key);
    if (variants.length === 0) throw notFound('template');
    return { key, variants };
  });

  app.put<Keyed>('/templates/:key', async ({ params: { key }, body }) => {
    if (!isKey(key)) throw invalid('key has other characters than a-z, 0-9 and -');
    if (!isObject(body)) throw invalid('body is not an object');
    const { locale, channel, parts } = body;
    if (!isLocale(locale)) throw invalid('locale is not a locale');
    if (typeof channel !== 'string' || PARTS[channel] === undefined) throw invalid('channel is unknown');
    if (!isParts(parts)) throw invalid('parts is not an object of strings');
    try {
      await templates.put(key, { locale, channel, parts });
    } catch (error) {
      if (error instanceof RenderError) throw invalid(error.message);
      throw error;
    }
    return { key, locale, channel, parts };
  });

  app.delete<Keyed>('/templates/:key', async ({ params: { key } }, reply) => {
    if ((await templates.variants(key)).length === 0) throw notFound('template');
    await templates.remove(key);
    return reply.code(204).send();
  });

  app.post<Keyed>('/templates/:key/preview', async ({ params: { key }, body }) => {
    const { locale = 'en', channel = 'email', data = {} } = isObject(body) ? body : {};
    if (!isLocale(locale) || typeof channel !== 'string' || !isObject(data)) {
      throw invalid('locale, channel or data is of the wrong type');
    }
    if ((await templates.variants(key)).length === 0) throw notFound('template');
    try {
      return { key, ...(await templates.render(key, locale, channel, data)) };
    } catch (error) {
      if (error instanceof RenderError) throw new HttpError(422, 'render-failed', error.message);
      throw error;
    }
  });
}

function readBody(body: unknown): NotificationRequest {
  if (!isObject(body)) throw invalid('body is not an object');
  try {
    return readRequest(body);
  } catch (error) {
    if (error instanceof BadRequest) throw invalid(error.message);
    throw error;
  }
}

function isParts(parts: unknown): parts is Parts {
  return isObject(parts) && Object.values(parts).every((part) => typeof part === 'string');
}
