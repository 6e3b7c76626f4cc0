/** What has become of each notification: one table in the service's own schema. */
import type pg from 'pg';

export type Status = 'accepted' | 'sending' | 'sent' | 'retrying' | 'failed';
export const STATUSES: readonly string[] = ['accepted', 'sending', 'sent', 'retrying', 'failed'];

/** What is to be sent, as callers say it and as it travels. */
export interface NotificationRequest {
  readonly to: string;
  readonly template: string;
  readonly channel: string;
  readonly locale: string;
  readonly data: Record<string, unknown>;
  readonly reference: string | null;
}

export interface NotificationView {
  readonly id: string;
  readonly status: Status;
  readonly to: string;
  readonly channel: string;
  readonly template: string;
  readonly locale: string;
  readonly reference: string | null;
  readonly attempts: number;
  readonly error: string | null;
  readonly createdAt: Date;
  readonly updatedAt: Date;
  readonly sentAt: Date | null;
}

export interface ListFilter {
  readonly status: string | null;
  readonly reference: string | null;
  readonly before: Date | null;
  readonly limit: number;
}

const SCHEMA = `
create schema if not exists notification;
create table if not exists notification.notifications (
  id text primary key,
  status text not null default 'accepted',
  recipient text not null,
  channel text not null,
  template text not null,
  locale text not null,
  reference text,
  data jsonb not null,
  attempts integer not null default 0,
  error text,
  provider_id text,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  sent_at timestamptz
);
create index if not exists notifications_created_at on notification.notifications (created_at desc);
create index if not exists notifications_reference on notification.notifications (reference);
`;

const VIEW = `id, status, recipient as "to", channel, template, locale, reference, attempts, error,
  created_at as "createdAt", updated_at as "updatedAt", sent_at as "sentAt"`;

export class NotificationStore {
  constructor(private readonly pool: pg.Pool) {}

  async migrate(): Promise<void> {
    await this.pool.query(SCHEMA);
  }

  /** A second insert of the same id changes nothing. */
  async insert(id: string, request: NotificationRequest): Promise<void> {
    await this.pool.query(
      `insert into notification.notifications (id, recipient, channel, template, locale, reference, data)
       values ($1, $2, $3, $4, $5, $6, $7)
       on conflict (id) do nothing`,
      [
        id,
        request.to,
        request.channel,
        request.template,
        request.locale,
        request.reference,
        JSON.stringify(request.data),
      ],
    );
  }

  /** Marks it `sending`; false when it was sent before. */
  async begin(id: string, attempt: number): Promise<boolean> {
    const { rowCount } = await this.pool.query(
      `update notification.notifications
       set status = 'sending', attempts = $2, updated_at = now()
       where id = $1 and status <> 'sent'`,
      [id, attempt],
    );
    return rowCount === 1;
  }

  async sent(id: string, providerId: string): Promise<void> {
    await this.pool.query(
      `update notification.notifications
       set status = 'sent', provider_id = $2, error = null, sent_at = now(), updated_at = now()
       where id = $1`,
      [id, providerId],
    );
  }

  async failed(id: string, status: 'retrying' | 'failed', error: string): Promise<void> {
    await this.pool.query(
      `update notification.notifications set status = $2, error = $3, updated_at = now() where id = $1`,
      [id, status, error],
    );
  }

  async find(id: string): Promise<NotificationView | undefined> {
    const { rows } = await this.pool.query<NotificationView>(
      `select ${VIEW} from notification.notifications where id = $1`,
      [id],
    );
    return rows[0];
  }

  async list(filter: ListFilter): Promise<NotificationView[]> {
    const { rows } = await this.pool.query<NotificationView>(
      `select ${VIEW} from notification.notifications
       where ($1::text is null or status = $1)
         and ($2::text is null or reference = $2)
         and ($3::timestamptz is null or created_at < $3)
       order by created_at desc, id
       limit $4`,
      [filter.status, filter.reference, filter.before, filter.limit],
    );
    return rows;
  }
}
