/** The schedules: one table in the service's own schema. The messages that wait are in the broker. */
import type pg from 'pg';
import type { Target } from '../common/bus.js';

export type Status = 'scheduled' | 'fired' | 'cancelled' | 'failed';

export interface Schedule {
  readonly id: string;
  readonly name: string;
  readonly runAt: Date;
  readonly target: Target | null;
  readonly payload: unknown;
}

export interface ScheduleView extends Schedule {
  readonly status: Status;
  readonly attempts: number;
  readonly error: string | null;
  readonly createdAt: Date;
  readonly firedAt: Date | null;
}

const SCHEMA = `
create schema if not exists scheduling;
create table if not exists scheduling.schedules (
  id text primary key,
  name text not null,
  status text not null default 'scheduled',
  run_at timestamptz not null,
  target jsonb,
  payload jsonb,
  attempts integer not null default 0,
  error text,
  created_at timestamptz not null default now(),
  fired_at timestamptz
);
create index if not exists schedules_created_at on scheduling.schedules (created_at desc);
`;

const VIEW = `id, name, status, run_at as "runAt", target, payload, attempts, error,
  created_at as "createdAt", fired_at as "firedAt"`;

const json = (value: unknown) => (value === null || value === undefined ? null : JSON.stringify(value));

export class ScheduleStore {
  constructor(private readonly pool: pg.Pool) {}

  async migrate(): Promise<void> {
    await this.pool.query(SCHEMA);
  }

  /** A second insert of the same id changes nothing: a redelivered request. */
  async insert(schedule: Schedule): Promise<void> {
    await this.pool.query(
      `insert into scheduling.schedules (id, name, run_at, target, payload)
       values ($1, $2, $3, $4, $5)
       on conflict (id) do nothing`,
      [schedule.id, schedule.name, schedule.runAt, json(schedule.target), json(schedule.payload)],
    );
  }

  async fired(id: string, attempts: number): Promise<void> {
    await this.pool.query(
      `update scheduling.schedules set status = 'fired', fired_at = now(), attempts = $2, error = null where id = $1`,
      [id, attempts],
    );
  }

  /** `final`: no further attempt follows. */
  async failed(id: string, attempts: number, error: string, final: boolean): Promise<void> {
    await this.pool.query(
      `update scheduling.schedules
       set attempts = $2, error = $3, status = case when $4 then 'failed' else status end
       where id = $1`,
      [id, attempts, error, final],
    );
  }

  /** True when it was still to come. The flag is read when the message falls due. */
  async cancel(id: string): Promise<boolean> {
    const { rowCount } = await this.pool.query(
      `update scheduling.schedules set status = 'cancelled' where id = $1 and status = 'scheduled'`,
      [id],
    );
    return rowCount === 1;
  }

  async find(id: string): Promise<ScheduleView | undefined> {
    const { rows } = await this.pool.query<ScheduleView>(
      `select ${VIEW} from scheduling.schedules where id = $1`,
      [id],
    );
    return rows[0];
  }

  async list(status: string | null, name: string | null, limit: number): Promise<ScheduleView[]> {
    const { rows } = await this.pool.query<ScheduleView>(
      `select ${VIEW} from scheduling.schedules
       where ($1::text is null or status = $1) and ($2::text is null or name = $2)
       order by created_at desc, id
       limit $3`,
      [status, name, limit],
    );
    return rows;
  }
}
