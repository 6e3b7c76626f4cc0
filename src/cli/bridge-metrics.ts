/** What a bridge says as metrics: counts since it was started, read when somebody scrapes. */
import type { BridgeProgress } from '../../adapters/rabbitmq/bridge.js';
import { Registry } from '../metrics.js';

export interface BridgeMetrics {
  last: BridgeProgress;
  text(): Promise<string>;
}

export function createBridgeMetrics(): BridgeMetrics {
  const registry = new Registry();
  const none = { messages: 0, again: 0, repeats: 0, otherContents: 0, possibleDoubles: 0 };
  const metrics: BridgeMetrics = {
    last: { ...none, connected: false, connections: 0 },
    text: async () => registry.text(),
  };
  const gauge = (name: string, help: string, read: (now: BridgeProgress) => number): void =>
    registry.gauge(name, help, () => [{ labels: {}, value: read(metrics.last) }]);
  gauge('unbroker_bridge_messages', 'Late messages taken by this process', (now) => now.messages);
  gauge('unbroker_bridge_again', 'Messages that came back and were recognised', (now) => now.again);
  gauge('unbroker_bridge_repeats', 'Messages whose id and contents had been taken', (now) => now.repeats);
  gauge('unbroker_bridge_possible_doubles', 'Rows that could be doubles', (now) => now.possibleDoubles);
  gauge('unbroker_bridge_connected', '1 while the bridge is connected', (now) => (now.connected ? 1 : 0));
  return metrics;
}
