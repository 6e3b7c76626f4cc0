/** The queues of the old system as its README has them, read back from the broker: drain and survey rely on them. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { declareTopology } from '../legacy/topology.js';
import { callManagement, type FreshVhost, freshVhost } from '../support/services.js';

let vhost: FreshVhost;

beforeAll(async () => {
  vhost = await freshVhost();
  await declareTopology(vhost.url);
});

afterAll(() => vhost?.close());

interface Binding {
  readonly source: string;
  readonly destination: string;
  readonly routing_key: string;
}

async function listed<T>(what: string): Promise<T[]> {
  if (vhost.managementUrl === null) throw new Error('this test needs the management API');
  return (await callManagement(vhost.managementUrl, 'GET', `/${what}/${vhost.vhost}`)) as T[];
}

test('queues, arguments and bindings are those of the README', async () => {
  const queues = await listed<{ name: string; arguments: object; durable: boolean; type: string }>('queues');
  expect(Object.fromEntries(queues.map((queue) => [queue.name, queue.arguments]))).toEqual({
    'notification.work': { 'x-dead-letter-exchange': 'retry.dlx' },
    'notification.dlq': {},
    'schedule.requests': {
      'x-dead-letter-exchange': 'retry.dlx',
      'x-dead-letter-routing-key': 'schedule.requests',
    },
    'schedule.due': { 'x-dead-letter-exchange': 'retry.dlx' },
    'schedule.dlq': {},
    'retry.scheduled': {},
    'retry.wait.1000': { 'x-message-ttl': 1_000, 'x-dead-letter-exchange': '' },
    'retry.wait.10000': { 'x-message-ttl': 10_000, 'x-dead-letter-exchange': '' },
    'retry.wait.60000': { 'x-message-ttl': 60_000, 'x-dead-letter-exchange': '' },
    'manual-review': {},
  });
  expect(queues.every((queue) => queue.durable && queue.type === 'classic')).toBe(true);

  const bindings = (await listed<Binding>('bindings')).filter(({ source }) => source !== '');
  expect(bindings.map((b) => `${b.source} ${b.routing_key} ${b.destination}`).sort()).toEqual([
    'notifications notification.# notification.work',
    'retry.dlx notification.# notification.dlq',
    'retry.dlx schedule.# schedule.dlq',
    'retry.wait.1000  retry.wait.1000',
    'retry.wait.10000  retry.wait.10000',
    'retry.wait.60000  retry.wait.60000',
    'schedule # schedule.requests',
    'schedule.fire schedule.due schedule.due',
  ]);
});

test('exchanges have the types of the README', async () => {
  const exchanges = await listed<{ name: string; type: string }>('exchanges');
  const own = exchanges.filter(({ name }) => name !== '' && !name.startsWith('amq.'));
  expect(Object.fromEntries(own.map(({ name, type }) => [name, type]))).toEqual({
    notifications: 'topic',
    'notification.status': 'topic',
    schedule: 'topic',
    'schedule.fire': 'direct',
    'schedule.events': 'topic',
    'retry.dlx': 'topic',
    'retry.wait.1000': 'fanout',
    'retry.wait.10000': 'fanout',
    'retry.wait.60000': 'fanout',
  });
});
