/**
 * How many rows a statement may have that the server's statement_timeout does not cut short: half of the last that it did, then
 * slowly more. No clock: a limit that nobody meets any more is gone after some statements.
 */

/** So many in a row that were written before twice as many are tried: each try that fails costs a whole statement_timeout. */
const WRITTEN_BEFORE_MORE = 8;
/** Beyond the rows of any statement. */
const ENOUGH = 1_000;

export class Fitting {
  /** Rows of a statement. */
  most = Number.POSITIVE_INFINITY;
  #written = 0;

  cutShort(rows: number): void {
    this.most = Math.max(1, Math.floor(Math.min(rows, this.most) / 2));
    this.#written = 0;
  }

  written(rows: number): void {
    if (rows < this.most) return;
    this.#written += 1;
    if (this.#written < WRITTEN_BEFORE_MORE) return;
    this.#written = 0;
    this.most = this.most * 2 >= ENOUGH ? Number.POSITIVE_INFINITY : this.most * 2;
  }
}
