/**
 * What we know about packages of the caller's: which ones are brokers, databases and other ways of sending, and how
 * values of the brokers' and of pg come about. This file is data, used where types are missing as well as where
 * they are there. It refuses to know any name of the caller's own: a method called `publish` means nothing here.
 */

import type { PackageTable } from './package-table.js';
import { IDIOMS, ormTable } from './transactions/idioms.js';

export type PackageClass = 'broker' | 'pg' | 'orm' | 'not-postgres' | 'transport';

const AMQPLIB: PackageTable = {
  types: {
    Channel: 'channel',
    ConfirmChannel: 'channel',
    ChannelModel: 'connection',
    Connection: 'connection',
  },
  calls: {
    'module.connect': 'connection',
    'connection.createChannel': 'channel',
    'connection.createConfirmChannel': 'channel',
  },
  news: {},
};

const PG: PackageTable = {
  types: { Pool: 'pool', PoolClient: 'client', Client: 'client', ClientBase: 'client' },
  parts: { pool: 'client', client: 'client' },
  calls: { 'pool.connect': 'client' },
  news: { 'module.Pool': 'pool', 'module.Client': 'client', 'module.native.Pool': 'pool', module: 'pool' },
};

const CONNECTION_MANAGER: PackageTable = {
  types: {
    ChannelWrapper: 'channel',
    CW: 'channel',
    AmqpConnectionManager: 'connection',
    AmqpConnectionManagerClass: 'connection',
    IAmqpConnectionManager: 'connection',
  },
  calls: { 'module.connect': 'connection', 'connection.createChannel': 'channel' },
  news: { 'module.AmqpConnectionManagerClass': 'connection' },
};

const GOLEVELUP: PackageTable = {
  types: { AmqpConnection: 'connection' },
  calls: {},
  foreign: {
    'connection.channel': { pkg: 'amqplib', what: 'channel' },
    'connection.managedChannel': { pkg: 'amqp-connection-manager', what: 'channel' },
  },
  news: { 'module.AmqpConnection': 'connection' },
};

/** `client` is of a transport that still has to be proven; `rmq-client` cannot be anything else. */
const NEST: PackageTable = {
  types: { ClientProxy: 'client', ClientRMQ: 'rmq-client' },
  calls: { 'module.ClientProxyFactory.create': 'client' },
  news: { 'module.ClientRMQ': 'rmq-client' },
};

const RASCAL: PackageTable = {
  types: { BrokerAsPromised: 'broker', Broker: 'broker' },
  calls: { 'module.BrokerAsPromised.create': 'broker', 'module.createBrokerAsPromised': 'broker' },
  news: {},
};

const CLOUDAMQP: PackageTable = {
  types: {
    AMQPClient: 'client',
    AMQPWebSocketClient: 'client',
    AMQPBaseClient: 'client',
    AMQPSession: 'client',
    AMQPChannel: 'channel',
    AMQPQueue: 'queue',
    AMQPExchange: 'exchange',
  },
  calls: {
    'client.connect': 'client',
    'client.channel': 'channel',
    'channel.queue': 'queue',
    'client.queue': 'queue',
    'client.exchange': 'exchange',
    'client.directExchange': 'exchange',
    'client.fanoutExchange': 'exchange',
    'client.topicExchange': 'exchange',
  },
  news: { 'module.AMQPClient': 'client', 'module.AMQPWebSocketClient': 'client' },
};

const TABLES: Readonly<Record<string, PackageTable>> = {
  amqplib: AMQPLIB,
  'amqp-connection-manager': CONNECTION_MANAGER,
  '@golevelup/nestjs-rabbitmq': GOLEVELUP,
  '@nestjs/microservices': NEST,
  rascal: RASCAL,
  '@cloudamqp/amqp-client': CLOUDAMQP,
  pg: PG,
  'pg-pool': PG,
};

export function tableOf(pkg: string): PackageTable {
  return TABLES[pkg] ?? ormTable(pkg);
}

/** Broker libraries; publishes/ holds a file for each. */
export const BROKERS: readonly string[] = [
  'amqplib',
  'amqp-connection-manager',
  '@golevelup/nestjs-rabbitmq',
  '@nestjs/microservices',
  'rascal',
  '@cloudamqp/amqp-client',
];

/** The methods of each broker library that send a message, by package. */
export const BROKER_SENDS: Readonly<Record<string, readonly string[]>> = {
  amqplib: ['publish', 'sendToQueue'],
  'amqp-connection-manager': ['publish', 'sendToQueue'],
  '@golevelup/nestjs-rabbitmq': ['publish'],
  '@nestjs/microservices': ['emit', 'send'],
  rascal: ['publish', 'forward'],
  '@cloudamqp/amqp-client': ['publish', 'basicPublish'],
};

/** Which values of a broker library send: a `publish` of its other objects is none. */
export const BROKER_SENDERS: Readonly<Record<string, readonly string[]>> = {
  amqplib: ['channel'],
  'amqp-connection-manager': ['channel'],
  '@golevelup/nestjs-rabbitmq': ['connection'],
  '@nestjs/microservices': ['client', 'rmq-client'],
  rascal: ['broker'],
  '@cloudamqp/amqp-client': ['channel', 'queue', 'exchange'],
};

const CLASSES: Readonly<Record<PackageClass, readonly string[]>> = {
  broker: BROKERS,
  pg: ['pg', 'pg-pool'],
  orm: [...IDIOMS.flatMap((idiom) => idiom.packages), 'slonik'],
  'not-postgres': [
    'mysql',
    'mysql2',
    'mariadb',
    'mongodb',
    'mongoose',
    '@nestjs/mongoose',
    'mssql',
    'tedious',
    'sqlite3',
    'better-sqlite3',
    'oracledb',
    'cassandra-driver',
    '@aws-sdk/client-dynamodb',
    '@aws-sdk/lib-dynamodb',
  ],
  transport: [
    'kafkajs',
    'node-rdkafka',
    'redis',
    'ioredis',
    'mqtt',
    'nats',
    'bullmq',
    'bull',
    'graphql-subscriptions',
    'graphql-redis-subscriptions',
    'events',
    'eventemitter2',
    'eventemitter3',
    'socket.io',
    'ws',
    'pusher',
    '@aws-sdk/client-sqs',
    '@aws-sdk/client-sns',
    '@google-cloud/pubsub',
    '@azure/service-bus',
    'axios',
    'got',
    'node-fetch',
    'undici',
    'http',
    'https',
    'nodemailer',
  ],
};

/** Packages whose functions only compute: a call of theirs may be made a few statements earlier. */
const PURE = new Set([
  'crypto',
  'uuid',
  'nanoid',
  'ulid',
  'cuid',
  'lodash',
  'lodash-es',
  'ramda',
  'date-fns',
  'dayjs',
  'luxon',
  'moment',
  'ms',
  'util',
  'path',
  'url',
  'querystring',
  'buffer',
]);

export function isPure(pkg: string): boolean {
  return PURE.has(pkg) || pkg.startsWith('lodash.');
}

const CLASS_OF = new Map<string, PackageClass>(
  Object.entries(CLASSES).flatMap(([cls, names]) => names.map((n) => [n, cls as PackageClass] as const)),
);

export function classOf(pkg: string): PackageClass | undefined {
  return CLASS_OF.get(pkg);
}

/** `pg/lib/x` → `pg`, `@scope/name/x` → `@scope/name`, `node:events` → `events`; relative and absolute → undefined. */
export function packageOfSpecifier(specifier: string): string | undefined {
  if (specifier === '' || /^[./]/.test(specifier) || /^[A-Za-z]:[\\/]/.test(specifier)) return undefined;
  const parts = specifier.replace(/^node:/, '').split('/');
  return specifier.startsWith('@') ? parts.slice(0, 2).join('/') : parts[0];
}

/** The package that a file under node_modules belongs to; `@types/x` counts as `x`, `@types/a__b` as `@a/b`. */
export function packageOfPath(path: string): string | undefined {
  const at = path.lastIndexOf('/node_modules/');
  if (at < 0) return undefined;
  const name = packageOfSpecifier(path.slice(at + '/node_modules/'.length));
  if (name === undefined || !name.startsWith('@types/')) return name;
  const bare = name.slice('@types/'.length);
  return bare.includes('__') ? `@${bare.replace('__', '/')}` : bare;
}
