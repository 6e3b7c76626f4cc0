/**
 * Messages of a queue by asking for one after the other. Whoever asks never becomes a consumer: an auto-delete queue goes, with
 * all that is left in it, when its last consumer does, and a drain that is killed would be that. About a sixth of the
 * speed. It knows a channel by the three methods it uses.
 */
import type { RawDelivery } from './delivery.js';

export interface AskedChannel<Message> {
  get(queue: string): Promise<Message | false>;
  checkQueue(queue: string): Promise<{ readonly messageCount: number }>;
  on(event: 'error' | 'close', listener: (error: Error) => void): unknown;
}

export interface AskOptions {
  /** Deliveries in hand at most. */
  readonly prefetch: number;
  onDelivery(delivery: RawDelivery): void;
  onEnd(reason: Error): void;
}

export interface Asking<Message> {
  readonly toDelivery: (message: Awaited<Message>) => RawDelivery;
  readonly ackThrough: (deliveryTag: number) => void;
  /** What a channel's error means. */
  readonly explain: (error: unknown) => Error;
}

/** Questions under way at once; each is a round trip. */
const ASKED_AT_ONCE = 16;
const EMPTY_PAUSE_MS = 50;

export function askForMessages<Message>(
  channel: AskedChannel<Message>,
  queue: string,
  options: AskOptions,
  { toDelivery, ackThrough, explain }: Asking<Message>,
) {
  let { prefetch } = options;
  let lastTag = 0;
  let ackedTag = 0;
  let open = true;
  let wake = (): void => undefined;
  const end = (reason: Error): void => {
    if (open) options.onEnd(reason);
    open = false;
    wake();
  };
  channel.on('error', end);
  channel.on('close', () => end(new Error(`the channel of ${queue} was closed`)));
  const ask = async (): Promise<boolean> => {
    const wanted = Math.max(0, Math.min(ASKED_AT_ONCE, prefetch - (lastTag - ackedTag)));
    const answers = await Promise.all(Array.from({ length: wanted }, () => channel.get(queue)));
    const found = answers.flatMap((message) => (message === false ? [] : [toDelivery(message)]));
    for (const delivery of found) {
      lastTag = delivery.deliveryTag;
      options.onDelivery(delivery);
    }
    return found.length > 0;
  };
  const run = async (): Promise<void> => {
    while (open) {
      if (await ask()) continue;
      await new Promise<void>((resolve) => {
        wake = resolve;
        setTimeout(resolve, EMPTY_PAUSE_MS).unref();
      });
    }
  };
  run().catch((error: unknown) => end(explain(error)));
  return {
    queue,
    ackThrough(deliveryTag: number): void {
      ackThrough(deliveryTag);
      ackedTag = deliveryTag;
      wake();
    },
    fence: async (): Promise<number> => (await channel.checkQueue(queue)).messageCount,
    async setPrefetch(wanted: number): Promise<void> {
      prefetch = wanted;
    },
  };
}
