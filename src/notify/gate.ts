/**
 * What all workers share about deliveries, in the database: the suppression list, each provider's rate limit, circuit
 * breaker and pause, and how much one recipient got. Its statements stay here, beside the only code that runs them. It
 * decides who may be called now; what a failure means is fate.ts's.
 */
import { createHash } from 'node:crypto';
import type { Queryable } from '../jobs/job.js';
import { quoteSchema } from '../jobs/schema-name.js';
import { type Channel, mailboxOf } from './message.js';

export interface GateLimits {
  /** Calls a second of one provider, by all workers together. */
  readonly maxPerSecond?: number;
  /** Calls at once after a quiet time. Default: those of a second, at least 1. */
  readonly maxBurst?: number;
  /** Deliveries begun to one recipient within a window. */
  readonly maxPerRecipient?: { readonly count: number; readonly windowMs: number };
  /** After so many failures in a row a provider is left alone. Default 5, for 30 s. */
  readonly breaker?: { readonly failures: number; readonly openMs: number };
}

export type Admission =
  | { readonly type: 'go' }
  /** Not now: ask again after that. `wait`: its rate; `closed`: it fails or refuses us, another may be asked. */
  | { readonly type: 'wait' | 'closed'; readonly afterMs: number };

/** How a call went, for the breaker and the pause. */
export type CallEnd = 'fine' | 'failed' | 'login-refused';

export interface Gate {
  suppressed(channel: Channel, recipient: string): Promise<boolean>;
  admit(provider: string, limits: GateLimits): Promise<Admission>;
  /** ms until the recipient may get one more; null: now, and it is counted. */
  countRecipient(channel: Channel, recipient: string, limits: GateLimits): Promise<number | null>;
  ended(provider: string, end: CallEnd, limits: GateLimits): Promise<void>;
}

/** One way to write a recipient, however a client did: as the suppression list has it. */
export function recipientKey(channel: Channel, recipient: string): string {
  return (channel === 'email' ? (mailboxOf(recipient) ?? recipient) : recipient).toLowerCase();
}

/** Without a database nothing is shared, and nothing is held back. */
export const OPEN_GATE: Gate = {
  suppressed: () => Promise.resolve(false),
  admit: () => Promise.resolve({ type: 'go' }),
  countRecipient: () => Promise.resolve(null),
  ended: () => Promise.resolve(),
};

const BREAKER = { failures: 5, openMs: 30_000 };
const PAUSE_MS = 60_000;
const MIN_WAIT_MS = 10;

export function createGate(db: Queryable, schema: string): Gate {
  const s = quoteSchema(schema);
  const sql = {
    suppressed: `
select 1 as found from ${s}.suppressions where channel = $1 and recipient = $2`,

    /** How a provider is; no row while it was never limited and never failed. */
    state: `
select failures,
       1000 * extract(epoch from greatest(open_until, paused_until) - clock_timestamp())::float8 as "closedMs"
from ${s}.providers where name = $1`,

    /** Takes one token of $2 a second, at most $3 kept; no row back: there is none. One row a provider: they queue here. */
    take: `
insert into ${s}.providers as p (name, tokens, refilled_at)
values ($1, $3::float8 - 1, clock_timestamp())
on conflict (name) do update
set tokens = least($3::float8, p.tokens + $2::float8 * extract(epoch from clock_timestamp() - p.refilled_at)::float8) - 1,
    refilled_at = clock_timestamp()
where p.tokens + $2::float8 * extract(epoch from clock_timestamp() - p.refilled_at)::float8 >= 1
returning tokens`,

    /** ms until there is a token. */
    wait: `
select 1000 * (1 - tokens - $2::float8 * extract(epoch from clock_timestamp() - refilled_at)::float8) / $2 as "waitMs"
from ${s}.providers where name = $1`,

    fine: `
update ${s}.providers set failures = 0, open_until = null, paused_until = null
where name = $1 and (failures > 0 or open_until is not null or paused_until is not null)`,

    failed: `
insert into ${s}.providers as p (name, failures, open_until)
values ($1, 1, case when $2 <= 1 then clock_timestamp() + $3 * interval '1 millisecond' end)
on conflict (name) do update
set failures = p.failures + 1,
    open_until = case when p.failures + 1 >= $2 then clock_timestamp() + $3 * interval '1 millisecond'
                 else p.open_until end`,

    paused: `
insert into ${s}.providers as p (name, paused_until)
values ($1, clock_timestamp() + $2 * interval '1 millisecond')
on conflict (name) do update set paused_until = excluded.paused_until`,

    /** One more in the window that now lies in; no row back: $3 were begun. Windows begin at multiples of $4 ms since 1970. */
    count: `
insert into ${s}.recipient_counts as c (channel, recipient, ends_at, count)
values ($1, $2, to_timestamp((floor(extract(epoch from clock_timestamp()) * 1000 / $4::float8) + 1) * $4::float8 / 1000), 1)
on conflict (channel, recipient, ends_at) do update set count = c.count + 1 where c.count < $3
returning count`,

    windowEnd: `
select 1000 * extract(epoch from
  to_timestamp((floor(extract(epoch from clock_timestamp()) * 1000 / $1::float8) + 1) * $1::float8 / 1000)
  - clock_timestamp())::float8 as "waitMs"`,

    /** Windows that have ended, a bounded number at a time. */
    prune: `
delete from ${s}.recipient_counts where ctid = any (array(
  select ctid from ${s}.recipient_counts where ends_at < clock_timestamp() limit 500))`,
  } as const;

  const first = async <T>(text: string, values: unknown[]): Promise<T | undefined> =>
    (await db.query(text, values)).rows[0] as T | undefined;
  let counted = 0;

  return {
    async suppressed(channel, recipient) {
      return (await first(sql.suppressed, [channel, recipientKey(channel, recipient)])) !== undefined;
    },

    async admit(provider, { maxPerSecond, maxBurst }) {
      const state = await first<{ closedMs: number | null }>(sql.state, [provider]);
      const closedMs = state?.closedMs ?? 0;
      if (closedMs > 0) return { type: 'closed', afterMs: Math.max(MIN_WAIT_MS, closedMs) };
      if (maxPerSecond === undefined) return { type: 'go' };
      const burst = maxBurst ?? Math.max(1, maxPerSecond);
      const taken = await first(sql.take, [provider, maxPerSecond, burst]);
      if (taken !== undefined) return { type: 'go' };
      const { waitMs = 0 } = (await first<{ waitMs: number }>(sql.wait, [provider, maxPerSecond])) ?? {};
      return { type: 'wait', afterMs: Math.max(MIN_WAIT_MS, Math.ceil(waitMs)) };
    },

    async countRecipient(channel, recipient, { maxPerRecipient }) {
      if (maxPerRecipient === undefined) return null;
      counted += 1;
      if (counted % 100 === 1) await db.query(sql.prune);
      const { count, windowMs } = maxPerRecipient;
      const hash = createHash('sha256').update(recipientKey(channel, recipient)).digest();
      if ((await first(sql.count, [channel, hash, count, windowMs])) !== undefined) return null;
      const end = await first<{ waitMs: number }>(sql.windowEnd, [windowMs]);
      return Math.max(MIN_WAIT_MS, Math.ceil(end?.waitMs ?? windowMs));
    },

    async ended(provider, end, { breaker = BREAKER }) {
      if (end === 'fine') await db.query(sql.fine, [provider]);
      else if (end === 'failed') await db.query(sql.failed, [provider, breaker.failures, breaker.openMs]);
      else await db.query(sql.paused, [provider, PAUSE_MS]);
    },
  };
}
