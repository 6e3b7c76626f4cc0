/**
 * The topology in the database: exchanges, queues, bindings. Its statements stay here, beside the only code that runs
 * them. What one process asserts, the next publish of any other sees.
 */
import { createHash } from 'node:crypto';
import type { Queryable } from '../../src/jobs/job.js';
import { quoteSchema } from '../../src/jobs/schema-name.js';
import type { Binding, ExchangeType, Topology } from './topology.js';

export type Arguments = Readonly<Record<string, unknown>>;
export type Tables = ReturnType<typeof createTables>;

export function createTables(schema: string) {
  const s = quoteSchema(schema);
  const sql = {
    exchanges: `select name, type from ${s}.amqp_exchanges`,
    queues: `select name, arguments from ${s}.amqp_queues`,
    bindings: `
select source, destination, to_exchange as "toExchange", routing_key as "routingKey", arguments
from ${s}.amqp_bindings order by source, routing_key, destination`,
    putExchange: `insert into ${s}.amqp_exchanges (name, type) values ($1, $2) on conflict (name) do nothing`,
    putQueue: `
insert into ${s}.amqp_queues (name, arguments) values ($1, $2::jsonb) on conflict (name) do nothing`,
    findQueue: `select name, arguments from ${s}.amqp_queues where name = $1`,
    bind: `
insert into ${s}.amqp_bindings (source, destination, to_exchange, routing_key, arguments, arguments_hash)
values ($1, $2, $3, $4, $5::jsonb, $6) on conflict do nothing`,
    unbind: `
delete from ${s}.amqp_bindings
where source = $1 and destination = $2 and to_exchange = $3 and routing_key = $4 and arguments_hash = $5`,
    deleteExchange: `
with gone as (delete from ${s}.amqp_bindings where source = $1 or (destination = $1 and to_exchange))
delete from ${s}.amqp_exchanges where name = $1`,
    deleteQueue: `
with gone as (delete from ${s}.amqp_bindings where destination = $1 and not to_exchange)
delete from ${s}.amqp_queues where name = $1`,
  } as const;
  const hashOf = (value: Arguments): string =>
    createHash('sha256').update(argumentsText(value)).digest('hex');

  return {
    async read(db: Queryable): Promise<Topology> {
      const exchanges = (await db.query(sql.exchanges)).rows as { name: string; type: ExchangeType }[];
      const queues = (await db.query(sql.queues)).rows as { name: string; arguments: Arguments }[];
      const bindings = (await db.query(sql.bindings)).rows as Binding[];
      return {
        exchanges: new Map(exchanges.map(({ name, type }) => [name, type])),
        queues: new Map(queues.map(({ name, arguments: given }) => [name, given])),
        bindings,
      };
    },
    async putExchange(db: Queryable, name: string, type: ExchangeType): Promise<void> {
      await db.query(sql.putExchange, [name, type]);
    },
    async putQueue(db: Queryable, name: string, given: Arguments): Promise<void> {
      await db.query(sql.putQueue, [name, argumentsText(given)]);
    },
    /** Its arguments; null when there is none. */
    async findQueue(db: Queryable, name: string): Promise<Arguments | null> {
      const [row] = (await db.query(sql.findQueue, [name])).rows as { arguments: Arguments }[];
      return row?.arguments ?? null;
    },
    async bind(db: Queryable, { source, destination, toExchange, routingKey, arguments: given }: Binding) {
      const values = [source, destination, toExchange, routingKey, argumentsText(given), hashOf(given)];
      await db.query(sql.bind, values);
    },
    async unbind(db: Queryable, { source, destination, toExchange, routingKey, arguments: given }: Binding) {
      await db.query(sql.unbind, [source, destination, toExchange, routingKey, hashOf(given)]);
    },
    async deleteExchange(db: Queryable, name: string): Promise<void> {
      await db.query(sql.deleteExchange, [name]);
    },
    async deleteQueue(db: Queryable, name: string): Promise<void> {
      await db.query(sql.deleteQueue, [name]);
    },
  };
}

/** The same arguments in the same text, whatever their order. */
export function argumentsText(value: Arguments): string {
  const entries = Object.entries(value).filter(([, one]) => one !== undefined);
  return JSON.stringify(Object.fromEntries(entries.sort(([a], [b]) => (a < b ? -1 : 1))));
}
