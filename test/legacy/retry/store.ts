/** The retries asked for by POST or by message. Dead letters of the work queues are not here: they live in the broker. */
import type pg from 'pg';
import type { Target } from '../common/bus.js';
import type { Policy } from './ladder.js';

/** What travels through `retry.scheduled`. `attempt`: attempts made so far. */
export interface RetryRequest {
  readonly id: string;
  readonly payload: unknown;
  readonly target: Target;
  readonly error: string | null;
  readonly attempt: number;
  readonly policy: Policy | null;
}

export interface RetryView extends RetryRequest {
  readonly status: 'waiting' | 'succeeded' | 'dead';
  readonly nextAttemptAt: Date | null;
  readonly attempts: readonly {
    readonly attempt: number;
    readonly at: string;
    readonly error: string | null;
  }[];
  readonly createdAt: Date;
}

const SCHEMA = `
create schema if not exists retry;
create table if not exists retry.retries (
  id text primary key,
  status text not null default 'waiting',
  target jsonb not null,
  payload jsonb,
  attempt integer not null,
  policy jsonb,
  error text,
  next_attempt_at timestamptz,
  attempts jsonb not null default '[]',
  created_at timestamptz not null default now()
);
`;

const json = (value: unknown) => (value === null || value === undefined ? null : JSON.stringify(value));

export class RetryStore {
  constructor(private readonly pool: pg.Pool) {}

  async migrate(): Promise<void> {
    await this.pool.query(SCHEMA);
  }

  async insert(request: RetryRequest): Promise<void> {
    await this.pool.query(
      `insert into retry.retries (id, target, payload, attempt, policy, error)
       values ($1, $2, $3, $4, $5, $6)
       on conflict (id) do nothing`,
      [
        request.id,
        json(request.target),
        json(request.payload),
        request.attempt,
        json(request.policy),
        request.error,
      ],
    );
  }

  async waiting(id: string, until: Date): Promise<void> {
    await this.pool.query(`update retry.retries set status = 'waiting', next_attempt_at = $2 where id = $1`, [
      id,
      until,
    ]);
  }

  /** One attempt was made; `error` is null when it worked. */
  async attempted(id: string, attempt: number, error: string | null): Promise<void> {
    const entry = [{ attempt, at: new Date().toISOString(), error }];
    await this.pool.query(
      `update retry.retries
       set attempt = $2, error = $3, next_attempt_at = null, attempts = attempts || $4::jsonb,
           status = case when $3::text is null then 'succeeded' else status end
       where id = $1`,
      [id, attempt, error, JSON.stringify(entry)],
    );
  }

  async dead(id: string): Promise<void> {
    await this.pool.query(`update retry.retries set status = 'dead', next_attempt_at = null where id = $1`, [
      id,
    ]);
  }

  async find(id: string): Promise<RetryView | undefined> {
    const { rows } = await this.pool.query<RetryView>(
      `select id, status, target, payload, attempt, policy, error, next_attempt_at as "nextAttemptAt", attempts,
              created_at as "createdAt"
       from retry.retries where id = $1`,
      [id],
    );
    return rows[0];
  }
}
