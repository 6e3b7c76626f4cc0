/**
 * How values of a package are born, as data: which type, call, property or callback gives which role. A role is a
 * word of ours (`channel`, `pool`, `trx`) for what can be done with the value.
 */

/**
 * A value is named by a path: `module`, then property names joined by dots; a call or a `new` on a path gives the
 * role that the table names. Types give the role directly.
 */
export interface PackageTable {
  readonly types: Readonly<Record<string, string>>;
  readonly calls: Readonly<Record<string, string>>;
  readonly news: Readonly<Record<string, string>>;
  /** Properties that are values of a role of their own: `source.manager` is a manager. */
  readonly members?: Readonly<Record<string, string>>;
  /** Properties that are values of another package's. */
  readonly foreign?: Readonly<Record<string, { readonly pkg: string; readonly what: string }>>;
  /** What a part of a value is: `Pick<Pool, 'query'>` takes a client as well, and then whoever hands it over commits. It proves no transaction. */
  readonly parts?: Readonly<Record<string, string>>;
  /** Calls that run a callback in a transaction, to the role of the callback's first parameter. */
  readonly callbacks?: Readonly<Record<string, string>>;
  /** Calls that open a transaction which later calls end: on what they give, or on what they are called on. */
  readonly begins?: Readonly<Record<string, 'result' | 'receiver'>>;
  readonly ends?: Readonly<Record<string, 'commit' | 'rollback'>>;
}

export const NO_TABLE: PackageTable = { types: {}, calls: {}, news: {} };
