/**
 * What stands in the place of a connection and is none that a statement may be sent on: nothing with a `query`, or the handle of a
 * library whose `query` takes or answers something else, so that the row went in and then reading its id failed. Pure.
 */

/** Methods that only this library's handles have, all of them, and what is given instead. */
const OTHERS: readonly { readonly methods: readonly string[]; readonly is: string; readonly give: string }[] =
  [
    // A DataSource, an EntityManager, a repository; a QueryRunner.
    { methods: ['createQueryBuilder', 'query'], is: 'TypeORM', give: 'fromTypeorm(manager)' },
    { methods: ['startTransaction', 'clearSqlMemory'], is: 'TypeORM', give: 'fromTypeorm(queryRunner)' },
    { methods: ['oneOrNone', 'manyOrNone', 'result'], is: 'pg-promise', give: 'fromPgPromise(t)' },
    {
      methods: ['getQueryInterface'],
      is: 'Sequelize',
      give: 'fromSequelize(sequelize, transaction)',
    },
  ];

/** The next step for all of them. */
export const WRAP = 'wrap it with unbroker/transactions (docs/do/transactions.md)';

const has = (tx: unknown, name: string): boolean =>
  typeof (tx as Readonly<Record<string, unknown>> | null | undefined)?.[name] === 'function';

/** What is wrong with it and the next step; undefined of any other. */
export function foreignHandle(tx: unknown): string | undefined {
  const other = OTHERS.find(({ methods }) => methods.every((name) => has(tx, name)));
  return other && `a handle of ${other.is}, whose query is not that of pg: ${WRAP}, as ${other.give}`;
}

/** The first mistake of who uses another library: its own handle, or the arguments without one. Throws TypeError. */
export function checkHandle(tx: unknown): void {
  if (!has(tx, 'query'))
    throw new TypeError(
      'the first argument must be a Client, PoolClient or Pool of pg; wrap the transaction of another library, as fromKnex(trx) of unbroker/transactions does (docs/do/transactions.md)',
    );
  const foreign = foreignHandle(tx);
  if (foreign !== undefined) throw new TypeError(`the first argument is ${foreign}`);
}
