/**
 * The suppression list, for those who keep it: who is on it, put some on, take some off, each change with its line in
 * `operations`. Its statements stay here; that a delivery looks first is the gate's. It knows no command line.
 */
import { createHash } from 'node:crypto';
import { EXIT, UnbrokerError } from '../errors.js';
import type { Queryable } from '../jobs/job.js';
import { quoteSchema } from '../jobs/schema-name.js';
import { isStorable } from '../jobs/text.js';
import { createOperations, type OperationsPool } from '../operations.js';
import { recipientKey } from './gate.js';
import { type Channel, hasControls, mailboxOf } from './message.js';

export interface Suppression {
  readonly channel: Channel;
  /** In the one spelling that deliveries look for. */
  readonly recipient: string;
  readonly reason: string | null;
  readonly createdAt: Date;
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
select channel, recipient, reason, created_at as "createdAt" from ${s}.suppressions
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

  /** The rows and the line about them, or neither. */
  async function change(
    pool: OperationsPool,
    act: 'suppress' | 'unsuppress',
    channel: Channel,
    by: string,
    text: string,
    values: readonly unknown[],
  ): Promise<string[]> {
    const client = await pool.connect();
    try {
      await client.query('begin');
      const { rows } = await client.query(text, [...values]);
      const changed = (rows as { recipient: string }[]).map(({ recipient }) => recipient);
      const recipients = changed.slice(0, MAX_NAMED).map(hashOf);
      await operations.note(client, act, { suppression: channel, recipients }, by, changed.length);
      await client.query('commit');
      return changed;
    } catch (error) {
      await client.query('rollback').catch(() => undefined);
      throw error;
    } finally {
      client.release();
    }
  }

  return {
    /** By channel and recipient; `after`: the page behind that one. */
    async list(
      db: Queryable,
      { channel, after, limit }: { channel?: Channel; after?: Suppression; limit: number },
    ): Promise<Suppression[]> {
      const place = [after?.channel ?? null, after?.recipient ?? null];
      const { rows } = await db.query(sql.list, [channel ?? null, ...place, limit]);
      return rows as Suppression[];
    },

    /** Those that were not on it. Throws UnbrokerError `recipient-invalid`; then none is put on. */
    add(
      pool: OperationsPool,
      channel: Channel,
      recipients: readonly string[],
      reason: string | null,
      by: string,
    ): Promise<string[]> {
      return change(pool, 'suppress', channel, by, sql.add, [channel, keysOf(channel, recipients), reason]);
    },

    /** Those that were on it. Throws the same. */
    remove(
      pool: OperationsPool,
      channel: Channel,
      recipients: readonly string[],
      by: string,
    ): Promise<string[]> {
      return change(pool, 'unsuppress', channel, by, sql.remove, [channel, keysOf(channel, recipients)]);
    },
  };
}

/** As the audit names a recipient: whoever has the address can find it, nobody else can read it. */
export const hashOf = (key: string): string =>
  `sha256:${createHash('sha256').update(key).digest('hex').slice(0, 32)}`;

/** Each once, in the spelling that deliveries look for. The error says which by its place. */
function keysOf(channel: Channel, recipients: readonly string[]): string[] {
  for (const [index, recipient] of recipients.entries()) {
    const isLine = recipient !== '' && !hasControls(recipient) && isStorable(recipient);
    const fits = isLine && recipient.length <= SUPPRESSION_LIMITS.recipientLength;
    if (fits && (channel !== 'email' || mailboxOf(recipient) !== null)) continue;
    throw new UnbrokerError('recipient-invalid', `Recipient ${index + 1} is none of channel ${channel}`, {
      hint: 'Write each as it stands in `to`: one bare mail address, a number, a URL. Nothing was changed.',
      exitStatus: EXIT.badInput,
    });
  }
  return [...new Set(recipients.map((recipient) => recipientKey(channel, recipient)))];
}
