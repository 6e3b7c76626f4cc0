/**
 * Why messages stay in the table although they could go: counted by reason, and the ones that the broker ends the connection for
 * remembered, so that they are not sent again. It knows no broker and no database.
 */

export class Refusals {
  readonly #poison = new Map<string, string>();
  #counts = new Map<string, number>();

  /** Each attempt reads all that is left once more, and counts it once more. */
  begin(): void {
    this.#counts = new Map();
    for (const reason of this.#poison.values()) this.add(reason);
  }

  add(reason: string): void {
    this.#counts.set(reason, (this.#counts.get(reason) ?? 0) + 1);
  }

  /** For good: the broker ended the connection with this code when it got the message. */
  addPoison(key: string, code: unknown): void {
    if (this.#poison.has(key)) return;
    const reason = `the-broker-refuses-it-${code}`;
    this.#poison.set(key, reason);
    this.add(reason);
  }

  isPoison(key: string): boolean {
    return this.#poison.has(key);
  }

  get byReason(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#counts);
  }
}
