/** Reads what a caller asks, over HTTP or in a message, into a schedule and its delay. Pure: the clock is a parameter. */
import { isTarget, type Target } from '../common/bus.js';
import type { Schedule } from './store.js';
import { delayUntil, MAX_DELAY_MS } from './timer.js';

export class BadRequest extends Error {}
/** Understood, but this service cannot do it. */
export class Unsupported extends Error {}

export interface Planned {
  readonly schedule: Schedule;
  readonly delayMs: number;
}

/** `POST /schedules`. */
export function fromHttp(body: Record<string, unknown>, id: string, now: number): Planned {
  if (body['cron'] !== undefined) throw new Unsupported('cron is not supported');
  if (body['runAt'] === undefined && body['delayMs'] === undefined)
    throw new BadRequest('runAt or delayMs is missing');
  const name = body['name'] ?? id;
  if (typeof name !== 'string' || name.length === 0 || name.length > 255)
    throw new BadRequest('name is not a string');
  return plan({ id, name, target: targetOf(body['target']), payload: body['payload'] ?? null }, body, now);
}

/** A message on `schedule`: `x-delay` wins; a body that says nothing of scheduling is itself the data. */
export function fromMessage(
  body: Record<string, unknown>,
  message: { readonly id: string; readonly routingKey: string; readonly xDelay: number | undefined },
  now: number,
): Planned {
  const bare = ['runAt', 'delayMs', 'target', 'data'].every((name) => body[name] === undefined);
  const when = message.xDelay === undefined ? body : { delayMs: message.xDelay };
  const name = !bare && typeof body['key'] === 'string' ? body['key'] : message.routingKey;
  const target = bare ? null : targetOf(body['target']);
  const payload = bare ? body : (body['data'] ?? null);
  return plan({ id: message.id, name, target, payload }, when, now);
}

function plan(schedule: Omit<Schedule, 'runAt'>, when: Record<string, unknown>, now: number): Planned {
  const { delayMs, runAt } = when;
  if (delayMs !== undefined) {
    if (typeof delayMs !== 'number' || !Number.isInteger(delayMs) || delayMs < 0) {
      throw new BadRequest('delayMs is not a whole number of milliseconds');
    }
    return checked({ ...schedule, runAt: new Date(now + Math.min(delayMs, MAX_DELAY_MS + 1)) }, delayMs);
  }
  if (runAt === undefined) return { schedule: { ...schedule, runAt: new Date(now) }, delayMs: 0 };
  const at = new Date(typeof runAt === 'string' ? runAt : Number.NaN);
  if (Number.isNaN(at.getTime())) throw new BadRequest('runAt is not an ISO 8601 time');
  return checked({ ...schedule, runAt: at }, delayUntil(at, now));
}

function checked(schedule: Schedule, delayMs: number): Planned {
  if (delayMs > MAX_DELAY_MS) throw new Unsupported('more than 49 days ahead is not supported');
  return { schedule, delayMs };
}

function targetOf(target: unknown): Target | null {
  if (target === undefined || target === null) return null;
  if (!isTarget(target)) throw new BadRequest('target is none of {exchange, routingKey?}, {queue}, {url}');
  if ('url' in target && !/^https?:\/\//.test(target.url))
    throw new BadRequest('target.url is not an http URL');
  return target;
}
