/**
 * Reads what may go back, in the order in which it lay there, and makes of each row the message that is sent: its bytes and
 * its way. The next page is read while the one before it is sent. It publishes nothing and writes nothing.
 */
import type { Queryable } from '../../src/jobs/job.js';
import type { Broker } from './broker.js';
import { leadingExchange } from './leading-exchange.js';
import type { RawMessage } from './publisher.js';
import type { Candidate, CandidateFilter, UndoLedger } from './undo-ledger.js';
import type { Refusals } from './undo-refusals.js';
import { hashOf, type WayBackContext, wayBack } from './way-back.js';

/** A message as it will be sent. */
export interface Prepared {
  readonly row: Candidate;
  readonly message: RawMessage;
  readonly hash: bigint;
  readonly stripped: readonly string[];
}

export interface UndoMessagesOptions {
  readonly pool: Queryable;
  readonly ledger: UndoLedger;
  readonly filter: CandidateFilter;
  readonly broker: Broker;
  readonly waitQueues: ReadonlySet<string>;
  readonly via: 'own' | 'default';
  readonly refusals: Refusals;
}

export const MAX_PAGE_BYTES = 8 * 1_048_576;
const MAX_PAGE = 1_000;
/** Of a server since 4.0, and before, unless configured. */
const MAX_MESSAGE_BYTES = { since4: 16 * 1_048_576, before: 128 * 1_048_576 } as const;

/** Names a message over all attempts. */
export const keyOf = ({ batch, position }: Pick<Candidate, 'batch' | 'position'>): string =>
  `${batch}/${position}`;

export class UndoMessages {
  readonly #context: WayBackContext;

  constructor(private readonly options: UndoMessagesOptions) {
    this.#context = contextOf(options.broker);
  }

  /** What may go of a queue, at most `maxPage` (default 1,000) messages and 8 MiB at a time. Pages may be empty. */
  async *of(queue: string, maxPage = MAX_PAGE): AsyncGenerator<readonly Prepared[]> {
    for await (const page of this.#pages(queue, maxPage)) {
      yield page.map((row) => this.#prepare(row)).filter((each) => each !== null);
    }
  }

  /** All of a queue stays. */
  async refuse(queue: string, reason: string): Promise<void> {
    for await (const page of this.#pages(queue, MAX_PAGE)) {
      for (const _ of page) this.options.refusals.add(reason);
    }
  }

  async *#pages(queue: string, rows: number): AsyncGenerator<readonly Candidate[]> {
    const { pool, ledger, filter } = this.options;
    const limits = { rows, bytes: MAX_PAGE_BYTES };
    for (const batch of await ledger.batches(pool, filter.runs, queue)) {
      const read = (position: number): Promise<Candidate[]> => {
        const page = ledger.candidates(pool, filter, queue, { batch, position }, limits);
        // Whoever takes it sees the error; nobody may come for it after another one.
        page.catch(() => undefined);
        return page;
      };
      let next = read(0);
      for (;;) {
        const page = await next;
        const last = page.at(-1);
        if (last === undefined) break;
        next = read(last.position);
        yield page;
      }
    }
  }

  /** Null: it stays, for the reason that is counted. */
  #prepare(row: Candidate): Prepared | null {
    const { waitQueues, via, refusals } = this.options;
    if (refusals.isPoison(keyOf(row))) return null;
    const remainingMs = waitQueues.has(row.queue) ? row.remainingMs : null;
    const way = wayBack(row.properties, row.body.length, remainingMs, this.#context);
    if ('refused' in way) {
      refusals.add(way.refused);
      return null;
    }
    const plain = via === 'default' || (row.exchange === '' && row.routingKey === row.queue);
    const route = plain
      ? { exchange: '', routingKey: row.queue }
      : { exchange: leadingExchange(row.queue, row.exchange), routingKey: row.routingKey };
    const message = { ...route, propertyBytes: way.bytes, body: row.body };
    return { row, message, hash: hashOf(message, row.queue), stripped: way.stripped };
  }
}

function contextOf({ user, frameMax, version }: Broker): WayBackContext {
  const maxMessageBytes =
    Number.parseInt(version, 10) >= 4 ? MAX_MESSAGE_BYTES.since4 : MAX_MESSAGE_BYTES.before;
  return { user, frameMax, maxMessageBytes };
}
