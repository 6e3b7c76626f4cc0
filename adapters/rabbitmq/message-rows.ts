/**
 * A delivery as the two rows that it becomes, written out as soon as it has arrived: what waits for its transaction is
 * bytes, not thousands of objects. The ledger's row has the delivery's own bytes, so it can be read back when a batch must be
 * mapped again. Pure.
 */
import {
  CopyRows,
  FIELDS_BYTES,
  fieldsOf,
  LENGTH_BYTES,
  putEight,
  putInt32,
  type WrittenRow,
} from '../../src/jobs/copy-rows.js';
import { type JobRow, writeJob } from '../../src/jobs/import.js';
import type { Delivery, RawDelivery } from './delivery.js';
import type { Outcome } from './fate.js';
import type { Mapped } from './mapping.js';
import { shortText } from './row-headers.js';

export interface MessageRows {
  /** Null when excluded. */
  readonly job: JobRow | null;
  readonly ledger: WrittenRow;
  readonly outcome: Outcome;
  readonly runAtExact: boolean;
  /** As delivered; the ledger's row has what text columns take of them. */
  readonly exchange: string;
  readonly routingKey: string;
}

/** From 1, its place in the batch. */
export interface PlacedRows {
  readonly rows: MessageRows;
  readonly position: number;
}

export const LEDGER_COLUMNS = [
  ...[
    'batch',
    'position',
    'job',
    'redelivered',
    'outcome',
    'queue',
    'exchange',
    'routing_key',
    'message_id',
    'note',
  ],
  ...['fingerprint', 'properties', 'body'],
];
const REDELIVERED = LEDGER_COLUMNS.indexOf('redelivered');
const FINGERPRINT = LEDGER_COLUMNS.indexOf('fingerprint');
const PROPERTIES = LEDGER_COLUMNS.indexOf('properties');
const BODY = LEDGER_COLUMNS.indexOf('body');
const BATCH_AT = FIELDS_BYTES + LENGTH_BYTES;
const POSITION_AT = BATCH_AT + 8 + LENGTH_BYTES;
const JOB_AT = POSITION_AT + 4 + LENGTH_BYTES;

export class MessageWriter {
  readonly #jobs = new CopyRows();
  readonly #ledger = new CopyRows();
  /** Most messages of a queue come the same way: one text for all of them. */
  #exchange = '';
  #routingKey = '';

  write(delivery: Delivery, fingerprint: string, mapped: Mapped): MessageRows {
    if (delivery.exchange !== this.#exchange) this.#exchange = delivery.exchange;
    if (delivery.routingKey !== this.#routingKey) this.#routingKey = delivery.routingKey;
    return {
      job: mapped.job === null ? null : writeJob(this.#jobs, mapped.job),
      ledger: this.#entry(delivery, fingerprint, mapped),
      outcome: mapped.outcome,
      runAtExact: mapped.runAtExact,
      exchange: this.#exchange,
      routingKey: this.#routingKey,
    };
  }

  /** These are committed. All that were written here come here, in their order. */
  reuse(placed: readonly PlacedRows[]): void {
    this.#ledger.reuse(placed.map(({ rows }) => rows.ledger));
    this.#jobs.reuse(placed.map(({ rows }) => rows.job).filter((job) => job !== null));
  }

  #entry(
    { queue, redelivered, properties, bytes, body }: Delivery,
    print: string,
    mapped: Mapped,
  ): WrittenRow {
    const rows = this.#ledger;
    rows.begin(LEDGER_COLUMNS.length);
    rows.later();
    rows.int4(0);
    if (mapped.job === null) rows.none();
    else rows.later();
    rows.boolean(redelivered);
    rows.text(mapped.outcome);
    rows.text(queue);
    rows.text(shortText(this.#exchange));
    rows.text(shortText(this.#routingKey));
    rows.text(properties.messageId === undefined ? null : shortText(properties.messageId));
    rows.text(mapped.note);
    rows.latin1(print);
    rows.bytes(bytes);
    rows.bytes(body);
    return rows.end();
  }
}

/** Puts batch, positions and the jobs' ids (eight bytes each, in order) into the rows. */
export function placeRows(placed: readonly PlacedRows[], batch: string, ids: Buffer): WrittenRow[] {
  const id = Buffer.alloc(8);
  id.writeBigInt64BE(BigInt(batch));
  let next = 0;
  return placed.map(({ rows: { job, ledger }, position }) => {
    const { bytes, start } = ledger;
    putEight(bytes, start + BATCH_AT, id, 0);
    putInt32(bytes, start + POSITION_AT, position);
    if (job !== null) {
      putEight(bytes, start + JOB_AT, ids, next);
      next += 8;
    }
    return ledger;
  });
}

/** The delivery that these rows were made of, but for its tag. */
export function deliveryOf(rows: MessageRows, queue: string): { raw: RawDelivery; fingerprint: string } {
  const fields = fieldsOf(rows.ledger);
  const bytesOf = (column: number): Buffer => fields[column] as Buffer;
  return {
    raw: {
      queue,
      exchange: rows.exchange,
      routingKey: rows.routingKey,
      redelivered: bytesOf(REDELIVERED)[0] === 1,
      deliveryTag: 0,
      propertyBytes: bytesOf(PROPERTIES),
      body: bytesOf(BODY),
    },
    fingerprint: bytesOf(FINGERPRINT).toString('latin1'),
  };
}
