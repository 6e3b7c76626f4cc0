/**
 * Which message does the broker end the connection for? It takes what comes over a channel in order, so the first that did
 * not arrive is suspected, with some behind it; suspects go alone, and one that goes alone and ends the connection again
 * is it. Pure.
 */
import { keyOf, type Prepared } from './undo-messages.js';
import type { Refusals } from './undo-refusals.js';

const MAX_SUSPECTS = 20;

export class Suspects {
  #keys = new Set<string>();
  #sent: readonly Prepared[] = [];
  #code: unknown;

  /** An attempt ended with this on the way; `code`: the broker's, when it refused a message. */
  ended(sent: readonly Prepared[], code: unknown): void {
    this.#sent = code === undefined ? [] : sent;
    this.#code = code;
  }

  /** So many of them have arrived, by the count. True when that tells something new. */
  blame(arrived: number, refusals: Refusals): boolean {
    const sent = this.#sent;
    this.#sent = [];
    const missing = sent.slice(Math.max(arrived, 0)).map(({ row }) => keyOf(row));
    const [first] = missing;
    if (first === undefined) return false;
    if (sent.length === 1) {
      refusals.addPoison(first, this.#code);
      return true;
    }
    const known = this.#keys.has(first);
    this.#keys = new Set(missing.slice(0, MAX_SUSPECTS));
    return !known;
  }

  /** A page in the parts in which it is sent: a suspect alone. */
  split(page: readonly Prepared[]): readonly (readonly Prepared[])[] {
    if (this.#keys.size === 0) return page.length === 0 ? [] : [page];
    const parts: Prepared[][] = [];
    let alone = true;
    for (const message of page) {
      const suspect = this.has(message);
      if (suspect || alone) parts.push([message]);
      else parts.at(-1)?.push(message);
      alone = suspect;
    }
    return parts;
  }

  has({ row }: Prepared): boolean {
    return this.#keys.has(keyOf(row));
  }

  /** It went. */
  acquit({ row }: Prepared): void {
    this.#keys.delete(keyOf(row));
  }
}
