/** Holds batches back so that no more messages a second are taken than somebody asked for. */
import { setTimeout as sleep } from 'node:timers/promises';

export class Pace {
  #notBefore = 0;

  /** Messages per second; null = as fast as it goes. */
  constructor(
    private readonly rate: number | null,
    private readonly signal: AbortSignal | undefined,
  ) {}

  /** Resolves when so many more may be taken, or at the signal. */
  async take(messages: number): Promise<void> {
    if (this.rate === null) return;
    const now = performance.now();
    const at = Math.max(this.#notBefore, now);
    this.#notBefore = at + (messages / this.rate) * 1_000;
    if (at > now) await sleep(at - now, undefined, { signal: this.signal }).catch(() => undefined);
  }
}
