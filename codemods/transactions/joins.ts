/**
 * How a statement that names its root joins a transaction by being told of it: `Order.query(trx)` of Objection,
 * `{ transaction }` of Sequelize. Edits for a call, or undefined where the call leaves no place for one.
 */

import { ts } from 'ts-morph';
import type { TextEdit } from '../edits.js';
import { bare } from '../syntax.js';

/** `Order.query().insert(…)` → `Order.query(trx).insert(…)`. A query that is handed something already is not touched. */
export function joinQuery(call: ts.Node, handle: string): TextEdit[] | undefined {
  for (let n: ts.Node = call; ts.isCallExpression(n) || ts.isPropertyAccessExpression(n); n = n.expression) {
    if (!ts.isCallExpression(n) || !ts.isPropertyAccessExpression(n.expression)) continue;
    if (n.expression.name.text !== 'query' || !ts.isIdentifier(bare(n.expression.expression))) continue;
    return n.arguments.length > 0 ? undefined : [{ start: n.end - 1, end: n.end - 1, text: handle }];
  }
  return undefined;
}

/** Where each method of a model, an instance or the connection takes its options. */
const OPTIONS: ReadonlyMap<string, number> = new Map(
  Object.entries({
    ...{ create: 1, bulkCreate: 1, update: 1, upsert: 1, increment: 1, decrement: 1, query: 1, findByPk: 1 },
    ...{ destroy: 0, truncate: 0, restore: 0, save: 0, reload: 0, findOrCreate: 0, findCreateFind: 0 },
    ...{ findOne: 0, findAll: 0, findAndCountAll: 0, count: 0 },
  }),
);

/** `Order.create({ total })` → `Order.create({ total }, { transaction })`. */
export function joinOptions(call: ts.Node, handle: string): TextEdit[] | undefined {
  if (!ts.isCallExpression(call) || call.arguments.some(ts.isSpreadElement)) return undefined;
  const target = bare(call.expression);
  const at = ts.isPropertyAccessExpression(target) ? OPTIONS.get(target.name.text) : undefined;
  if (at === undefined || call.arguments.length < at) return undefined;
  const entry = handle === 'transaction' ? handle : `transaction: ${handle}`;
  const options = call.arguments[at];
  if (options === undefined) {
    const last = call.arguments.at(-1);
    const end = last?.end ?? call.end - 1;
    return [{ start: end, end, text: `${last === undefined ? '' : ', '}{ ${entry} }` }];
  }
  const literal = bare(options);
  if (!ts.isObjectLiteralExpression(literal)) return undefined;
  // Whoever names a transaction, or hands on options that may, has one.
  if (literal.properties.some((p) => ts.isSpreadAssignment(p) || p.name?.getText() === 'transaction'))
    return undefined;
  const last = literal.properties.at(-1);
  if (last === undefined)
    return [{ start: literal.getStart() + 1, end: literal.getStart() + 1, text: ` ${entry} ` }];
  return [{ start: last.end, end: last.end, text: `, ${entry}` }];
}
