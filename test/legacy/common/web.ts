/**
 * The house's HTTP habits: JSON errors `{error, message}`, `{items}` lists with a limit, 404 for what is not there.
 */
import Fastify, { type FastifyInstance } from 'fastify';

const BODY_LIMIT = 1_048_576;
const DEFAULT_LIMIT = 50;
const MAX_LIMIT = 200;

export class HttpError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

export const invalid = (message: string) => new HttpError(400, 'invalid', message);
export const notFound = (what: string) => new HttpError(404, 'not-found', `no such ${what}`);

export function createApp(): FastifyInstance {
  const app = Fastify({ bodyLimit: BODY_LIMIT });
  app.setNotFoundHandler((_request, reply) =>
    reply.code(404).send({ error: 'not-found', message: 'no such route' }),
  );
  app.setErrorHandler((error: Error & { statusCode?: number }, request, reply) => {
    if (error instanceof HttpError) {
      return reply.code(error.status).send({ error: error.code, message: error.message });
    }
    if (error.statusCode !== undefined && error.statusCode < 500) {
      return reply.code(error.statusCode).send({ error: 'invalid', message: error.message });
    }
    console.error(`${request.method} ${request.routeOptions.url ?? ''}: ${error.message}`);
    return reply.code(500).send({ error: 'internal', message: 'internal error' });
  });
  return app;
}

/** Listens on loopback; answers the base URL. */
export async function listen(app: FastifyInstance, port: number): Promise<string> {
  return app.listen({ host: '127.0.0.1', port });
}

export function limitOf(query: Record<string, string | undefined>): number {
  const limit = Number(query['limit'] ?? DEFAULT_LIMIT);
  if (!Number.isInteger(limit) || limit < 1) throw invalid('limit is not a positive number');
  return Math.min(limit, MAX_LIMIT);
}

/** Runs `work`; a broker that does not take the message is 503. */
export async function orUnavailable(work: Promise<void>): Promise<void> {
  try {
    await work;
  } catch (error) {
    console.error(`publish failed: ${error instanceof Error ? error.message : String(error)}`);
    throw new HttpError(503, 'unavailable', 'the broker did not take the message');
  }
}
