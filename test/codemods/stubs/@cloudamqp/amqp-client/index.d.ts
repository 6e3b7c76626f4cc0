// Only what the fixtures call, in the shapes of the library's own declarations.
export interface AMQPProperties {
  priority?: number;
  messageId?: string;
  deliveryMode?: number;
  expiration?: string;
}
export declare class AMQPQueue {
  publish(body: string | Uint8Array | null, properties?: AMQPProperties): Promise<AMQPQueue>;
}
export declare class AMQPChannel {
  queue(name: string): Promise<AMQPQueue>;
  basicPublish(
    exchange: string,
    routingKey: string,
    data: string | Uint8Array | null,
    properties?: AMQPProperties,
    mandatory?: boolean,
  ): Promise<number>;
}
export declare class AMQPBaseClient {
  channel(id?: number): Promise<AMQPChannel>;
}
export declare class AMQPClient extends AMQPBaseClient {
  constructor(url: string);
  connect(): Promise<AMQPBaseClient>;
}
