/**
 * What the delivery handler asks of a provider. One file per provider, in adapters/providers.
 */
import type { Message } from './message.js';

export interface Provider {
  readonly name: string;
  /**
   * Delivers one message or throws DeliveryError with what the failure means. `idempotencyKey` is the same for every
   * try of a job. `signal` ends the wait, not necessarily the delivery.
   */
  deliver(
    message: Message,
    options: { readonly idempotencyKey: string; readonly signal: AbortSignal },
  ): Promise<{ readonly providerId: string }>;
}
