// Only what the fixtures call, in the shapes of the library's own declarations.
export interface PublicationConfig {
  routingKey?: string;
  options?: { priority?: number; messageId?: string; expiration?: string };
}
export interface PublicationSession {
  on(event: 'success' | 'error' | 'return', listener: (error: Error) => void): this;
}
export declare class BrokerAsPromised {
  static create(config: object): Promise<BrokerAsPromised>;
  publish(
    name: string,
    message: unknown,
    overrides?: PublicationConfig | string,
  ): Promise<PublicationSession>;
}
