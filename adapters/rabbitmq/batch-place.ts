/**
 * The order of batches that are written side by side: each draws its job ids, and then its number in the ledger, behind
 * the batch before it, so that jobs and the way back keep the order of the queue. It knows no batch and no database.
 */

/** One batch's place; whoever leaves it early (an error) lets the next one pass all the same. */
export class BatchPlace {
  readonly #drawn = new Gate();
  readonly #recorded = new Gate();
  /** Of the place before only these: the places of a million messages would hang on one another. */
  readonly #drawnBefore: Promise<void> | undefined;
  readonly #recordedBefore: Promise<void> | undefined;

  constructor(before: BatchPlace | undefined) {
    if (before === undefined) return;
    this.#drawnBefore = before.#drawn.opened;
    this.#recordedBefore = before.#recorded.opened;
  }

  /** When the batch before has drawn its ids and the time that its jobs start at. */
  async mayDraw(): Promise<void> {
    await this.#drawnBefore;
  }

  drew(): void {
    this.#drawn.open();
  }

  /** When the batch before has its number, and with it the lock for which this one's statement then waits in the database. */
  async mayRecord(): Promise<void> {
    await this.#recordedBefore;
  }

  recorded(): void {
    this.#recorded.open();
  }

  leave(): void {
    this.drew();
    this.recorded();
  }
}

class Gate {
  open: () => void = () => undefined;
  readonly opened = new Promise<void>((resolve) => {
    this.open = resolve;
  });
}
