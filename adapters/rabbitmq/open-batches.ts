/**
 * The batches of one attempt whose ack is not yet marked as proved: prepared, committed, acked or fenced. It knows which
 * may be marked and by whom; it writes nothing.
 */
interface OpenBatch {
  readonly size: number;
  /** Null until it is committed. */
  id: string | null;
  fenced: boolean;
  /** A transaction on its way marks it. */
  marking: boolean;
}

export class OpenBatches {
  readonly #open = new Map<number, OpenBatch>();
  #nextKey = 1;

  /** Messages of each, in the order in which they were begun. */
  get sizes(): number[] {
    return [...this.#open.values()].map(({ size }) => size);
  }

  get empty(): boolean {
    return this.#open.size === 0;
  }

  /** Keys count from 1. */
  begin(size: number): number {
    const key = this.#nextKey++;
    this.#open.set(key, { size, id: null, fenced: false, marking: false });
    return key;
  }

  committed(key: number, id: string): void {
    (this.#open.get(key) as OpenBatch).id = id;
  }

  /** Its ack has reached the broker. */
  fenced(key: number): void {
    (this.#open.get(key) as OpenBatch).fenced = true;
  }

  /** What is proved; with `claim`, that which nobody is about to mark, and now the caller is. */
  proved({ claim }: { readonly claim: boolean }): { readonly keys: number[]; readonly ids: string[] } {
    const keys: number[] = [];
    const ids: string[] = [];
    for (const [key, batch] of this.#open) {
      if (!batch.fenced || batch.id === null || (claim && batch.marking)) continue;
      if (claim) batch.marking = true;
      keys.push(key);
      ids.push(batch.id);
    }
    return { keys, ids };
  }

  /** Marked, and committed. */
  marked(keys: readonly number[]): void {
    for (const key of keys) this.#open.delete(key);
  }
}
