/**
 * Sequelize 6: the instance and the transaction, managed or not. The transaction must be named: without it Sequelize
 * takes another connection from its pool, and the job would outlive a rollback.
 */
import type { Queryable } from '../../src/jobs/job.js';
import { plainParameters } from './parameters.js';

/** The part of Sequelize that is used; any version that has it will do. */
export interface SequelizeHandle {
  query(sql: string, options: SequelizeOptions): Promise<unknown>;
}

/** A transaction of Sequelize, told from options that hold one by its methods. */
export interface SequelizeTransaction {
  commit(): Promise<void>;
  rollback(): Promise<void>;
}

interface SequelizeOptions {
  readonly bind: unknown[];
  readonly transaction: never;
  readonly raw: true;
  readonly type: never;
  readonly supportsSearchPath: false;
}

/**
 * `null` says on purpose that there is no transaction: the job is then a transaction of its own. Throws TypeError when
 * it is left out. Values travel as `bind` ($1, sent beside the text), never as `replacements` (`?` and `:name`, written
 * into it).
 */
export function fromSequelize(
  sequelize: SequelizeHandle,
  transaction: SequelizeTransaction | null,
): Queryable {
  if (transaction === undefined) {
    throw new TypeError(
      'fromSequelize needs the transaction as its second argument; null when there is none',
    );
  }
  return {
    async query(text, values) {
      const options: SequelizeOptions = {
        bind: plainParameters(values),
        transaction: transaction as never,
        raw: true,
        type: 'RAW' as never,
        // `prependSearchPath` would put a second statement into the text, which parameters forbid.
        supportsSearchPath: false,
      };
      const [rows, result] = (await sequelize.query(text, options)) as [
        unknown[],
        { rowCount: number | null },
      ];
      return { rows, rowCount: result.rowCount };
    },
  };
}
