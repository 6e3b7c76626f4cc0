/** The application's HTTP face: a small router over node:http. */
import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { Fulfilment } from './fulfilment.js';
import { type NewOrder, OrderError, type OrderItem } from './model.js';
import type { Orders } from './orders.js';
import type { Refunds } from './refunds.js';
import type { Reminders } from './reminders.js';
import type { SupportDesk } from './support-desk.js';

const BODY_LIMIT = 1_048_576;

export interface Parts {
  readonly orders: Orders;
  readonly fulfilment: Fulfilment;
  readonly refunds: Refunds;
  readonly reminders: Reminders | undefined;
  readonly supportDesk: SupportDesk;
}

type Body = Record<string, unknown>;
type Handler = (id: number, body: Body) => Promise<{ status: number; body: unknown }>;
type Route = readonly [method: string, path: RegExp, handler: Handler];

export function createHttp({ orders, fulfilment, refunds, reminders, supportDesk }: Parts): Server {
  const routes: Route[] = [
    [
      'POST',
      /^\/orders$/,
      async (_, body) => ({ status: 201, body: { id: await orders.create(readOrder(body)) } }),
    ],
    ['GET', /^\/orders$/, async () => ({ status: 200, body: { items: await orders.list(200) } })],
    [
      'POST',
      /^\/orders\/ship$/,
      async (_, body) => ({ status: 200, body: { items: await fulfilment.ship(readIds(body)) } }),
    ],
    ['GET', /^\/orders\/(\d+)$/, async (id) => ({ status: 200, body: await orders.find(id) })],
    ['POST', /^\/orders\/(\d+)\/pay$/, async (id) => ({ status: 200, body: await orders.pay(id) })],
    [
      'POST',
      /^\/orders\/(\d+)\/cancel$/,
      async (id, body) => ({ status: 200, body: await orders.cancel(id, text(body['reason']) ?? '') }),
    ],
    ['POST', /^\/orders\/(\d+)\/refund$/, async (id) => ({ status: 200, body: await refunds.refund(id) })],
    [
      'POST',
      /^\/orders\/(\d+)\/remind$/,
      async (id) => {
        if (reminders === undefined) throw new OrderError(503, 'no scheduling service is configured');
        return { status: 202, body: { scheduleId: await reminders.remind(id) } };
      },
    ],
    [
      'POST',
      /^\/orders\/(\d+)\/review$/,
      async (id) => {
        await fulfilment.requestReview(await orders.find(id));
        return { status: 202, body: {} };
      },
    ],
    [
      'POST',
      /^\/orders\/(\d+)\/announce$/,
      async (id, body) => {
        await fulfilment.announceParcel(await orders.find(id), text(body['phone']));
        return { status: 202, body: {} };
      },
    ],
    [
      'POST',
      /^\/orders\/(\d+)\/resend$/,
      async (id) => {
        await supportDesk.resendReceipt(await orders.find(id));
        return { status: 202, body: {} };
      },
    ],
    [
      'POST',
      /^\/orders\/(\d+)\/note$/,
      async (id, body) => ({ status: 200, body: await supportDesk.leaveNote(id, text(body['note']) ?? '') }),
    ],
    ['GET', /^\/health$/, async () => ({ status: 200, body: { status: 'ok' } })],
  ];
  return createServer((request, response) => {
    handle(routes, request).then(({ status, body }) => {
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
    });
  });
}

async function handle(
  routes: readonly Route[],
  request: IncomingMessage,
): Promise<{ status: number; body: unknown }> {
  const path = (request.url ?? '/').split('?')[0] ?? '/';
  try {
    for (const [method, pattern, handler] of routes) {
      const match = method === request.method ? pattern.exec(path) : null;
      if (match !== null) return await handler(Number(match[1] ?? 0), await readJson(request));
    }
    throw new OrderError(404, 'no such route');
  } catch (error) {
    if (error instanceof OrderError) return { status: error.status, body: { error: error.message } };
    console.error(
      `orders: ${request.method} ${path}: ${error instanceof Error ? error.message : String(error)}`,
    );
    return { status: 500, body: { error: 'internal error' } };
  }
}

async function readJson(request: IncomingMessage): Promise<Body> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > BODY_LIMIT) throw new OrderError(413, 'body too large');
    chunks.push(chunk);
  }
  if (size === 0) return {};
  try {
    const body: unknown = JSON.parse(Buffer.concat(chunks).toString('utf8'));
    if (typeof body === 'object' && body !== null && !Array.isArray(body)) return body as Body;
  } catch {}
  throw new OrderError(400, 'body is not a JSON object');
}

function readOrder(body: Body): NewOrder {
  const email = text(body['email']);
  const items = body['items'];
  if (email === undefined || !email.includes('@')) throw new OrderError(400, 'email is missing');
  if (!Array.isArray(items) || items.length === 0 || items.length > 100)
    throw new OrderError(400, 'items is not a list of 1 to 100');
  return { email, locale: text(body['locale']) ?? 'en', items: items.map(readItem) };
}

function readItem(item: Body): OrderItem {
  const { sku, quantity = 1, priceCents = 0 } = item;
  if (typeof sku !== 'string' || !Number.isInteger(quantity) || !Number.isInteger(priceCents)) {
    throw new OrderError(400, 'an item needs sku, quantity and priceCents');
  }
  return { sku, quantity: quantity as number, priceCents: priceCents as number };
}

function readIds(body: Body): number[] {
  const ids = body['ids'];
  if (!Array.isArray(ids) || !ids.every(Number.isInteger))
    throw new OrderError(400, 'ids is not a list of numbers');
  return ids as number[];
}

const text = (value: unknown): string | undefined =>
  typeof value === 'string' && value !== '' ? value : undefined;
