/**
 * A database and a virtual host of one's own: one per test file (or test), gone afterwards. Without an argument they
 * come from the run's shared servers; the demo, the benches and the fault tests pass a server that they started.
 */
import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { administer } from './administer.js';
import { say } from './machine.js';
import { callManagement } from './management.js';
import { pooled } from './pgbouncer.js';
import type { PostgresServer } from './postgres-server.js';
import type { RabbitServer } from './rabbitmq-server.js';
import { askPostgres, askRabbit, askRabbitCtl, askTemplate } from './shared-services.js';

export interface FreshDatabase {
  readonly url: string;
  readonly name: string;
  /** At most 10 connections; errors of idle ones are swallowed, since tests kill servers. */
  readonly pool: pg.Pool;
  /** Ends the pool and drops the database, whoever is still connected to it. Safe to call twice. */
  close(): Promise<void>;
}

export interface FreshVhost {
  /** Contains the virtual host. */
  readonly url: string;
  readonly vhost: string;
  /** Of the broker, credentials included; null when there is no management API. */
  readonly managementUrl: string | null;
  /** False when the given broker could not make one: use unique names then. */
  readonly isolated: boolean;
  /** Deletes it with everything in it. Safe to call twice. */
  close(): Promise<void>;
}

const uniqueName = (): string => `unbroker_test_${randomBytes(6).toString('hex')}`;

async function sharedSocket(): Promise<string> {
  const { inject } = await import('vitest');
  const socketPath = inject('servicesSocket');
  if (!socketPath) throw new Error('no shared services in this run: pass a server that you started');
  return socketPath;
}

export async function freshDatabase(given?: Pick<PostgresServer, 'url'>): Promise<FreshDatabase> {
  return createDatabase(given ?? (await askPostgres(await sharedSocket())), '');
}

/** On the shared server, with the jobs table in it as `migrate` makes it. */
export async function freshMigratedDatabase(): Promise<FreshDatabase> {
  const socketPath = await sharedSocket();
  const template = await askTemplate(socketPath);
  return createDatabase(await askPostgres(socketPath), ` template ${template}`);
}

async function createDatabase(server: Pick<PostgresServer, 'url'>, how: string): Promise<FreshDatabase> {
  const name = uniqueName();
  await administer(server.url, `create database ${name}${how}`);
  const url = new URL(server.url);
  url.pathname = `/${name}`;
  const pool = new pg.Pool({ connectionString: pooled(url.href), max: 10 });
  pool.on('error', () => {});
  let closed = false;
  return {
    ...{ url: url.href, name, pool },
    async close() {
      if (closed) return;
      closed = true;
      // With force first: a client that a test forgot to release would keep pool.end() waiting for ever.
      await administer(server.url, `drop database if exists ${name} with (force)`);
      await Promise.race([pool.end(), sleep(2_000, undefined, { ref: false })]);
    },
  };
}

type VhostServer = Pick<RabbitServer, 'url' | 'managementUrl' | 'controllable' | 'ctl'>;

async function sharedRabbit(): Promise<VhostServer> {
  const socketPath = await sharedSocket();
  return { ...(await askRabbit(socketPath)), ctl: (args) => askRabbitCtl(socketPath, args) };
}

export async function freshVhost(given?: VhostServer): Promise<FreshVhost> {
  const server = given ?? (await sharedRabbit());
  const { managementUrl } = server;
  const url = new URL(server.url);
  if (managementUrl === null && !server.controllable) {
    say(
      'the given RabbitMQ has no management API: tests share its virtual host; set UNBROKER_TEST_AMQP_MANAGEMENT_URL',
    );
    const vhost = decodeURIComponent(url.pathname.slice(1)) || '/';
    return { url: url.href, vhost, managementUrl, isolated: false, close: async () => {} };
  }
  const vhost = uniqueName();
  const user = decodeURIComponent(url.username) || 'guest';
  if (managementUrl !== null) {
    await callManagement(managementUrl, 'PUT', `/vhosts/${vhost}`);
    const everything = { configure: '.*', write: '.*', read: '.*' };
    await callManagement(
      managementUrl,
      'PUT',
      `/permissions/${vhost}/${encodeURIComponent(user)}`,
      everything,
    );
  } else {
    await server.ctl(['add_vhost', vhost]);
    await server.ctl(['set_permissions', '-p', vhost, user, '.*', '.*', '.*']);
  }
  url.pathname = `/${vhost}`;
  let closed = false;
  return {
    ...{ url: url.href, vhost, managementUrl, isolated: true },
    async close() {
      if (closed) return;
      closed = true;
      if (managementUrl !== null) await callManagement(managementUrl, 'DELETE', `/vhosts/${vhost}`);
      else await server.ctl(['delete_vhost', vhost]);
    },
  };
}
