/**
 * Publishes what goes back and marks it: lease, publish, confirm, mark, in this order and no other for each message. While
 * confirms of one batch are awaited and marked the next ones are on their way, in one order on one channel, so that after an
 * interruption a count tells how far they got. It refuses to know what may go, and what a count says.
 */
import { hostname } from 'node:os';
import type { Queryable } from '../../src/jobs/job.js';
import type { Publisher, PublishOutcome } from './publisher.js';
import { leaseLost } from './run-lease.js';
import { unconfirmed } from './undo-errors.js';
import type { UndoLedger, UndoRun } from './undo-ledger.js';
import type { Prepared } from './undo-messages.js';
import type { Refusals } from './undo-refusals.js';

/** Where a batch is, for whoever wants to watch it or end it there. */
export type UndoStep = 'claimed' | 'published' | 'confirmed' | 'marked';

export interface UndoSenderOptions {
  readonly pool: Queryable;
  readonly ledger: UndoLedger;
  readonly publisher: Publisher;
  readonly run: UndoRun;
  readonly refusals: Refusals;
  /** Messages that are published and not marked. */
  readonly maxOnTheWay: number;
  /** How long the broker may take to confirm a batch when those before it are marked. */
  readonly confirmWithinMs: number;
  /** Of the first message: no two that a process sends are alike. */
  readonly firstNumber: number;
  /** A batch is marked: so many went back, of so many the job had been taken out of our hands. */
  onMarked(moved: number, takenMeanwhile: number): void;
  onStep(step: UndoStep): void;
}

/** Whatever the number of messages, so much of them is held. */
const MAX_BYTES_ON_THE_WAY = 32 * 1_048_576;

interface Flight {
  readonly sent: readonly Prepared[];
  readonly numbers: readonly number[];
  readonly outcomes: Promise<PublishOutcome[]>;
  readonly bytes: number;
  /** Settles when it is marked. */
  marked: Promise<void>;
}

export class UndoSender {
  readonly #flights: Flight[] = [];
  /** Exchanges of ours that are there. */
  readonly #leading = new Set<string>();
  readonly #worker = `undo ${hostname()} ${process.pid}`.slice(0, 255);
  #nextNumber: number;
  #last: Promise<void> = Promise.resolve();

  constructor(private readonly options: UndoSenderOptions) {
    this.#nextNumber = options.firstNumber;
  }

  get nextNumber(): number {
    return this.#nextNumber;
  }

  /** Published or about to be, and not marked; in order. */
  get onTheWay(): readonly Prepared[] {
    return this.#flights.flatMap(({ sent }) => sent);
  }

  /** Takes a batch and publishes it; waits only for room. Throws what became of the batches before it. */
  async send(batch: readonly Prepared[]): Promise<void> {
    const { pool, ledger, run, publisher, onStep } = this.options;
    const bytes = batch.reduce(
      (sum, { message }) => sum + message.body.length + message.propertyBytes.length,
      0,
    );
    for (const { message, row } of batch) await this.#lead(message.exchange, row.queue);
    await this.#room(batch.length, bytes);
    const first = this.#nextNumber;
    this.#nextNumber += batch.length;
    const going = await ledger.claim(pool, run, batch, { first, worker: this.#worker });
    if (going === null) throw leaseLost();
    const sent = going.map((number) => batch[number - first] as Prepared);
    if (sent.length === 0) return;
    onStep('claimed');
    const outcomes = Promise.all(sent.map(({ message }) => publisher.publish(message)));
    // Seen by whoever waits for the batch, unless one before it fails first.
    outcomes.catch(() => undefined);
    const flight: Flight = { sent, numbers: going, outcomes, bytes, marked: this.#last };
    this.#flights.push(flight);
    onStep('published');
    flight.marked = this.#last.then(() => this.#mark(flight));
    this.#last = flight.marked;
    this.#last.catch(() => undefined);
  }

  /** Until everything that was sent is marked. */
  async flush(): Promise<void> {
    await this.#last;
  }

  /** Until nothing of it is being written any more, whatever became of it. */
  async quiet(): Promise<void> {
    await this.#last.catch(() => undefined);
  }

  /** Takes our exchanges away. */
  async release(): Promise<void> {
    for (const exchange of this.#leading)
      await this.options.publisher.release(exchange).catch(() => undefined);
  }

  async #lead(exchange: string, queue: string): Promise<void> {
    if (exchange === '' || this.#leading.has(exchange)) return;
    await this.options.publisher.lead(exchange, queue);
    this.#leading.add(exchange);
  }

  async #room(messages: number, bytes: number): Promise<void> {
    const { maxOnTheWay } = this.options;
    for (;;) {
      const [oldest] = this.#flights;
      if (oldest === undefined) return;
      const held = this.#flights.reduce((sum, { sent }) => sum + sent.length, 0);
      const heldBytes = this.#flights.reduce((sum, flight) => sum + flight.bytes, 0);
      if (held + messages <= maxOnTheWay && heldBytes + bytes <= MAX_BYTES_ON_THE_WAY) return;
      await oldest.marked;
    }
  }

  async #mark(flight: Flight): Promise<void> {
    const { pool, ledger, run, refusals, onMarked, onStep } = this.options;
    const outcomes = await this.#confirmed(flight);
    onStep('confirmed');
    const moved: number[] = [];
    const released: number[] = [];
    outcomes.forEach((outcome, index) => {
      const number = flight.numbers[index] as number;
      if (outcome === 'taken') moved.push(number);
      else {
        released.push(number);
        refusals.add(outcome === 'returned' ? 'its-queue-is-gone' : 'its-queue-takes-no-more');
      }
    });
    const takenMeanwhile = await ledger.settle(pool, run, moved, released);
    if (takenMeanwhile === null) throw leaseLost();
    this.#flights.shift();
    onMarked(moved.length, takenMeanwhile);
    onStep('marked');
  }

  async #confirmed({ outcomes, sent }: Flight): Promise<PublishOutcome[]> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      const { confirmWithinMs } = this.options;
      timer = setTimeout(() => reject(unconfirmed(sent.length, confirmWithinMs)), confirmWithinMs);
    });
    return Promise.race([outcomes, late]).finally(() => clearTimeout(timer));
  }
}
