/**
 * The suppression list, for those who keep it: who is on it, put some on, take some off, each change with its line in
 * `operations`. Its statements stay here; that a delivery looks first is the gate's. It knows no command line.
 */
import { createHash } from 'node:crypto';
import { EXIT, UnbrokerError } from '../errors.js';
import type { Queryable } from '../jobs/job.js';
import { quoteSchema } from '../jobs/schema-name.js';
import { isStorable } from '../jobs/text.js';
import { epochMs, withDates } from '../jobs/times.js';
import { createOperations, type Touched } from '../operations.js';
import { inTransaction, type TransactionPool } from '../transaction.js';
import { recipientKey } from './gate.js';
import { type Channel, hasControls, mailboxOf } from './message.js';

export interface Suppression {
  readonly channel: Channel;
  /** In the one spelling that deliveries look for. */
  readonly recipient: string;
  readonly reason: string | null;
  readonly createdAt: Date;
}

export interface SuppressionChange {
  readonly act: 'suppress' | 'unsuppress';
  readonly channel: Channel;
  /** 1 to SUPPRESSION_LIMITS.recipients. */
  readonly recipients: readonly string[];
  readonly reason: string | null;
}

export const SUPPRESSION_LIMITS = {
  /** Recipients of one change. */
  recipients: 10_000,
  recipientLength: 2_000,
  reasonLength: 500,
  page: 1_000,
} as const;

/** Hashes of one change that the audit names; of more only the first. */
const MAX_NAMED = 500;

export type Suppressions = ReturnType<typeof createSuppressions>;

export function createSuppressions(schema: string) {
  const s = quoteSchema(schema);
  const operations = createOperations(schema);
  const sql = {
    list: `
select channel, recipient, reason, ${epochMs('created_at')} as "createdAt" from ${s}.suppressions
where ($1::text is null or channel = $1) and ($2::text is null or (channel, recipient) > ($2, $3))
order by channel, recipient
limit $4`,

    /** One that is there keeps its reason and its time. */
    add: `
insert into ${s}.suppressions (channel, recipient, reason)
select $1, given.recipient, $3 from unnest($2::text[]) as given (recipient) order by given.recipient
on conflict do nothing
returning recipient`,

    remove: `
delete from ${s}.suppressions where channel = $1 and recipient = any ($2::text[]) returning recipient`,
  } as const;

  /** Recipients that it changed, by the one spelling. `db` is inside the transaction of the line about it. */
  async function change(db: Queryable, asked: SuppressionChange): Promise<string[]> {
    const { act, channel, reason } = asked;
    const keys = keysOf(channel, asked.recipients);
    const { rows } = await (act === 'suppress'
      ? db.query(sql.add, [channel, keys, reason])
      : db.query(sql.remove, [channel, keys]));
    return (rows as { recipient: string }[]).map(({ recipient }) => recipient);
  }

  /** The rows and the line about them, or neither. */
  function changeAndNote(pool: TransactionPool, asked: SuppressionChange, by: string): Promise<string[]> {
    return inTransaction(pool, async (db) => {
      const changed = await change(db, asked);
      await operations.note(db, asked.act, touchedBy(asked.channel, changed), by, changed.length);
      return changed;
    });
  }

  return {
    /** By channel and recipient; `after`: the page behind that one. */
    async list(
      db: Queryable,
      {
        channel,
        after,
        limit,
      }: { channel?: Channel; after?: Pick<Suppression, 'channel' | 'recipient'>; limit: number },
    ): Promise<Suppression[]> {
      const place = [after?.channel ?? null, after?.recipient ?? null];
      const { rows } = await db.query(sql.list, [channel ?? null, ...place, limit]);
      return withDates<Suppression>(rows, ['createdAt']);
    },

    /** For who writes the line about it: in one transaction. Throws UnbrokerError `recipient-invalid`. */
    change,

    /** Those that were not on it. Throws UnbrokerError `recipient-invalid`; then none is put on. */
    add(
      pool: TransactionPool,
      channel: Channel,
      recipients: readonly string[],
      reason: string | null,
      by: string,
    ): Promise<string[]> {
      return changeAndNote(pool, { act: 'suppress', channel, recipients, reason }, by);
    },

    /** Those that were on it. Throws the same. */
    remove(
      pool: TransactionPool,
      channel: Channel,
      recipients: readonly string[],
      by: string,
    ): Promise<string[]> {
      return changeAndNote(pool, { act: 'unsuppress', channel, recipients, reason: null }, by);
    },
  };
}

/** What the audit says of a change. */
export function touchedBy(channel: Channel, changed: readonly string[]): Touched {
  return { suppression: channel, recipients: changed.slice(0, MAX_NAMED).map(hashOf) };
}

/** As the audit names a recipient: whoever has the address can find it, nobody else can read it. */
export const hashOf = (key: string): string =>
  `sha256:${createHash('sha256').update(key).digest('hex').slice(0, 32)}`;

/** True for what may stand on the list: as in `to`, one bare mail address, a number, a URL. */
export function isRecipient(channel: Channel, recipient: string): boolean {
  const { recipientLength } = SUPPRESSION_LIMITS;
  if (recipient === '' || recipient.length > recipientLength || hasControls(recipient)) return false;
  return isStorable(recipient) && (channel !== 'email' || mailboxOf(recipient) !== null);
}

/** Each once, in the spelling that deliveries look for. The error says which by its place. */
function keysOf(channel: Channel, recipients: readonly string[]): string[] {
  const wrong = recipients.findIndex((recipient) => !isRecipient(channel, recipient));
  if (wrong === -1) return [...new Set(recipients.map((recipient) => recipientKey(channel, recipient)))];
  throw new UnbrokerError('recipient-invalid', `Recipient ${wrong + 1} is none of channel ${channel}`, {
    hint: 'Write each as it stands in `to`: one bare mail address, a number, a URL. Nothing was changed.',
    exitStatus: EXIT.badInput,
  });
}
