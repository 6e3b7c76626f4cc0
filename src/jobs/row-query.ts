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

/** What pg's own query answers with, as far as a tracer reads it. */
interface RowResult {
  /** As `INSERT`. */
  readonly command: string;
  readonly rowCount: number;
  readonly oid: null;
  readonly fields: readonly never[];
  /** The first at most. */
  readonly rows: readonly Texts[];
}

/** Ways to ask that answered with something of their own: they were not made for a query of ours, and get none again. */
const strange = new WeakSet<object>();

/**
 * Is it a client of pg whose connection has what is used here? Not before pg 8.2: its connection had a `writer`, which wrote each
 * message over the last, sent or not. Not one that sends queries before the last is answered: it takes its own only. And not one whose way to ask was replaced for it alone, by a subclass, a proxy or a wrapper: those expect what
 * they have seen; tracers, which replace it for all clients, know of queries like these.
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
    !strange.has(query) &&
    isOfItsClass(tx, query)
  );
}

/** Has one prototype this way to ask, and nobody before or behind it another? */
function isOfItsClass(client: object, query: unknown): boolean {
  let owner: object | null = client;
  while (owner !== null && !Object.hasOwn(owner, 'query')) owner = Object.getPrototypeOf(owner);
  if (owner === null || owner === client || (owner as { readonly query: unknown }).query !== query)
    return false;
  return !('query' in (Object.getPrototypeOf(owner) ?? {}));
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as { readonly then?: unknown } | null | undefined)?.then === 'function';
}

/** A row by places, or by names from who does not know of places; its user may have said how types are read. */
export const asTexts = (row: object): Texts =>
  Object.values(row).map((value) => (value === null ? null : String(value)));

/** No private names: a tracer may put a proxy or a copy in its place. */
export class RowQuery implements PromiseLike<RowResult> {
  /** Called once, by whoever has it last: pg and tracers put their own around it. */
  callback: (error: unknown, result?: RowResult) => void;
  /** Of a copy, which pg makes a query of its own of. */
  readonly rowMode = 'array';
  private readonly row: Promise<Texts | null>;
  private first: Texts | null = null;
  private count = 0;
  private tag = '';

  constructor(
    readonly name: string,
    readonly text: string,
    readonly values: readonly (string | null)[],
  ) {
    let callback!: RowQuery['callback'];
    this.row = new Promise((resolve, reject) => {
      callback = (error, result) => {
        if (error === null || error === undefined) resolve(this.rowOf(result));
        else reject(error);
      };
    });
    this.callback = callback;
  }

  /** The first row; null where there is none. Rejects with pg's error, or with that of whoever is between. */
  askOf(client: RowClient): Promise<Texts | null> {
    let asked: unknown;
    try {
      asked = client.query(this);
    } catch (error) {
      strange.add(client.query);
      this.row.catch(() => {});
      throw error;
    }
    if (asked === this) return this.row;
    strange.add(client.query);
    if (!isThenable(asked)) return this.row;
    // Its own end may never come, where it waits to be called back in its own way; ours may not, where it never asked.
    const between = Promise.resolve(asked).then((result) =>
      Array.isArray((result as Partial<RowResult> | null | undefined)?.rows)
        ? this.rowOf(result as RowResult)
        : this.row,
    );
    return Promise.race([this.row, between]);
  }

  private rowOf(result: RowResult | undefined): Texts | null {
    const row = result?.rows[0];
    return this.first ?? (row === undefined ? null : asTexts(row));
  }

  // As the promise that pg's own query gives: for who waits for the end in that way.
  // biome-ignore lint/suspicious/noThenProperty: it is one.
  then<A = RowResult, B = never>(
    resolved?: ((result: RowResult) => A | PromiseLike<A>) | null,
    rejected?: ((error: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    return this.row.then(() => this.result()).then(resolved, rejected);
  }
  catch<B = never>(rejected?: ((error: unknown) => B | PromiseLike<B>) | null): Promise<RowResult | B> {
    return this.then(undefined, rejected);
  }
  finally(done?: (() => void) | null): Promise<RowResult> {
    return this.then().finally(done);
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
    this.first ??= fields;
    this.count += 1;
  }

  handleCommandComplete({ text }: { readonly text: string }): void {
    this.tag = text;
  }

  handleError(error: unknown): void {
    this.callback(error);
  }

  handleReadyForQuery(): void {
    this.callback(null, this.result());
  }

  private result(): RowResult {
    return {
      command: this.tag.slice(0, this.tag.indexOf(' ')),
      rowCount: this.count,
      oid: null,
      fields: [],
      rows: this.first === null ? [] : [this.first],
    };
  }

  handleRowDescription(): void {}
  handleEmptyQuery(): void {}
  handlePortalSuspended(): void {}
  handleCopyInResponse(): void {}
  handleCopyData(): void {}
}
