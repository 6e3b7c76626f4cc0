/**
 * Walks through the queues of a group, main queues first, and sends what may go of each, at a rate if one is given; or reads
 * it as it would go. It knows in which order, how many at a time and when to stop, and neither lease nor books.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Broker } from './broker.js';
import type { Prepared, UndoMessages } from './undo-messages.js';
import type { UndoSender } from './undo-sender.js';
import type { Suspects } from './undo-suspects.js';

export interface UndoWalkOptions {
  readonly broker: Broker;
  readonly messages: UndoMessages;
  readonly queues: readonly string[];
  readonly waitQueues: ReadonlySet<string>;
  readonly suspects: Suspects;
  readonly maxBatch: number;
  /** Messages per second; null: as they go. */
  readonly rate: number | null;
  readonly signal: AbortSignal | undefined;
}

const GONE = 'its-queue-is-gone';

export class UndoWalk {
  #notBefore = 0;

  constructor(private readonly options: UndoWalkOptions) {}

  /** Until everything is marked, or the signal is given and what is on its way is marked. */
  async send(sender: UndoSender): Promise<void> {
    const { broker, messages, signal } = this.options;
    for (const queue of this.#inOrder()) {
      if (signal?.aborted) break;
      if ((await broker.count(queue)) === null) await messages.refuse(queue, GONE);
      else await this.#sendQueue(sender, queue);
      // One queue at a time: of two, a broker that dies may keep the later messages and not the earlier ones.
      await sender.flush();
    }
    await sender.release();
  }

  /** Reads every message that would go, as it would go. */
  async rehearse(onPage: (page: readonly Prepared[]) => void): Promise<void> {
    const { broker, messages, signal } = this.options;
    for (const queue of this.#inOrder()) {
      if ((await broker.count(queue)) === null) await messages.refuse(queue, GONE);
      else
        for await (const page of messages.of(queue)) {
          signal?.throwIfAborted();
          onPage(page);
        }
    }
  }

  /** Main queues first: what waits may become due and go on into them meanwhile. */
  #inOrder(): string[] {
    const waits = (queue: string): number => (this.options.waitQueues.has(queue) ? 1 : 0);
    return this.options.queues.toSorted((a, b) => waits(a) - waits(b));
  }

  async #sendQueue(sender: UndoSender, queue: string): Promise<void> {
    const { messages, suspects, maxBatch, rate, signal } = this.options;
    const size = rate === null ? maxBatch : Math.min(maxBatch, Math.max(1, Math.ceil(rate / 4)));
    for await (const page of messages.of(queue, size)) {
      for (const part of suspects.split(page)) {
        await this.#pace(part.length);
        if (signal?.aborted) return;
        await this.#sendPart(sender, part);
      }
      if (signal?.aborted) return;
    }
  }

  async #sendPart(sender: UndoSender, part: readonly Prepared[]): Promise<void> {
    const { suspects } = this.options;
    const suspect = part.find((message) => suspects.has(message));
    if (suspect !== undefined) await sender.flush();
    await sender.send(part);
    if (suspect === undefined) return;
    await sender.flush();
    suspects.acquit(suspect);
  }

  async #pace(messages: number): Promise<void> {
    const { rate, signal } = this.options;
    if (rate === null) return;
    const now = performance.now();
    const at = Math.max(this.#notBefore, now);
    this.#notBefore = at + (messages / rate) * 1_000;
    if (at > now) await sleep(at - now, undefined, { signal }).catch(() => undefined);
  }
}
