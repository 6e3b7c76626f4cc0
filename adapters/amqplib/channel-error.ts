/** What a channel says no with, worded as amqplib words what a server closes a channel over. Pure. */

/** As amqplib reports what a server closes a channel over. */
export class ChannelError extends Error {
  constructor(
    readonly code: number,
    operation: string,
    text: string,
  ) {
    super(`Operation failed: ${operation}; ${code} (${NAMES[code] ?? 'ERROR'}) with message "${text}"`);
    this.name = 'ChannelError';
  }
}

const NAMES: Readonly<Record<number, string>> = {
  403: 'ACCESS-REFUSED',
  404: 'NOT-FOUND',
  406: 'PRECONDITION-FAILED',
};

export class IllegalOperation extends Error {
  constructor() {
    super('Channel closed');
    this.name = 'IllegalOperationError';
  }
}

export const noExchange = (exchange: string, operation: string): ChannelError =>
  new ChannelError(404, operation, `NOT_FOUND - no exchange '${exchange}' in vhost '/'`);
