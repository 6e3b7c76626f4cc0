/** The name of the kind that publishes a message; apart from its handler so that a drain need not load a publisher. */

/**
 * Payload: `{exchange, routingKey, body | text | base64, properties?, headers?}`; or `{exchange, routingKey?, key?, data, …}`:
 * the envelope of a fired schedule is published, by default under its key; of a drained row: the message's own bytes.
 */
export const RELAY_AMQP = 'relay.amqp';
