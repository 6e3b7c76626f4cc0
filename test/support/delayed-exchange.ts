/**
 * A private broker with a delayed-message exchange: the plugin itself when UNBROKER_TEST_RABBITMQ_PLUGINS names a folder
 * with it, else tables of the same form, filled by the broker's shell, beside a process that answers to the plugin's name.
 * The stand-in delivers nothing when it is due; everything else of it is real Mnesia on a real node.
 */
import { existsSync, readdirSync } from 'node:fs';
import amqp from 'amqplib';
import type { RabbitServer } from './rabbitmq-server.js';
import { startRabbit } from './services.js';

export interface DelayedMessage {
  readonly key: string;
  readonly delayMs: number;
  readonly body: string;
  readonly messageId?: string;
}

export interface DelayedBroker {
  readonly rabbit: RabbitServer;
  /** False: the stand-in. */
  readonly plugin: boolean;
  /** To exchange `later` of a virtual host, which is direct below its delay, and durable. */
  delay(url: string, messages: readonly DelayedMessage[]): Promise<void>;
  /** Declares `later` and these queues, bound by these keys. */
  declare(url: string, bindings: readonly (readonly [queue: string, key: string])[]): Promise<void>;
  /** Entries in the table: timed ones, and those that are held. */
  count(): Promise<{ timed: number; held: number }>;
  /** After a restart: what of it does not come back by itself. */
  revive(): Promise<void>;
}

const NAME = 'rabbitmq_delayed_message_exchange';
export const LATER = 'later';

export async function startDelayedBroker(): Promise<DelayedBroker> {
  const folder = process.env['UNBROKER_TEST_RABBITMQ_PLUGINS'];
  const there = folder !== undefined && existsSync(folder);
  const plugin = there && readdirSync(folder).some((file) => file.startsWith(NAME));
  const rabbit = await startRabbit({
    ...{ controllable: true, way: 'local' },
    ...(plugin ? { pluginsFolder: folder, plugins: [NAME] } : {}),
  });
  const revive = async (): Promise<void> => void (plugin || (await rabbit.ctl(['eval', STAND_IN])));
  await revive();
  return {
    ...{ rabbit, plugin, revive },
    async declare(url, bindings) {
      await withChannel(url, async (channel) => {
        const type = plugin ? 'x-delayed-message' : 'direct';
        await channel.assertExchange(LATER, type, {
          durable: true,
          ...(plugin ? { arguments: { 'x-delayed-type': 'direct' } } : {}),
        });
        for (const [queue, key] of bindings) {
          await channel.assertQueue(queue, { durable: true });
          await channel.bindQueue(queue, LATER, key);
        }
      });
    },
    async delay(url, messages) {
      if (!plugin) {
        await rabbit.ctl(['eval', entriesOf(decodeURIComponent(new URL(url).pathname.slice(1)), messages)]);
        return;
      }
      await withChannel(url, async (channel) => {
        for (const { key, delayMs, body, messageId } of messages) {
          channel.publish(LATER, key, Buffer.from(body), {
            persistent: true,
            headers: { 'x-delay': delayMs },
            ...(messageId === undefined ? {} : { messageId }),
          });
        }
        await channel.waitForConfirms();
      });
    },
    async count() {
      const [timed = 0, held = 0] = (await rabbit.ctl(['eval', COUNT])).match(/\d+/g)?.map(Number) ?? [];
      return { timed, held };
    },
  };
}

async function withChannel(
  url: string,
  work: (channel: amqp.ConfirmChannel) => Promise<void>,
): Promise<void> {
  const connection = await amqp.connect(url, { noDelay: true });
  connection.on('error', () => {});
  const channel = await connection.createConfirmChannel();
  channel.on('error', () => {});
  try {
    await work(channel);
  } finally {
    await connection.close();
  }
}

const TABLES =
  'Table = list_to_atom("rabbit_delayed_message" ++ atom_to_list(node())), ' +
  'Index = list_to_atom(atom_to_list(Table) ++ "_index"), ';

const COUNT = `${TABLES}
  Timed = ets:select_count(Table, [{{delay_entry, {delay_key, '$1', '_'}, '_', '_'}, [{is_integer, '$1'}], [true]}]),
  {Timed, ets:info(Table, size) - Timed}.`;

/** The tables as the plugin makes them, and a process that does what it is told as an OTP server would. */
const STAND_IN = `${TABLES}
  mnesia:create_table(Table, [{record_name, delay_entry}, {attributes, [delay_key, delivery, ref]}, {type, bag},
    {disc_copies, [node()]}]),
  mnesia:create_table(Index, [{record_name, delay_index}, {attributes, [delay_key, const]}, {type, ordered_set},
    {disc_copies, [node()]}]),
  ok = mnesia:wait_for_tables([Table, Index], 10000),
  Self = self(),
  spawn(fun() -> register(rabbit_delayed_message, self()), Self ! ready, (fun Loop() -> receive
    {system, From, {replace_state, Change}} -> gen:reply(From, {ok, Change(state)}), Loop();
    _ -> Loop() end end)() end),
  receive ready -> ok end.`;

function entriesOf(vhost: string, messages: readonly DelayedMessage[]): string {
  const list = messages.map(
    ({ key, delayMs, body, messageId = '' }) =>
      `{<<"${key}">>, ${delayMs}, base64:decode(<<"${Buffer.from(body).toString('base64')}">>), <<"${messageId}">>}`,
  );
  return `${TABLES} Name = {resource, <<"${vhost}">>, exchange, <<"${LATER}">>}, {ok, Exchange} = rabbit_exchange:lookup(Name),
    [begin
      Properties = [{delivery_mode, 2}, {headers, [{<<"x-delay">>, signedint, Delay}]}]
        ++ case Id of <<>> -> []; _ -> [{message_id, Id}] end,
      Message = rabbit_basic:message(Name, RoutingKey, Properties, Body),
      Key = {delay_key, erlang:system_time(milli_seconds) + Delay, Exchange},
      mnesia:dirty_write(Index, {delay_index, Key, true}),
      mnesia:dirty_write(Table, {delay_entry, Key, rabbit_basic:delivery(false, false, Message, undefined), make_ref()})
    end || {RoutingKey, Delay, Body, Id} <- [${list.join(',')}]], mnesia:sync_log().`;
}
