/**
 * One small program, twice: on amqplib and a real RabbitMQ, and on unbroker/amqplib and a real Postgres. What it sees must
 * be the same.
 */
import type { EventEmitter } from 'node:events';
import amqplib from 'amqplib';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import * as inProcess from '../../adapters/amqplib/index.js';
import { route, type Topology, topicFits } from '../../adapters/amqplib/topology.js';
import {
  type FreshDatabase,
  type FreshVhost,
  freshMigratedDatabase,
  freshVhost,
} from '../support/services.js';
import { until } from '../support/until.js';

/** What both have; the real one's types say more than the program uses. */
type Connect = () => Promise<inProcess.Connection>;

let vhost: FreshVhost;
let database: FreshDatabase;

beforeAll(async () => {
  [vhost, database] = await Promise.all([freshVhost(), freshMigratedDatabase()]);
});
afterAll(async () => {
  await Promise.all([vhost?.close(), database?.close()]);
});

const ours: Connect = () => inProcess.connect({ pool: database.pool, pollMs: 10 });
const theirs: Connect = async () =>
  (await amqplib.connect(vhost.url, { timeout: 20_000 })) as unknown as inProcess.Connection;

const quiet = <T extends EventEmitter>(emitter: T): T => emitter.on('error', () => undefined);

async function open(connect: Connect) {
  const connection = quiet(await connect());
  const channel = quiet(await connection.createConfirmChannel());
  return { connection, channel };
}

const text = ({ content }: { content: Buffer }): string => content.toString('utf8');

/** Each part gets a fresh channel and answers what it saw. */
const PROGRAM: Readonly<Record<string, (connect: Connect) => Promise<unknown>>> = {
  async 'a message comes as it was sent'(connect) {
    const { connection, channel } = await open(connect);
    await channel.assertQueue('plain', { durable: true });
    const bytes = Buffer.from([0, 255, 10]);
    channel.sendToQueue('plain', bytes, {
      persistent: true,
      contentType: 'application/x',
      messageId: 'm-1',
      correlationId: 'c-1',
      replyTo: 'r',
      type: 't',
      appId: 'a',
      timestamp: 1_700_000_000,
      priority: 3,
      headers: {
        n: 1,
        s: 'é',
        b: true,
        list: [1, 'x'],
        table: { deep: { er: null } },
        raw: Buffer.from([1, 0]),
      },
    });
    await channel.waitForConfirms();
    const message = await until('it is there', () => channel.get('plain'));
    channel.ack(message);
    const { deliveryTag: _tag, ...fields } = message.fields;
    const after = await channel.get('plain', { noAck: true });
    await connection.close();
    return { content: [...message.content], fields, properties: message.properties, after };
  },

  async 'exchanges route as they do'(connect) {
    const { connection, channel } = await open(connect);
    const seen: Record<string, string[]> = {};
    for (const [type, exchange] of [
      ['direct', 'd'],
      ['fanout', 'f'],
      ['topic', 't'],
      ['headers', 'h'],
    ] as const)
      await channel.assertExchange(exchange, type, { durable: true });
    for (const queue of ['q1', 'q2', 'q3']) await channel.assertQueue(queue);
    await channel.bindQueue('q1', 'd', 'a');
    await channel.bindQueue('q2', 'd', 'a');
    await channel.bindQueue('q3', 'd', 'b');
    await channel.bindQueue('q1', 'f', '');
    await channel.bindQueue('q2', 't', '*.b.#');
    await channel.bindQueue('q2', 't', '#');
    await channel.bindQueue('q3', 't', 'a.*');
    await channel.bindQueue('q1', 'h', '', { 'x-match': 'all', k: 'v', n: 1 });
    await channel.bindQueue('q2', 'h', '', { 'x-match': 'any', k: 'v', n: 2 });
    await channel.bindExchange('f', 't', 'to.fanout');
    for (const [exchange, key, headers] of [
      ['d', 'a', {}],
      ['d', 'none', {}],
      ['f', 'whatever', {}],
      ['t', 'a.b', {}],
      ['t', 'x.b.c.d', {}],
      ['t', 'a', {}],
      ['t', 'to.fanout', {}],
      ['h', '', { k: 'v', n: 1 }],
      ['h', '', { n: 2 }],
      ['h', '', { n: 3 }],
      ['', 'q3', {}],
      ['', 'unknown', {}],
    ] as const) {
      channel.publish(exchange, key, Buffer.from(`${exchange}:${key}`), { headers });
    }
    await channel.waitForConfirms();
    for (const queue of ['q1', 'q2', 'q3']) {
      seen[queue] = [];
      for (let message = await channel.get(queue, { noAck: true }); message !== false; ) {
        seen[queue].push(text(message));
        message = await channel.get(queue, { noAck: true });
      }
    }
    await channel.unbindQueue('q3', 'd', 'b');
    channel.publish('d', 'b', Buffer.from('x'));
    await channel.waitForConfirms();
    const unbound = (await channel.checkQueue('q3')).messageCount;
    await connection.close();
    return { seen, unbound };
  },

  async 'prefetch bounds what is unacknowledged, and order holds'(connect) {
    const { connection, channel } = await open(connect);
    await channel.assertQueue('work');
    for (let n = 1; n <= 6; n += 1) channel.sendToQueue('work', Buffer.from(String(n)));
    await channel.waitForConfirms();
    await channel.prefetch(2);
    const got: inProcess.Message[] = [];
    const { consumerTag } = await channel.consume('work', (message) => void (message && got.push(message)));
    await until('two came', () => got.length === 2);
    const waiting = await until(
      'four wait',
      async () => (await channel.checkQueue('work')).messageCount === 4,
    );
    channel.ack(got[1] as inProcess.Message, true);
    await until('two more came', () => got.length === 4);
    for (const message of got.slice(2)) channel.ack(message);
    await until('all came', () => got.length === 6);
    for (const message of got.slice(4)) channel.ack(message);
    await channel.cancel(consumerTag);
    await until('none is left', async () => (await channel.checkQueue('work')).messageCount === 0);
    await connection.close();
    return { order: got.map(text), waiting };
  },

  async 'what is given back comes again, marked; what is rejected goes to the dead letter exchange'(connect) {
    const { connection, channel } = await open(connect);
    await channel.assertExchange('dlx', 'direct');
    await channel.assertQueue('dead');
    await channel.bindQueue('dead', 'dlx', 'gone');
    await channel.assertQueue('risky', {
      arguments: { 'x-dead-letter-exchange': 'dlx', 'x-dead-letter-routing-key': 'gone' },
    });
    channel.sendToQueue('risky', Buffer.from('x'), { messageId: 'm', headers: { mine: 1 } });
    await channel.waitForConfirms();
    const first = await until('it is there', () => channel.get('risky'));
    channel.nack(first);
    const second = await until('it is back', () => channel.get('risky'));
    channel.nack(second, false, false);
    const dead = await until('it is dead', () => channel.get('dead', { noAck: true }));
    const { 'x-death': deaths, ...headers } = dead.properties.headers;
    const [death] = deaths as Record<string, unknown>[];
    await connection.close();
    return {
      redelivered: [first.fields.redelivered, second.fields.redelivered, dead.fields.redelivered],
      fields: [dead.fields.exchange, dead.fields.routingKey],
      id: dead.properties['messageId'],
      mine: headers['mine'],
      firstDeath: [headers['x-first-death-queue'], headers['x-first-death-reason']],
      death: { ...death, time: (death as { time: unknown }).time !== undefined },
    };
  },

  async 'a wait queue lets go after its time'(connect) {
    const { connection, channel } = await open(connect);
    await channel.assertQueue('after');
    await channel.assertQueue('wait', {
      messageTtl: 400,
      deadLetterExchange: '',
      deadLetterRoutingKey: 'after',
    });
    // Before it is sent: a slow machine may look for it only when its time is up.
    const sentAt = performance.now();
    channel.sendToQueue('wait', Buffer.from('later'));
    const message = await until('it is let go', () => channel.get('after', { noAck: true }));
    const [death] = message.properties.headers['x-death'] as Record<string, unknown>[];
    await connection.close();
    return {
      waited: performance.now() - sentAt > 390,
      content: text(message),
      death: [death?.['queue'], death?.['reason'], Number(death?.['count'])],
    };
  },

  async 'a message whose time has passed is not handed out, asked for or consumed'(connect) {
    const { connection, channel } = await open(connect);
    await channel.assertQueue('expires');
    await channel.assertQueue('expired');
    await channel.assertExchange('late', 'fanout');
    await channel.bindQueue('expired', 'late', '');
    await channel.assertQueue('passing', { deadLetterExchange: 'late' });
    for (const queue of ['expires', 'passing']) {
      channel.sendToQueue(queue, Buffer.from('too late'), { expiration: '0' });
      channel.sendToQueue(queue, Buffer.from('in time'), { expiration: '3600000' });
    }
    await channel.waitForConfirms();
    const asked = await channel.get('expires', { noAck: true });
    const rest = await channel.get('expires', { noAck: true });
    const consumed: string[] = [];
    await channel.consume('passing', (message) => void (message && consumed.push(text(message))));
    const buried = text(await until('it is buried', () => channel.get('expired', { noAck: true })));
    await until('the other one came', () => consumed.length > 0);
    await connection.close();
    return { asked: asked && text(asked), rest, consumed, buried };
  },

  async 'what was not acknowledged is there after the connection'(connect) {
    const first = await open(connect);
    await first.channel.assertQueue('kept', { durable: true });
    first.channel.sendToQueue('kept', Buffer.from('x'), { persistent: true });
    await first.channel.waitForConfirms();
    await until('it came', () => first.channel.get('kept'));
    await first.connection.close();
    const { connection, channel } = await open(connect);
    const again = await until('it is back', () => channel.get('kept', { noAck: true }));
    await connection.close();
    return again.fields.redelivered;
  },

  async 'what a server closes a channel over closes it'(connect) {
    const { connection } = await open(connect);
    const codes: unknown[] = [];
    for (const wrong of [
      (channel: inProcess.Channel) => channel.checkQueue('nowhere'),
      (channel: inProcess.Channel) => channel.checkExchange('nowhere'),
      (channel: inProcess.Channel) => channel.bindQueue('nowhere', 'amq.topic', '#'),
      (channel: inProcess.Channel) => channel.consume('nowhere', () => undefined),
      async (channel: inProcess.Channel) => {
        await channel.assertQueue('args', { maxLength: 5 });
        await channel.assertQueue('args', { maxLength: 6 });
      },
      async (channel: inProcess.Channel) => {
        await channel.assertExchange('kind', 'topic');
        await channel.assertExchange('kind', 'direct');
      },
    ]) {
      const channel = quiet(await connection.createChannel());
      const closed = new Promise<void>((resolve) => channel.on('close', () => resolve()));
      const failed = await Promise.resolve(wrong(channel)).then(
        () => null,
        (error: { code?: number }) => error.code,
      );
      await closed;
      codes.push(failed);
    }
    const channel = await connection.createChannel();
    const told = new Promise<unknown>((resolve) =>
      channel.on('error', (error) => resolve((error as { code: number }).code)),
    );
    channel.publish('nowhere', 'a', Buffer.from('x'));
    codes.push(await told);
    await connection.close();
    return codes;
  },

  async 'mandatory without a route comes back; counts, purge and delete tell'(connect) {
    const { connection, channel } = await open(connect);
    const returned = new Promise<string>((resolve) =>
      channel.on('return', (message) => resolve(text(message as inProcess.Message))),
    );
    channel.sendToQueue('unrouted', Buffer.from('back'), { mandatory: true });
    const back = await returned;
    const named = await channel.assertQueue('count');
    for (let n = 0; n < 3; n += 1) channel.sendToQueue('count', Buffer.from('x'));
    await channel.waitForConfirms();
    const counted = await channel.checkQueue('count');
    const purged = await channel.purgeQueue('count');
    channel.sendToQueue('count', Buffer.from('x'));
    await channel.waitForConfirms();
    const deleted = await channel.deleteQueue('count');
    const drawn = (await channel.assertQueue('')).queue.startsWith('amq.gen-');
    await connection.close();
    return { back, named, counted, purged, deleted, drawn };
  },

  async 'a callback hears of its own publish; noAck needs none'(connect) {
    const { connection, channel } = await open(connect);
    await channel.assertQueue('calls');
    const heard = await new Promise<unknown>((resolve) =>
      channel.sendToQueue('calls', Buffer.from('1'), {}, (error) => resolve(error)),
    );
    const got: string[] = [];
    await channel.consume('calls', (message) => void (message && got.push(text(message))), { noAck: true });
    channel.sendToQueue('calls', Buffer.from('2'));
    await until('both came', () => got.length === 2);
    const { messageCount } = await channel.checkQueue('calls');
    await connection.close();
    return { heard, got, messageCount };
  },
};

describe('the same program on both', () => {
  it.each(Object.keys(PROGRAM))('%s', async (name) => {
    const part = PROGRAM[name] as (connect: Connect) => Promise<unknown>;
    const [real, mine] = [await part(theirs), await part(ours)];
    expect(mine).toEqual(real);
  });
});

describe('only here', () => {
  it.each([2, -2])(
    'a machine whose clock is off by %d hours: what expires and what waits go by the database’s',
    async (hours) => {
      const now = Date.now.bind(Date);
      vi.spyOn(Date, 'now').mockImplementation(() => now() + hours * 3_600_000);
      try {
        const { connection, channel } = await open(ours);
        const queue = `clock${hours}`;
        await channel.assertQueue(queue);
        await channel.assertQueue(`${queue}-wait`, {
          ...{ messageTtl: 60_000, deadLetterExchange: '', deadLetterRoutingKey: queue },
        });
        channel.sendToQueue(`${queue}-wait`, Buffer.from('later'));
        channel.sendToQueue(queue, Buffer.from('too late'), { expiration: '0' });
        channel.sendToQueue(queue, Buffer.from('in time'), { expiration: '3600000' });
        await channel.waitForConfirms();
        const { rows } = await database.pool.query(
          `select extract(epoch from run_at - created_at)::float8 as waits from unbroker.jobs
         where kind = $1 order by run_at`,
          [`amqp.${queue}`],
        );
        expect(rows.map(({ waits }) => Math.round(Number(waits) / 30))).toEqual([0, 0, 2]);
        const got = await channel.get(queue, { noAck: true });
        expect(got && text(got)).toBe('in time');
        expect(await channel.get(queue)).toBe(false);
        await connection.close();
      } finally {
        vi.restoreAllMocks();
      }
    },
  );

  it('a message of a process that died comes to another after its lease', async () => {
    const dying = await inProcess.connect({ pool: database.pool, leaseMs: 300, pollMs: 10 });
    const channel = quiet(await dying.createChannel());
    await channel.assertQueue('leased');
    channel.sendToQueue('leased', Buffer.from('x'));
    await channel.waitForConfirms();
    const message = await channel.get('leased');
    expect(message).not.toBe(false);
    // As if the process were gone: nobody renews, nobody gives back.
    await database.pool.query(
      `update unbroker.jobs set locked_until = now() - interval '1 s', lease_token = lease_token + 1000000 where kind = 'amqp.leased'`,
    );
    await database.pool.query(
      `update unbroker.claims set ends_at = now() - interval '1 s', token = token + 1000000`,
    );
    const other = await inProcess.connect({ pool: database.pool, pollMs: 10 });
    const got: inProcess.Message[] = [];
    const second = quiet(await other.createChannel());
    await second.consume('leased', (one) => void (one && got.push(one)));
    await until('it came again', () => got.length === 1, { withinMs: 60_000 });
    expect(got[0]?.fields.redelivered).toBe(true);
    await Promise.all([dying.close(), other.close()]);
  });

  it('what is acknowledged is a finished job; what another door enqueued is a message', async () => {
    const { connection, channel } = await open(ours);
    await channel.assertQueue('doors');
    const { rows } = await database.pool.query(
      `select unbroker.enqueue('amqp.doors', '{"n":1}')::text as id`,
    );
    const message = await until('it came', () => channel.get('doors'));
    expect(text(message)).toBe('{"n": 1}');
    channel.ack(message);
    await connection.close();
    const { rows: after } = await database.pool.query('select state from unbroker.jobs where id = $1', [
      rows[0].id,
    ]);
    expect(after).toEqual([{ state: 'done' }]);
  });

  it('a queue that only delays cannot be consumed', async () => {
    const { connection, channel } = await open(ours);
    await channel.assertQueue('only-delays', { messageTtl: 1_000, deadLetterExchange: 'amq.direct' });
    await expect(channel.consume('only-delays', () => undefined)).rejects.toThrow(/only delays/);
    await connection.close();
  });
});

describe('routing', () => {
  it('patterns of many words take no time', () => {
    const words = Array.from({ length: 120 }, () => 'a');
    const pattern = Array.from({ length: 120 }, (_, n) => (n % 2 === 0 ? '#' : 'a'));
    expect(topicFits(pattern, words)).toBe(true);
    expect(topicFits([...pattern, 'b'], words)).toBe(false);
  });

  it('exchanges bound in a circle end', () => {
    const binding = (source: string, destination: string, toExchange: boolean) => ({
      ...{ source, destination, toExchange, routingKey: '', arguments: {} },
    });
    const topology: Topology = {
      exchanges: new Map([
        ['a', 'fanout'],
        ['b', 'fanout'],
      ]),
      queues: new Map([['q', {}]]),
      bindings: [binding('a', 'b', true), binding('b', 'a', true), binding('b', 'q', false)],
    };
    expect(route(topology, 'a', '', {})).toEqual(['q']);
  });
});
