// Only what the fixtures call, in the shapes of the library's own declarations.
export interface PublishOptions {
  persistent?: boolean;
  priority?: number;
  messageId?: string;
  timeout?: number;
}
export declare class ChannelWrapper {
  publish(
    exchange: string,
    routingKey: string,
    content: Buffer | string | unknown,
    options?: PublishOptions,
  ): Promise<boolean>;
  sendToQueue(queue: string, content: Buffer | string | unknown, options?: PublishOptions): Promise<boolean>;
}
export interface AmqpConnectionManager {
  createChannel(options?: { json?: boolean; name?: string }): ChannelWrapper;
}
export declare function connect(urls: string[]): AmqpConnectionManager;
declare const amqp: { connect: typeof connect };
export default amqp;
