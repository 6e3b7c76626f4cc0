// Only what the fixtures call, in the shapes of the library's own declarations.
export declare class AmqpConnection {
  publish(
    exchange: string,
    routingKey: string,
    // biome-ignore lint/suspicious/noExplicitAny: as the library declares it
    message: any,
    options?: { persistent?: boolean; priority?: number; messageId?: string; expiration?: string | number },
  ): Promise<boolean>;
  request<T>(options: { exchange: string; routingKey: string; payload: unknown }): Promise<T>;
}
