const amqp = require('amqplib');

const EXCHANGE = 'library';
let connection;
let channel;

async function connect() {
  connection = await amqp.connect(process.env.AMQP_URL);
  connection.on('error', () => {});
  channel = await connection.createConfirmChannel();
  channel.on('error', () => {});
  await channel.assertExchange(EXCHANGE, 'topic', { durable: true });
}

/** Resolves when the broker has it. */
async function publishEvent(type, data) {
  channel.publish(EXCHANGE, type, Buffer.from(JSON.stringify(data)), { persistent: true });
  await channel.waitForConfirms();
}

async function close() {
  await channel.waitForConfirms();
  await connection.close();
}

module.exports = { connect, publishEvent, close };
