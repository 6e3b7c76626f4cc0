/** Declares everything that the three services declare, without starting them: for tests that bring their own messages. */
import { Bus } from './common/bus.js';
import { declare as declareNotification } from './notification/consumer.js';
import { declare as declareRetry } from './retry/broker.js';
import { declare as declareScheduling } from './scheduling/timer.js';

export const LADDER_MS: readonly number[] = [1_000, 10_000, 60_000];

/** `schedule.wait.<ms>` queues are not among them: the service makes those as it needs them. */
export async function declareTopology(
  amqpUrl: string,
  ladderMs: readonly number[] = LADDER_MS,
): Promise<void> {
  const bus = await Bus.connect(amqpUrl, 'topology', 1);
  try {
    await declareNotification(bus);
    await declareScheduling(bus);
    await declareRetry(bus, ladderMs);
  } finally {
    await bus.close();
  }
}
