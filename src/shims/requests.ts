/**
 * The requests table: the first answer to each Idempotency-Key, kept for a day. Its statements stay here, beside the
 * only code that runs them.
 */
import type { Queryable } from '../jobs/job.js';
import { quoteSchema } from '../jobs/schema-name.js';
import type { ShimResponse } from './contract.js';

/** A client's name for one request, and what it asked. */
export interface RequestKey {
  readonly principal: string;
  readonly key: string;
  /** SHA-256 of method, path and body. */
  readonly bodyHash: Buffer;
}

export type Claimed =
  /** The key is ours: do the work, then `answer`, in this transaction. */
  | { readonly type: 'new' }
  | { readonly type: 'repeat'; readonly response: ShimResponse }
  /** The same key with another request. */
  | { readonly type: 'conflict' };

export type Requests = ReturnType<typeof createRequests>;

/** Longer than any client was seen to go on retrying (an hour), with a day's margin. */
const KEPT = '24 hours';

export function createRequests(schema: string) {
  const requests = `${quoteSchema(schema)}.requests`;
  const sql = {
    /** Takes the key, or waits for whoever is taking it and then finds it taken. An expired one is as good as none. */
    claim: `
insert into ${requests} as r (principal, key, body_hash, expires_at)
values ($1, $2, $3, now() + interval '${KEPT}')
on conflict (principal, key) do update
set body_hash = excluded.body_hash, status = null, headers = null, answer = null, expires_at = excluded.expires_at
where r.expires_at < now()
returning key`,

    /** The first answer. A statement of its own: it needs a snapshot later than the claim's. */
    find: `
select body_hash as "bodyHash", status, headers, answer
from ${requests} where principal = $1 and key = $2`,

    answer: `
update ${requests} set status = $3, headers = $4::jsonb, answer = $5
where principal = $1 and key = $2`,

    /** Removes up to $1 expired answers. */
    prune: `
with old as materialized (
  select principal, key from ${requests}
  where expires_at < now()
  order by expires_at
  for update skip locked
  limit $1
)
delete from ${requests} r using old where r.principal = old.principal and r.key = old.key`,
  } as const;

  return {
    async claim(db: Queryable, { principal, key, bodyHash }: RequestKey): Promise<Claimed> {
      const taken = await db.query(sql.claim, [principal, key, bodyHash]);
      if (taken.rows.length === 1) return { type: 'new' };
      const found = await db.query(sql.find, [principal, key]);
      const row = found.rows[0] as
        | { bodyHash: Buffer; status: number | null; headers: Record<string, string>; answer: string | null }
        | undefined;
      if (row === undefined || row.status === null) throw new Error('an answered request has no answer');
      if (!row.bodyHash.equals(bodyHash)) return { type: 'conflict' };
      return { type: 'repeat', response: { status: row.status, headers: row.headers, body: row.answer } };
    },

    async answer(db: Queryable, { principal, key }: RequestKey, response: ShimResponse): Promise<void> {
      const { status, headers = {}, body } = response;
      await db.query(sql.answer, [principal, key, status, JSON.stringify(headers), body]);
    },

    async prune(db: Queryable, limit: number): Promise<number> {
      return (await db.query(sql.prune, [limit])).rowCount ?? 0;
    },
  };
}
