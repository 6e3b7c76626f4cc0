/**
 * Writes one batch: job rows and ledger rows in one transaction on one client. A payload that the database refuses
 * costs its batch one repetition and itself its place in `payload`, never the drain.
 */
import type { ImportedJob, Queryable } from '../../src/jobs/job.js';
import type { Store } from '../../src/jobs/store.js';
import type { Delivery } from './delivery.js';
import { UNMAPPED } from './fate.js';
import type { AbsorbedRow, Ledger, LedgerEntry } from './ledger.js';
import { type Mapped, withoutPayload } from './mapping.js';
import { shortText } from './row-headers.js';
import { leaseLost } from './run-lease.js';

/** A delivery on its way into the tables. */
export interface PreparedMessage {
  readonly delivery: Delivery;
  /** As fingerprint.ts gives it. */
  readonly fingerprint: string;
  /** From 1, its place in the batch. */
  readonly position: number;
  readonly mapped: Mapped;
}

export interface PreparedBatch {
  readonly queue: string;
  readonly messages: readonly PreparedMessage[];
  readonly absorbed: readonly AbsorbedRow[];
  /** Messages that its one ack covers. */
  readonly size: number;
  readonly lastTag: number;
}

/** Where a drain is, for whoever wants to watch it or end it there. */
export type DrainStep =
  | 'prepared'
  | 'imported'
  | 'recorded'
  | 'committing'
  | 'committed'
  | 'acked'
  | 'fenced'
  | 'marked';

export interface BatchWriter {
  readonly client: Queryable;
  readonly store: Pick<Store, 'importMany' | 'probeJsonb'>;
  readonly ledger: Ledger;
  readonly run: { readonly id: string; readonly holder: string; readonly leaseMs: number };
  readonly onStep: (step: DrainStep) => void;
  /** Maps a message again, parsing its body: after the database refused a batch. From then on all are mapped like that. */
  readonly mapCarefully: (message: PreparedMessage) => Mapped;
}

/** A drainer that is paused inside a transaction must not keep its successor waiting for the lease row. */
const BEGIN = `begin; set local idle_in_transaction_session_timeout = '20s'`;

/** Answers the batch's id, and the batch as it was written in the end. `acked`: batches whose ack was proved since. Throws `drain-lease-lost`. */
export async function writeBatch(
  writer: BatchWriter,
  batch: PreparedBatch,
  acked: readonly string[],
): Promise<{ readonly id: string; readonly written: PreparedBatch }> {
  const write = async (version: PreparedBatch) => ({
    id: await tryWrite(writer, version, acked),
    written: version,
  });
  try {
    return await write(batch);
  } catch (error) {
    if (!isRefusedValue(error)) throw error;
    const probed = await withoutRefusedPayloads(writer, replace(batch, writer.mapCarefully));
    try {
      return await write(probed);
    } catch (second) {
      if (!isRefusedValue(second)) throw second;
      return write(await withoutRefusedRows(writer, probed));
    }
  }
}

async function tryWrite(
  writer: BatchWriter,
  batch: PreparedBatch,
  acked: readonly string[],
): Promise<string> {
  const { client, store, ledger, run, onStep } = writer;
  await client.query(BEGIN);
  try {
    const jobs = batch.messages.map(({ mapped }) => mapped.job).filter((job) => job !== null);
    const ids = jobs.length === 0 ? [] : await store.importMany(client, jobs);
    onStep('imported');
    const entries = toEntries(batch.messages, ids);
    const inexact = batch.messages.filter(({ mapped }) => !mapped.runAtExact).length;
    const id = await ledger.record(client, run, { ...batch, entries, inexact }, acked);
    if (id === null) throw leaseLost();
    onStep('recorded');
    const commit = client.query('commit');
    onStep('committing');
    await commit;
    return id;
  } catch (error) {
    await client.query('rollback').catch(() => undefined);
    throw error;
  }
}

function toEntries(messages: readonly PreparedMessage[], ids: readonly string[]): LedgerEntry[] {
  let next = 0;
  return messages.map(({ delivery, fingerprint, position, mapped }) => ({
    position,
    job: mapped.job === null ? null : (ids[next++] as string),
    redelivered: delivery.redelivered,
    outcome: mapped.outcome,
    exchange: shortText(delivery.exchange),
    routingKey: shortText(delivery.routingKey),
    messageId: delivery.properties.messageId === undefined ? null : shortText(delivery.properties.messageId),
    note: mapped.note,
    fingerprint,
    properties: delivery.bytes,
    body: delivery.body,
  }));
}

/** Data exceptions, limits of the statement, checks and unique keys: about values, not about the server's health. */
function isRefusedValue(error: unknown): boolean {
  const code = (error as { code?: unknown }).code;
  return typeof code === 'string' && /^(22|54|23)/.test(code);
}

/** Asks the server which payloads it takes; the others keep their bytes in `body`. */
async function withoutRefusedPayloads(writer: BatchWriter, batch: PreparedBatch): Promise<PreparedBatch> {
  const asked = batch.messages.filter(({ mapped }) => mapped.job?.payloadText != null);
  const texts = asked.map(({ mapped }) => mapped.job?.payloadText as string);
  const answers = texts.length === 0 ? [] : await writer.store.probeJsonb(writer.client, texts);
  const refused = new Set(asked.filter((_, index) => answers[index] === false));
  return replace(batch, (message) =>
    refused.has(message) ? withoutPayload(message.mapped, message.delivery) : null,
  );
}

/** The last resort: tries each row alone and strips those that are refused down to their bytes. */
async function withoutRefusedRows(
  { client, store }: BatchWriter,
  batch: PreparedBatch,
): Promise<PreparedBatch> {
  const refused = new Set<PreparedMessage>();
  for (const message of batch.messages) {
    if (message.mapped.job === null) continue;
    await client.query(BEGIN);
    try {
      await store.importMany(client, [message.mapped.job]);
    } catch (error) {
      if (!isRefusedValue(error)) throw error;
      refused.add(message);
    } finally {
      await client.query('rollback');
    }
  }
  return replace(batch, (message) => (refused.has(message) ? strippedRow(message) : null));
}

function replace(batch: PreparedBatch, by: (message: PreparedMessage) => Mapped | null): PreparedBatch {
  return {
    ...batch,
    messages: batch.messages.map((message) => ({ ...message, mapped: by(message) ?? message.mapped })),
  };
}

function strippedRow({ mapped, delivery }: PreparedMessage): Mapped {
  const job: ImportedJob = {
    ...(mapped.job as ImportedJob),
    kind: UNMAPPED,
    payloadText: null,
    body: delivery.body,
    contentType: null,
    state: 'dead',
    priority: 0,
    runAtMs: null,
    maxAttempts: null,
    dedupeKey: null,
    headers: null,
    error: { name: UNMAPPED, message: 'the database refused the row; its bytes are kept in body' },
  };
  return { ...mapped, job, outcome: 'unmapped', note: 'row-refused-by-database', runAtExact: true };
}
