/** How callers speak to the scheduling service. */
import { call, queryString } from './http.js';

export type ScheduleTarget =
  | { readonly queue: string }
  | { readonly exchange: string; readonly routingKey?: string }
  | { readonly url: string };

export interface ScheduleRequest {
  readonly name?: string;
  /** ISO 8601; or `delayMs`. */
  readonly runAt?: string;
  readonly delayMs?: number;
  readonly target?: ScheduleTarget;
  readonly payload?: unknown;
}

export interface Schedule {
  readonly id: string;
  readonly name: string;
  readonly status: 'scheduled' | 'fired' | 'cancelled' | 'failed';
  readonly runAt: string;
  readonly target: ScheduleTarget | null;
  readonly payload: unknown;
  readonly attempts: number;
  readonly error: string | null;
  readonly createdAt: string;
  readonly firedAt: string | null;
}

export class SchedulingClient {
  constructor(private readonly baseUrl: string) {}

  create(
    request: ScheduleRequest,
  ): Promise<{ id: string; name: string; status: 'scheduled'; runAt: string }> {
    return call(this.baseUrl, 'POST', '/schedules', request);
  }

  get(id: string): Promise<Schedule> {
    return call(this.baseUrl, 'GET', `/schedules/${encodeURIComponent(id)}`);
  }

  async list(filter: { status?: string; name?: string; limit?: number } = {}): Promise<Schedule[]> {
    return (await call<{ items: Schedule[] }>(this.baseUrl, 'GET', `/schedules${queryString(filter)}`)).items;
  }

  async cancel(id: string): Promise<void> {
    await call(this.baseUrl, 'DELETE', `/schedules/${encodeURIComponent(id)}`);
  }
}
