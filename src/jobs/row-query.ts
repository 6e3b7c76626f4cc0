/**
 * A prepared statement that answers with one row of texts, asked of pg's Client with less than the driver's own query
 * does: a statement whose answer is known is not asked to describe it. Of a caller's transaction of 600 us, 12 (docs/
 * understand/performance.md). pg takes any object with these methods as a query, as pg-cursor's; text, name, values and
 * callback are what its own query shows, which is what tracers of pg read and wrap.
 */

/** pg's connection, as far as it is used here. */
interface Connection {
  readonly stream: { cork(): void; uncork(): void };
  readonly parsedStatements: Record<string, string | undefined>;
  parse(statement: { readonly name: string; readonly text: string }): void;
  bind(portal: { readonly statement: string; readonly values: readonly (string | null)[] }): void;
  execute(portal: object): void;
  sync(): void;
}

/** Of pg's Client: it takes queries of its user's making. */
export interface RowClient {
  query(query: RowQuery): unknown;
}

/** Null for a column that is null. */
export type Texts = readonly (string | null)[];

/**
 * Is it a client of pg whose connection has what is used here? Not one that sends queries before the last is answered: it takes
 * its own only.
 */
export function takesRowQueries(tx: object): tx is RowClient {
  const { connection, pipeline } = tx as {
    readonly connection?: Partial<Connection>;
    readonly pipeline?: unknown;
  };
  return (
    pipeline !== true &&
    typeof connection?.parsedStatements === 'object' &&
    [connection.parse, connection.bind, connection.execute, connection.sync, connection.stream?.cork].every(
      (part) => typeof part === 'function',
    )
  );
}

export class RowQuery {
  /** Called once, by whoever has it last: pg and tracers put their own around it. */
  callback: (error: unknown, row?: unknown) => void;
  readonly #row: Promise<Texts | null>;
  #texts: Texts | null = null;

  constructor(
    readonly name: string,
    readonly text: string,
    readonly values: readonly (string | null)[],
  ) {
    let callback!: RowQuery['callback'];
    this.#row = new Promise((resolve, reject) => {
      callback = (error) => {
        if (error === null || error === undefined) resolve(this.#texts);
        else reject(error);
      };
    });
    this.callback = callback;
  }

  /** The first row; null where there is none. Rejects with pg's error. */
  askOf(client: RowClient): Promise<Texts | null> {
    client.query(this);
    return this.#row;
  }

  submit(connection: Connection): null {
    connection.stream.cork();
    try {
      if (connection.parsedStatements[this.name] === undefined)
        connection.parse({ name: this.name, text: this.text });
      connection.bind({ statement: this.name, values: this.values });
      connection.execute({});
      connection.sync();
    } finally {
      connection.stream.uncork();
    }
    return null;
  }

  handleDataRow({ fields }: { readonly fields: Texts }): void {
    this.#texts ??= fields;
  }

  handleError(error: unknown): void {
    this.callback(error);
  }

  handleReadyForQuery(): void {
    this.callback(null, { rows: [] });
  }

  handleRowDescription(): void {}
  handleCommandComplete(): void {}
  handleEmptyQuery(): void {}
  handlePortalSuspended(): void {}
  handleCopyInResponse(): void {}
  handleCopyData(): void {}
}
