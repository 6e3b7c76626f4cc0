import createKnex from 'knex';
import { Model } from 'objection';

export const knex = createKnex({ client: 'pg', connection: process.env.DATABASE_URL ?? '' });
Model.knex(knex);

export class Order extends Model {
  static tableName = 'orders';
}
export class Line extends Model {
  static tableName = 'order_lines';
  static idColumn = ['order_id', 'sku'];
}

await knex.raw('select 1');
export const close = () => knex.destroy();
