/** The service starter's RabbitMQ half: isolation of fresh virtual hosts. */
import amqp from 'amqplib';
import { afterAll, expect, test } from 'vitest';
import { freshVhost } from '../support/services.js';

const first = await freshVhost();
const second = await freshVhost();
afterAll(() => Promise.all([first.close(), second.close()]));

test('two fresh virtual hosts do not see each other', async () => {
  const a = await amqp.connect(first.url);
  const b = await amqp.connect(second.url);
  await (await a.createChannel()).assertQueue('orders');
  const channel = await b.createChannel();
  channel.on('error', () => {});
  await expect(channel.checkQueue('orders')).rejects.toThrow(/NOT_FOUND/);
  await Promise.all([a.close(), b.close()]);
});
