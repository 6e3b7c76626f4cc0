/** As much of Objection as the fixtures use. */
import type { Knex } from 'knex';

export type Transaction = Knex.Transaction;
export type TransactionOrKnex = Transaction | Knex;

export interface QueryBuilder<M, R> extends Promise<R> {
  insert(values: object): QueryBuilder<M, M>;
  insertAndFetch(values: object): QueryBuilder<M, M>;
  patch(values: object): QueryBuilder<M, number>;
  delete(): QueryBuilder<M, number>;
  deleteById(id: number): QueryBuilder<M, number>;
  findById(id: number): QueryBuilder<M, M | undefined>;
  where(values: object): QueryBuilder<M, R>;
  where(column: string, value: unknown): QueryBuilder<M, R>;
}

export class Model {
  $id(): unknown;
  $query(trx?: TransactionOrKnex): QueryBuilder<this, this>;
  static knex(): Knex;
  static query<M extends Model>(this: new () => M, trx?: TransactionOrKnex): QueryBuilder<M, M[]>;
  static transaction<T>(callback: (trx: Transaction) => Promise<T>): Promise<T>;
  static startTransaction(knex?: TransactionOrKnex): Promise<Transaction>;
}

export function transaction<T>(knex: Knex, callback: (trx: Transaction) => Promise<T>): Promise<T>;
export namespace transaction {
  function start(knex: Knex): Promise<Transaction>;
}
