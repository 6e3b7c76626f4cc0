import { type ChannelModel, type ConfirmChannel, connect } from 'amqplib';

export class EventBus {
  private constructor(
    private readonly connection: ChannelModel,
    private readonly channel: ConfirmChannel,
  ) {}

  static async open(url: string): Promise<EventBus> {
    const connection = await connect(url);
    connection.on('error', () => {});
    const channel = await connection.createConfirmChannel();
    channel.on('error', () => {});
    await channel.assertExchange('stadium', 'topic', { durable: true });
    return new EventBus(connection, channel);
  }

  async emit(name: string, data: object): Promise<void> {
    this.channel.publish('stadium', name, Buffer.from(JSON.stringify(data)), { persistent: true });
    await this.channel.waitForConfirms();
  }

  async close(): Promise<void> {
    await this.connection.close();
  }
}
