/** How a statement is told of a transaction, and where it leaves no place for one. */
import { ts } from 'ts-morph';
import { describe, expect, test } from 'vitest';
import { applyEdits, type TextEdit } from '../../codemods/edits.js';
import { parse } from '../../codemods/program.js';
import { joinOptions, joinQuery } from '../../codemods/transactions/joins.js';

function joined(
  text: string,
  join: (call: ts.Node, handle: string) => readonly TextEdit[] | undefined,
  handle: string,
): string | undefined {
  const [statement] = parse('a.ts', text)?.statements ?? [];
  if (statement === undefined || !ts.isExpressionStatement(statement)) throw new Error('no expression');
  const edits = join(statement.expression, handle);
  return edits === undefined ? undefined : applyEdits(text, edits);
}

describe('Sequelize options', () => {
  test.each([
    ['Order.create(x)', 'Order.create(x, { transaction })'],
    ['order.save()', 'order.save({ transaction })'],
    ['order.save({})', 'order.save({ transaction })'],
    ['Order.update(x, { where: { id }, })', 'Order.update(x, { where: { id }, transaction, })'],
    ['Order.findByPk(1, { lock: true })', 'Order.findByPk(1, { lock: true, transaction })'],
    ["db.query('delete')", "db.query('delete', { transaction })"],
    ['Order.update()', undefined],
    ['Order.destroy(options)', undefined],
    ['Order.destroy({ ...options })', undefined],
    ['Order.destroy({ where, transaction: null })', undefined],
    ['Order.create(...all)', undefined],
    ['order.setItems(items)', undefined],
    ['create(x)', undefined],
  ])('%s', (text, expected) => {
    expect(joined(text, joinOptions, 'transaction')).toBe(expected);
  });

  test('under another name', () => {
    expect(joined('Order.create(x, { raw: true })', joinOptions, 't')).toBe(
      'Order.create(x, { raw: true, transaction: t })',
    );
  });
});

describe('Objection queries', () => {
  test.each([
    [
      "Order.query().patch({ a: query() }).where('id', 1)",
      "Order.query(trx).patch({ a: query() }).where('id', 1)",
    ],
    ['Order.query(knex).delete()', undefined],
    ['order.$query().delete()', undefined],
    ['Order.relatedQuery("x").delete()', undefined],
  ])('%s', (text, expected) => {
    expect(joined(text, joinQuery, 'trx')).toBe(expected);
  });
});
