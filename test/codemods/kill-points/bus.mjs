/** @typedef {import('amqplib').ConfirmChannel} ConfirmChannel */

export class Bus {
  /** @param {ConfirmChannel} channel */
  constructor(channel) {
    this.channel = channel;
  }

  /**
   * @param {string} routingKey
   * @param {object} payload
   * @returns {Promise<void>}
   */
  publish(routingKey, payload) {
    return new Promise((resolve, reject) => {
      this.channel.publish('shop', routingKey, Buffer.from(JSON.stringify(payload)), {}, (error) =>
        error ? reject(error) : resolve(),
      );
    });
  }
}
