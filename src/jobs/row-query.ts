/**
 * A prepared statement that answers with one row of texts, asked of pg's Client with less than the driver's own query
 * does: a statement whose answer is known is not asked to describe it. Of a caller's transaction of 600 us, 12 from one client and more
 * from ten (docs/understand/performance.md). pg takes any object with these methods as a query, as pg-cursor's.
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
 * Is it a client of pg as pg made it, whose connection has what is used here? Not before pg 8.2: its connection had a `writer`,
 * which wrote each message over the last, sent or not. Not one that sends queries before the last is answered: it takes its own
 * only. And not where anybody stands between, a tracer, a subclass, a proxy: of twelve tracers some waited for a promise, some
 * for their own callback, and each expects the queries that it has seen.
 */
export function takesRowQueries(tx: object): tx is RowClient {
  const { connection, pipeline, query } = tx as {
    readonly connection?: Partial<Connection> & { readonly writer?: unknown };
    readonly pipeline?: unknown;
    readonly query?: unknown;
  };
  return (
    pipeline !== true &&
    typeof connection?.parsedStatements === 'object' &&
    connection.writer === undefined &&
    typeof connection.parse === 'function' &&
    typeof connection.bind === 'function' &&
    typeof connection.execute === 'function' &&
    typeof connection.sync === 'function' &&
    typeof connection.stream?.cork === 'function' &&
    typeof query === 'function' &&
    isDrivers(query) &&
    isOfItsClass(tx, query)
  );
}

/** `query(config, values, callback)`, in all of pg 8. Whoever puts another in its place takes any number of arguments, or gives it no name. */
const isDrivers = ({ name, length }: { readonly name: string; readonly length: number }): boolean =>
  name === 'query' && length === 3;

/** Has one prototype this way to ask, and nobody before or behind it another? */
function isOfItsClass(client: object, query: unknown): boolean {
  let owner: object | null = client;
  while (owner !== null && !Object.hasOwn(owner, 'query')) owner = Object.getPrototypeOf(owner);
  if (owner === null || owner === client || (owner as { readonly query: unknown }).query !== query)
    return false;
  return !('query' in (Object.getPrototypeOf(owner) ?? {}));
}

/** A row by places, or by names from who does not know of places; its user may have said how types are read. */
export const asTexts = (row: object): Texts =>
  Object.values(row).map((value) => (value === null ? null : String(value)));

export class RowQuery {
  /** Called once, by whoever has it last: pg puts its own around it for a query_timeout. */
  callback: (error?: unknown) => void;
  readonly #row: Promise<Texts | null>;
  #first: Texts | null = null;

  constructor(
    readonly name: string,
    readonly text: string,
    readonly values: readonly (string | null)[],
  ) {
    let callback!: RowQuery['callback'];
    this.#row = new Promise((resolve, reject) => {
      callback = (error) => {
        if (error === null || error === undefined) resolve(this.#first);
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
    this.#first ??= fields;
  }

  handleError(error: unknown): void {
    this.callback(error);
  }

  handleReadyForQuery(): void {
    this.callback(null);
  }

  handleRowDescription(): void {}
  handleCommandComplete(): void {}
  handleEmptyQuery(): void {}
  handlePortalSuspended(): void {}
  handleCopyInResponse(): void {}
  handleCopyData(): void {}
}
