/**
 * Rows that are committed while their messages are in the broker again, after a crash between commit and ack. A
 * delivery that is one of them is acked without another row. Pure; how many there are was found by counting.
 */
import { type Delivery, readDeaths } from './delivery.js';
import type { ExpectedRow } from './ledger.js';

export class ExpectedRows {
  readonly #byPrint = new Map<string, ExpectedRow[]>();
  #size = 0;

  constructor(rows: readonly ExpectedRow[]) {
    for (const row of rows) {
      const key = row.fingerprint.toString('latin1');
      const same = this.#byPrint.get(key);
      if (same === undefined) this.#byPrint.set(key, [row]);
      else same.push(row);
      this.#size += 1;
    }
  }

  get size(): number {
    return this.#size;
  }

  /** Takes out the row that this delivery repeats; undefined when it is a message that has no row yet. */
  take(delivery: Delivery, print: string): ExpectedRow | undefined {
    if (this.#size === 0) return undefined;
    const rows = this.#byPrint.get(print);
    if (rows === undefined) return undefined;
    const index = pick(rows, delivery);
    if (index < 0) return undefined;
    const [row] = rows.splice(index, 1);
    if (rows.length === 0) this.#byPrint.delete(print);
    this.#size -= 1;
    return row;
  }
}

/**
 * Either it came back to its own queue: then it is marked redelivered and nothing was rewritten. Or it came back, passed
 * its TTL and was dead-lettered: then it is not marked, but `x-death` names the row's queue and how it was routed then.
 */
function pick(rows: readonly ExpectedRow[], delivery: Delivery): number {
  const { queue, exchange, routingKey, redelivered } = delivery;
  if (redelivered) {
    const own = rows.findIndex(
      (row) => row.queue === queue && row.exchange === exchange && row.routingKey === routingKey,
    );
    if (own >= 0) return own;
  }
  const deaths = readDeaths(delivery.headers) ?? [];
  const passed = (row: ExpectedRow) =>
    deaths.find((death) => death.queue === row.queue && row.queue !== queue);
  const exact = rows.findIndex((row) => {
    const death = passed(row);
    return death?.exchange === row.exchange && death.routingKeys[0] === row.routingKey;
  });
  return exact >= 0 ? exact : rows.findIndex((row) => passed(row) !== undefined);
}
