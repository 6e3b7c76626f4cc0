/**
 * Writes one batch: job rows and ledger rows in one transaction on one client. A payload that the database refuses
 * costs its batch one repetition and itself its place in `payload`, never the drain.
 */
import type { Drawn } from '../../src/jobs/import.js';
import type { ImportedJob, Queryable } from '../../src/jobs/job.js';
import type { Store } from '../../src/jobs/store.js';
import type { BatchPlace } from './batch-place.js';
import type { Delivery } from './delivery.js';
import { type Outcome, UNMAPPED } from './fate.js';
import type { AbsorbedRow, Ledger } from './ledger.js';
import { type Mapped, withoutPayload } from './mapping.js';
import { MessageWriter, type PlacedRows } from './message-rows.js';
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

interface Batch {
  readonly queue: string;
  readonly absorbed: readonly AbsorbedRow[];
  /** Messages that its one ack covers. */
  readonly size: number;
  readonly lastTag: number;
}

export interface PreparedBatch extends Batch {
  readonly messages: readonly PreparedMessage[];
}

/** The same, its messages written out. */
export interface WrittenBatch extends Batch {
  readonly rows: readonly PlacedRows[];
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

export interface RowsWriter {
  /** One connection, not a pool. */
  readonly client: Queryable;
  readonly store: Pick<Store, 'probeJsonb'>;
  readonly ledger: Ledger;
  readonly run: { readonly id: string; readonly holder: string; readonly leaseMs: number };
  readonly onStep: (step: DrainStep) => void;
  /** Behind which batch it comes; without one it is alone. */
  readonly place?: BatchPlace | undefined;
  /** More to write in the batch's transaction. */
  readonly also?: ((client: Queryable, batch: string) => Promise<void>) | undefined;
  /** The message of these rows mapped again, its body parsed: after the database refused a batch. */
  readonly reopen: (placed: PlacedRows) => PreparedMessage;
}

export interface BatchWriter extends Omit<RowsWriter, 'reopen'> {
  /** Maps a message again, parsing its body: after the database refused a batch. From then on all are mapped like that. */
  readonly mapCarefully: (message: PreparedMessage) => Mapped;
  /**
   * Writes the messages of one batch after the other out; without one, each batch has its own and its megabytes of buffers. After
   * an error it is not used again. A bridge that got 35 messages a second had a full collection for every seven of them.
   */
  readonly messageWriter?: MessageWriter;
}

/** A drainer that is paused inside a transaction must not keep its successor waiting for the lease row. */
const BEGIN = `begin; set local idle_in_transaction_session_timeout = '20s'`;

export interface WriteResult {
  readonly id: string;
  /** The batch as it was written in the end. */
  readonly written: WrittenBatch;
}

/** `acked`: batches whose ack was proved since. Throws `drain-lease-lost`. */
export async function writeBatch(
  writer: BatchWriter,
  { messages, ...batch }: PreparedBatch,
  acked: readonly string[],
): Promise<WriteResult> {
  const byPosition = new Map(messages.map((message) => [message.position, message]));
  const reopen = ({ position }: PlacedRows): PreparedMessage => {
    const message = byPosition.get(position) as PreparedMessage;
    return { ...message, mapped: writer.mapCarefully(message) };
  };
  const { messageWriter = new MessageWriter() } = writer;
  const rows = writeOut(messages, messageWriter);
  const result = await writeRows({ ...writer, reopen }, { ...batch, rows }, acked);
  messageWriter.reuse(rows);
  return result;
}

/** The same of messages that are written out already. */
export async function writeRows(
  writer: RowsWriter,
  batch: WrittenBatch,
  acked: readonly string[],
): Promise<WriteResult> {
  const ids: DrawnIds = { drawn: null };
  const write = async (version: WrittenBatch): Promise<WriteResult> => ({
    id: await tryWrite(writer, version, acked, ids),
    written: version,
  });
  try {
    return await write(batch);
  } catch (error) {
    if (!isRefusedValue(error)) throw error;
    const messages = await withoutRefusedPayloads(writer, batch.rows.map(writer.reopen));
    try {
      return await write({ ...batch, rows: writeOut(messages) });
    } catch (second) {
      if (!isRefusedValue(second)) throw second;
      return write({ ...batch, rows: writeOut(await withoutRefusedRows(writer, messages)) });
    }
  }
}

function writeOut(messages: readonly PreparedMessage[], writer = new MessageWriter()): PlacedRows[] {
  return messages.map(({ delivery, fingerprint, position, mapped }) => ({
    rows: writer.write(delivery, fingerprint, mapped),
    position,
  }));
}

/** Kept when the batch is written again: its jobs stay in front of those of the batch behind it. */
interface DrawnIds {
  drawn: { readonly count: number; readonly ids: Drawn } | null;
}

async function tryWrite(
  { client, ledger, run, onStep, place, also }: RowsWriter,
  batch: WrittenBatch,
  acked: readonly string[],
  ids: DrawnIds,
): Promise<string> {
  const jobs = batch.rows.map(({ rows }) => rows.job).filter((job) => job !== null);
  // Before the transaction: its time is when its jobs may start, and they are claimed by that first.
  await place?.mayDraw();
  await client.query(BEGIN);
  try {
    if (ids.drawn?.count !== jobs.length) {
      ids.drawn = { count: jobs.length, ids: await ledger.jobs.draw(client, jobs.length) };
    }
    place?.drew();
    const drawn = ids.drawn.ids;
    await ledger.jobs.insert(client, jobs, drawn);
    onStep('imported');
    await place?.mayRecord();
    // It locks the run's row: from here on the next batch waits for this one's commit.
    const id = await ledger.record(client, run, { ...batch, ...countsOf(batch) }, acked);
    place?.recorded();
    if (id === null) throw leaseLost();
    await ledger.writeRows(client, id, batch.rows, drawn.ids);
    await also?.(client, id);
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

/** Messages with a row of their own, by what became of them, and how many of these start at the end of their bounds. */
export function countsOf({ rows }: Pick<WrittenBatch, 'rows'>): {
  readonly counts: Readonly<Record<Outcome, number>>;
  readonly inexact: number;
} {
  const counts = { row: 0, unmapped: 0, excluded: 0, expired: 0 };
  let inexact = 0;
  for (const { rows: message } of rows) {
    counts[message.outcome] += 1;
    if (!message.runAtExact) inexact += 1;
  }
  return { counts, inexact };
}

/** Data exceptions, limits of the statement, checks and unique keys: about values, not about the server's health. */
function isRefusedValue(error: unknown): boolean {
  const code = (error as { code?: unknown }).code;
  return typeof code === 'string' && /^(22|54|23)/.test(code);
}

/** Asks the server which payloads it takes; the others keep their bytes in `body`. */
async function withoutRefusedPayloads(
  { client, store }: RowsWriter,
  messages: readonly PreparedMessage[],
): Promise<PreparedMessage[]> {
  const asked = messages.filter(({ mapped }) => mapped.job?.payloadText != null);
  const texts = asked.map(({ mapped }) => mapped.job?.payloadText as string);
  const answers = texts.length === 0 ? [] : await store.probeJsonb(client, texts);
  const refused = new Set(asked.filter((_, index) => answers[index] === false));
  return messages.map((message) =>
    refused.has(message) ? { ...message, mapped: withoutPayload(message.mapped, message.delivery) } : message,
  );
}

/** The last resort: tries each row alone and strips those that are refused down to their bytes. */
async function withoutRefusedRows(
  { client, ledger }: RowsWriter,
  messages: readonly PreparedMessage[],
): Promise<PreparedMessage[]> {
  const result: PreparedMessage[] = [];
  for (const message of messages) {
    const [placed] = writeOut([message]);
    const job = placed?.rows.job ?? null;
    let refused = false;
    if (job !== null) {
      await client.query(BEGIN);
      try {
        await ledger.jobs.insert(client, [job], await ledger.jobs.draw(client, 1));
      } catch (error) {
        if (!isRefusedValue(error)) throw error;
        refused = true;
      } finally {
        await client.query('rollback');
      }
    }
    result.push(refused ? { ...message, mapped: strippedRow(message) } : message);
  }
  return result;
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
