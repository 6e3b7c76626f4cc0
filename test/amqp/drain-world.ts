/**
 * A virtual host and a migrated database of one's own, a publisher that can send property bytes which no client would,
 * and a drain of what the survey finds: what every test of the drain needs.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import amqp, { type Channel, type ConfirmChannel, type Options } from 'amqplib';
import { type DrainOptions, type DrainResult, drainGroup } from '../../adapters/rabbitmq/drain.js';
import { checkDrainConfig, compileRules, type DrainConfig } from '../../adapters/rabbitmq/drain-config.js';
import { drainPlanned } from '../../adapters/rabbitmq/drain-plan.js';
import { type Survey, survey } from '../../adapters/rabbitmq/survey.js';
import { SILENT } from '../../src/log.js';
import { type FreshVhost, freshVhost } from '../support/fresh.js';
import { type JobsDatabase, jobsDatabase } from '../support/jobs.js';
import { publishRaw } from '../support/raw-publish.js';

export interface DrainWorld {
  readonly vhost: FreshVhost;
  readonly database: JobsDatabase;
  readonly channel: ConfirmChannel;
  /** Persistent; resolves when confirmed. */
  publish(exchange: string, routingKey: string, body: unknown, options?: Options.Publish): Promise<void>;
  /** To a queue, with exactly these property bytes (flags and list). */
  publishRaw(queue: string, propertyBytes: Buffer, body: Buffer): Promise<void>;
  look(config?: DrainConfig): Promise<Survey>;
  /** Surveys, then drains every group, or those named. */
  drain(
    options?: Partial<DrainOptions> & { config?: DrainConfig; groups?: readonly string[] },
  ): Promise<DrainResult[]>;
  /** A plain queue as a group of its own, every message of kind `k`; without a survey, which takes longer than the drain. */
  drainQueue(queue: string): Promise<DrainResult>;
  rows<Row>(sql: string): Promise<Row[]>;
  close(): Promise<void>;
}

const CLOSE_WITHIN_MS = 5_000;

export async function drainWorld(): Promise<DrainWorld> {
  const [vhost, database] = await Promise.all([freshVhost(), jobsDatabase()]);
  const connection = await amqp.connect(vhost.url, { noDelay: true });
  const channel = await connection.createConfirmChannel();
  /** What the broker closed the channel for: who waits for a confirm hears only that it is closed. */
  let refusal: Error | undefined;
  const heard = (error: Error): void => {
    refusal ??= error;
  };
  for (const each of [connection, channel]) each.on('error', heard);
  const look = (config: DrainConfig = {}) =>
    survey({
      amqpUrl: vhost.url,
      managementUrl: vhost.managementUrl ?? 'http://127.0.0.1:1',
      config,
      rules: compileRules(config.rules),
    });
  return {
    ...{ vhost, database, channel, look },
    publish: (exchange, routingKey, body, options = {}) =>
      new Promise((resolve, reject) => {
        const content = Buffer.isBuffer(body)
          ? body
          : Buffer.from(typeof body === 'string' ? body : JSON.stringify(body));
        channel.publish(exchange, routingKey, content, { persistent: true, ...options }, (error) =>
          error ? reject(error) : resolve(),
        );
      }),
    publishRaw: (queue, propertyBytes, body) =>
      publishRaw(channel, queue, propertyBytes, body).catch((error: unknown) => {
        throw refusal ?? error;
      }),
    async drain({ config = {}, groups, ...options } = {}) {
      const checked = checkDrainConfig(config, 'drain');
      const seen = await look(checked);
      const results: DrainResult[] = [];
      for (const group of seen.groups.filter(({ name }) => groups?.includes(name) ?? true)) {
        results.push(
          await drainPlanned(group, {
            ...{ amqpUrl: vhost.url, pool: database.pool, store: database.store, log: SILENT },
            ...{ rules: compileRules(checked.rules), ...options },
          }),
        );
      }
      return results;
    },
    drainQueue: (queue) =>
      drainGroup({
        ...{ amqpUrl: vhost.url, pool: database.pool, store: database.store, log: SILENT },
        group: {
          name: queue,
          queues: [{ name: queue, role: 'main', ttlMs: null, feeders: [], singleActive: false }],
        },
        rules: compileRules([{ match: { queue: '*' }, kind: 'k' }]),
      }),
    rows: async <Row>(sql: string) => (await database.pool.query(sql)).rows as Row[],
    async close() {
      // The client's close never settles when the socket ends before the broker's answer.
      await Promise.race([
        connection.close().catch(() => {}),
        sleep(CLOSE_WITHIN_MS, undefined, { ref: false }),
      ]);
      await Promise.all([vhost.close(), database.close()]);
    },
  };
}

/** Waits until the broker's passive count is this: dead-lettering is not confirmed to anybody. */
export async function untilReady(channel: Channel, queue: string, ready: number): Promise<void> {
  const { until } = await import('../support/until.js');
  await until(
    `${queue} holds ${ready}`,
    async () => (await channel.checkQueue(queue)).messageCount === ready,
  );
}
