/** How callers and people speak to the retry service. */
import { call, queryString } from './http.js';
import type { ScheduleTarget } from './scheduling-client.js';

export type RetryPolicy =
  | { readonly type: 'fixed'; readonly delayMs: number; readonly maxAttempts: number }
  | {
      readonly type: 'exponential';
      readonly baseMs: number;
      readonly factor?: number;
      readonly maxMs?: number;
      readonly maxAttempts: number;
    }
  | { readonly type: 'ladder'; readonly delaysMs: readonly number[]; readonly maxAttempts?: number };

export interface RetryRequest {
  readonly payload: unknown;
  readonly target: ScheduleTarget;
  readonly error?: string;
  /** Attempts made so far; 1 by default. */
  readonly attempt?: number;
  readonly policy?: RetryPolicy;
}

export interface Retry {
  readonly id: string;
  readonly status: 'waiting' | 'succeeded' | 'dead';
  readonly target: ScheduleTarget;
  readonly payload: unknown;
  readonly attempt: number;
  readonly policy: RetryPolicy | null;
  readonly error: string | null;
  readonly nextAttemptAt: string | null;
  readonly attempts: readonly {
    readonly attempt: number;
    readonly at: string;
    readonly error: string | null;
  }[];
  readonly createdAt: string;
}

export interface DeadLetter {
  readonly id: string;
  readonly messageId: string | null;
  readonly queue: string;
  readonly routingKey: string;
  readonly error: string | null;
  readonly attempts: number;
  readonly firstFailureAt: string | null;
  readonly lastFailureAt: string | null;
  readonly payload: unknown;
}

export class RetryClient {
  constructor(private readonly baseUrl: string) {}

  submit(request: RetryRequest): Promise<{ id: string; status: 'waiting' }> {
    return call(this.baseUrl, 'POST', '/retries', request);
  }

  get(id: string): Promise<Retry> {
    return call(this.baseUrl, 'GET', `/retries/${encodeURIComponent(id)}`);
  }

  deadLetters(limit?: number): Promise<{ items: DeadLetter[]; total: number }> {
    return call(this.baseUrl, 'GET', `/dead-letters${queryString({ limit })}`);
  }

  replay(id: string): Promise<{ id: string; status: 'replayed' }> {
    return call(this.baseUrl, 'POST', `/dead-letters/${encodeURIComponent(id)}/replay`);
  }

  async discard(id: string): Promise<void> {
    await call(this.baseUrl, 'POST', `/dead-letters/${encodeURIComponent(id)}/discard`);
  }
}
