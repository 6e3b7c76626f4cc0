/**
 * COPY ... from stdin over the driver's connection. It is handed to the driver as a query of its own kind, so that it
 * waits for its turn like any other; the bytes go to the socket as they are, without a copy. It knows no table.
 */
import type { Queryable } from './job.js';

/** What the driver gives to a query of somebody else's making. */
interface Connection {
  query(text: string): void;
  readonly stream: {
    cork(): void;
    uncork(): void;
    write(bytes: Buffer): boolean;
  };
}

const COPY_DATA = 0x64;
const COPY_DONE = Buffer.from('6300000004', 'hex');

class CopyIn {
  constructor(
    private readonly text: string,
    private readonly parts: readonly Buffer[],
    /** Under this name because the driver wraps it where a query has a time limit. */
    readonly callback: (error: Error | null) => void,
  ) {}

  submit(connection: Connection): void {
    connection.query(this.text);
  }

  handleCopyInResponse({ stream }: Connection): void {
    const head = Buffer.alloc(5);
    head[0] = COPY_DATA;
    head.writeUInt32BE(4 + this.parts.reduce((sum, part) => sum + part.length, 0), 1);
    stream.cork();
    stream.write(head);
    for (const part of this.parts) stream.write(part);
    stream.write(COPY_DONE);
    stream.uncork();
  }

  handleCommandComplete(): void {}

  handleError(error: Error): void {
    this.callback(error);
  }

  handleReadyForQuery(): void {
    this.callback(null);
  }
}

/** Sends `parts` as one COPY. `client` is one connection of the driver, not a pool. Rejects with the server's error. */
export async function copyIn(client: Queryable, text: string, parts: readonly Buffer[]): Promise<void> {
  // The server takes a gigabyte at a time; a batch is a hundredth of that.
  const query = client.query.bind(client) as unknown as (submittable: CopyIn) => void;
  await new Promise<void>((resolve, reject) => {
    query(new CopyIn(text, parts, (error) => (error === null ? resolve() : reject(error))));
  });
}
