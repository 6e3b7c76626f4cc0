/**
 * What every client and ORM says of itself: how its values are born, which of its calls write, open and end a
 * transaction, and how a new transaction is written. Each of them is one file of such data; who recognises and edits
 * is callback.ts, manual.ts and autocommit.ts.
 */

import type { ts } from 'ts-morph';
import type { TextEdit } from '../edits.js';
import type { PackageTable } from '../package-table.js';

/** `sql`: the text that is passed decides. */
export type Writing = 'write' | 'sql' | 'none';

/** How autocommitted writes and their publish get a transaction, written with the library's own callback. */
export interface WrapShape {
  /** Roles that a write may be rooted in. */
  readonly roots: ReadonlySet<string>;
  /** Names for the handle inside, by preference. */
  readonly names: readonly string[];
  /** Calls that are handed the root: ``sql`…`.execute(db)``, by role and method, to the number of the argument. */
  readonly handed?: Readonly<Record<string, number>>;
  /** `db` → `db.transaction(async (tx) => {`; what closes it is `});`. */
  readonly open: (root: string, what: string, handle: string, isTyped: boolean) => string;
  /** Where statements keep their root and are told of the transaction; undefined: this one cannot be. */
  readonly join?: (call: ts.Node, handle: string) => readonly TextEdit[] | undefined;
  /** What the adapter is handed; default the handle. */
  readonly adapted?: (root: string, what: string, handle: string, isTyped: boolean) => string;
  /** Members of a root that a transaction has as well, by role; others are about the connection. Default: all. */
  readonly members?: Readonly<Record<string, RegExp>>;
  /** A transaction has none of its own inside: to begin one there is an error. */
  readonly flat?: true;
  /** What a root is called inside: most are the handle itself. */
  readonly inside?: (root: string, what: string, handle: string) => string;
}

/** Where the root itself begins and ends the transaction: `await em.begin()`, `commit()`, `rollback()`, and its statements stay as they are. */
export interface BracketShape {
  readonly roots: ReadonlySet<string>;
}

export interface Idiom {
  readonly name: string;
  readonly summary: string;
  /** Every package whose values it speaks of; the first is its own name. */
  readonly packages: readonly string[];
  /** The function of `unbroker/transactions` that makes its handle something to enqueue on. */
  readonly adapter: string;
  readonly table: PackageTable;
  readonly writes: (what: string, method: string) => Writing;
  /** Only ever speaks to Postgres. */
  readonly postgresOnly: boolean;
  /** Its statements run when `.execute()` is called on them: so do its commit and rollback. */
  readonly executed?: boolean;
  /** The transaction has to be named in each statement's arguments, and the adapter wants it as its second. */
  readonly transactionAsOption?: boolean;
  readonly wrap?: WrapShape;
  readonly bracket?: BracketShape;
}
