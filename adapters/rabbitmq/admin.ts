/**
 * What freezing asks of a broker's administration, through the management API or, without it, through rabbitmqctl. Each
 * call changes one thing; which things, in which order and back again, is freeze.ts's to say.
 */
import { UnbrokerError } from '../../src/errors.js';
import type { RunCtl } from './ctl.js';
import { connectionOf } from './management.js';

export interface Policy {
  readonly name: string;
  readonly pattern: string;
  readonly definition: Readonly<Record<string, unknown>>;
  readonly priority: number;
  readonly applyTo: string;
}

/** What holds for a queue: the name of its policy, and the argument that no policy changes. */
export interface QueuePolicy {
  readonly policy: string | null;
  readonly overflowArgument: string | null;
  /** As the queue itself says. */
  readonly definition: Policy['definition'];
}

export interface Permission {
  readonly configure: string;
  readonly write: string;
  readonly read: string;
}

/** A connection that publishes; through rabbitmqctl, which has no statistics: one that may, having no consumer. */
export interface PublishingConnection {
  /** What `closeConnection` takes. */
  readonly id: string;
  readonly name: string;
  readonly user: string;
  /** True when each of its channels waits for confirms: then it learns of a refusal. */
  readonly confirms: boolean;
}

export interface Admin {
  readonly way: 'management' | 'rabbitmqctl';
  policies(vhost: string): Promise<Policy[]>;
  queue(vhost: string, queue: string): Promise<QueuePolicy>;
  putPolicy(vhost: string, policy: Policy): Promise<void>;
  deletePolicy(vhost: string, name: string): Promise<void>;
  permissions(vhost: string): Promise<ReadonlyMap<string, Permission>>;
  setPermission(vhost: string, user: string, permission: Permission): Promise<void>;
  publishers(vhost: string): Promise<PublishingConnection[]>;
  closeConnection(id: string, reason: string): Promise<void>;
  connected(id: string): Promise<boolean>;
}

const TIMEOUT_MS = 15_000;

type Fields = Readonly<Record<string, unknown>>;
const text = (value: unknown): string => (typeof value === 'string' ? value : '');
const fields = (value: unknown): Fields =>
  typeof value === 'object' && value !== null ? (value as Fields) : {};
const number = (value: unknown): number => (typeof value === 'number' ? value : 0);

/** Null when nothing answers there with an administrator's or policymaker's rights. */
export async function managementAdmin(url: string): Promise<Admin | null> {
  const call = caller(url);
  const list = async (path: string): Promise<Fields[]> => (await call('GET', path)) as Fields[];
  const name = encodeURIComponent;
  try {
    const tags = String(JSON.stringify(fields(await call('GET', '/whoami'))['tags']));
    if (!/administrator/.test(tags)) return null;
  } catch {
    return null;
  }
  return {
    way: 'management',
    async policies(vhost) {
      return (await list(`/policies/${name(vhost)}`)).map((each) => ({
        ...{ name: text(each['name']), pattern: text(each['pattern']), applyTo: text(each['apply-to']) },
        ...{ definition: fields(each['definition']), priority: number(each['priority']) },
      }));
    },
    async queue(vhost, queue) {
      // What the queue itself last said, up to five seconds ago: that it says so proves that it knows.
      return queuePolicy(fields(await call('GET', `/queues/${name(vhost)}/${name(queue)}`)));
    },
    async putPolicy(vhost, { name: own, pattern, definition, priority, applyTo }) {
      const body = { pattern, definition, priority, 'apply-to': applyTo };
      await call('PUT', `/policies/${name(vhost)}/${name(own)}`, body);
    },
    async deletePolicy(vhost, own) {
      await call('DELETE', `/policies/${name(vhost)}/${name(own)}`);
    },
    async permissions(vhost) {
      const found = await list(`/vhosts/${name(vhost)}/permissions`);
      return new Map(found.map((each) => [text(each['user']), permissionOf(each)]));
    },
    async setPermission(vhost, user, permission) {
      await call('PUT', `/permissions/${name(vhost)}/${name(user)}`, permission);
    },
    async publishers(vhost) {
      const channels = await list(`/vhosts/${name(vhost)}/channels`);
      const publishing = channels.filter((each) => number(fields(each['message_stats'])['publish']) > 0);
      return byConnection(
        publishing.map((each) => {
          const id = connectionOf(each);
          return { id, name: id, user: text(each['user']), confirms: each['confirm'] === true };
        }),
      );
    },
    async closeConnection(id, reason) {
      await call('DELETE', `/connections/${name(id)}`, undefined, { 'x-reason': reason });
    },
    async connected(id) {
      if ((await list('/connections?columns=name')).some((each) => each['name'] === id)) return true;
      return (await list('/channels')).some((each) => connectionOf(each) === id);
    },
  };
}

function queuePolicy(queue: Fields): QueuePolicy {
  const overflowArgument = text(argumentOf(queue['arguments'], 'x-overflow')) || null;
  const effective = queue['effective_policy_definition'];
  const definition = Array.isArray(effective)
    ? Object.fromEntries(effective as [string, unknown][])
    : fields(effective);
  return { policy: text(queue['policy']) || null, overflowArgument, definition };
}

/** An object through the API; through rabbitmqctl it may be a list of triples. */
function argumentOf(found: unknown, name: string): unknown {
  if (!Array.isArray(found)) return fields(found)[name];
  const entry = found.find((each) => Array.isArray(each) && each[0] === name) as unknown[] | undefined;
  return entry?.at(-1);
}

const permissionOf = (each: Fields): Permission => ({
  ...{ configure: text(each['configure']), write: text(each['write']), read: text(each['read']) },
});

function byConnection(channels: readonly PublishingConnection[]): PublishingConnection[] {
  const connections = new Map<string, PublishingConnection>();
  for (const channel of channels) {
    const known = connections.get(channel.id);
    connections.set(channel.id, { ...channel, confirms: channel.confirms && (known?.confirms ?? true) });
  }
  return [...connections.values()];
}

function caller(url: string) {
  const base = new URL(url);
  const credentials = `${decodeURIComponent(base.username)}:${decodeURIComponent(base.password)}`;
  const authorization = `Basic ${Buffer.from(credentials).toString('base64')}`;
  base.username = '';
  base.password = '';
  const prefix = `${base.href.replace(/\/+$/, '')}/api`;
  return async (
    method: string,
    path: string,
    body?: unknown,
    headers: Record<string, string> = {},
  ): Promise<unknown> => {
    const answer = await fetch(`${prefix}${path}`, {
      ...{ method, redirect: 'error' as const, signal: AbortSignal.timeout(TIMEOUT_MS) },
      headers: { authorization, 'content-type': 'application/json', ...headers },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const answered = await answer.text();
    // What is to be gone may be gone.
    if (method === 'DELETE' && answer.status === 404) return null;
    if (!answer.ok) throw failed(`${method} ${path.split('?')[0]} answered ${answer.status}`);
    return answered === '' ? null : JSON.parse(answered);
  };
}

/** Null when this rabbitmqctl does not reach a broker with this virtual host. */
export async function ctlAdmin(run: RunCtl, vhost: string): Promise<Admin | null> {
  const list = async (args: readonly string[]): Promise<Fields[]> =>
    JSON.parse((await run([...args, '--formatter', 'json'])) || '[]') as Fields[];
  // As a table: in JSON a connection's pid is written in a form that close_connection does not take.
  const lines = async (args: readonly string[]): Promise<string[][]> =>
    (await run([...args, '--no-table-headers']))
      .split('\n')
      .filter(Boolean)
      .map((line) => line.split('\t'));
  const vhosts = await list(['list_vhosts', 'name']);
  if (!vhosts.some((each) => each['name'] === vhost)) return null;
  const policies = async (of: string): Promise<Policy[]> => {
    return (await list(['list_policies', '-p', of])).map((each) => ({
      ...{ name: text(each['name']), pattern: text(each['pattern']), applyTo: text(each['apply-to']) },
      definition: fields(
        typeof each['definition'] === 'string' ? JSON.parse(each['definition']) : each['definition'],
      ),
      priority: number(each['priority']),
    }));
  };
  return {
    way: 'rabbitmqctl',
    policies,
    async queue(of, queue) {
      const queues = await list(['list_queues', '-p', of, 'name', 'policy', 'arguments']);
      const found = queues.find((each) => each['name'] === queue) ?? {};
      const holding = (await policies(of)).find(({ name }) => name === found['policy']);
      return queuePolicy({ ...found, effective_policy_definition: holding?.definition });
    },
    async putPolicy(of, { name, pattern, definition, priority, applyTo }) {
      const flags = ['--priority', String(priority), '--apply-to', applyTo];
      await run(['set_policy', '-p', of, ...flags, name, pattern, JSON.stringify(definition)]);
    },
    async deletePolicy(of, name) {
      if (!(await policies(of)).some((policy) => policy.name === name)) return;
      await run(['clear_policy', '-p', of, name]);
    },
    async permissions(of) {
      const found = await list(['list_permissions', '-p', of]);
      return new Map(found.map((each) => [text(each['user']), permissionOf(each)]));
    },
    async setPermission(of, user, { configure, write, read }) {
      await run(['set_permissions', '-p', of, user, configure, write, read]);
    },
    async publishers(of) {
      const names = await lines(['list_connections', 'pid', 'name', 'client_properties']);
      const channels = await lines([
        'list_channels',
        'connection',
        'user',
        'vhost',
        'confirm',
        'consumer_count',
      ]);
      const idle = channels.filter(([, , vhostOf, , consumers]) => vhostOf === of && consumers === '0');
      const found = idle.map(([id = '', user = '', , confirm]) => {
        const [, name = id, properties = ''] = names.find(([pid]) => pid === id) ?? [];
        return { id, name, user, confirms: confirm === 'true', ours: properties.includes('"unbroker"') };
      });
      return byConnection(found.filter(({ ours }) => !ours).map(({ ours: _, ...each }) => each));
    },
    async closeConnection(id, reason) {
      // One that has gone by itself is no error.
      await run(['close_connection', id, reason]).catch(() => undefined);
    },
    async connected(id) {
      return (await lines(['list_connections', 'pid'])).some(([pid]) => pid === id);
    },
  };
}

function failed(what: string): UnbrokerError {
  return new UnbrokerError('management-failed', `RabbitMQ's management API: ${what}`, {
    hint: 'Check RABBITMQ_MANAGEMENT_URL and that the user has the administrator tag.',
  });
}
