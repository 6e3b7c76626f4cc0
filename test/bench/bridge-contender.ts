/** A bridge over a full queue until it is idle, in a process of its own. Prints one JSON line. */
import pg from 'pg';
import type * as Bridges from '../../adapters/rabbitmq/bridge.js';
import type * as DrainConfig from '../../adapters/rabbitmq/drain-config.js';
import type * as Stores from '../../src/jobs/store.js';
import type * as Logs from '../../src/log.js';

const { AMQP_URL = '', DATABASE_URL = '', MESSAGES = '' } = process.env;
const WANTED = Number(MESSAGES);
const QUEUE = 'bench';

/** From dist, as a user gets it: the loader of TypeScript adds calls to every closure. */
const built = (path: string): Promise<unknown> => import(new URL(`../../dist/${path}`, import.meta.url).href);

const { bridge } = (await built('adapters/rabbitmq/bridge.js')) as typeof Bridges;
const { compileRules } = (await built('adapters/rabbitmq/drain-config.js')) as typeof DrainConfig;
const { createStore } = (await built('src/jobs/store.js')) as typeof Stores;
const { SILENT } = (await built('src/log.js')) as typeof Logs;
const pool = new pg.Pool({ connectionString: DATABASE_URL, max: 4 });
const before = process.cpuUsage();
let startedAt = 0;
let endedAt = 0;
const { groups } = await bridge({
  ...{ amqpUrl: AMQP_URL, pool, store: createStore(), log: SILENT, idleExitMs: 200 },
  groups: [
    {
      name: QUEUE,
      queues: [
        {
          ...{ name: QUEUE, role: 'main', ttlMs: null, feeders: [] },
          ...{ singleActive: false, autoDelete: false, stream: false },
        },
      ],
    },
  ],
  rules: compileRules([{ match: { queue: '*' }, kind: 'bench' }]),
  onStep: (step) => {
    if (step === 'prepared' && startedAt === 0) startedAt = performance.now();
    if (step === 'fenced') endedAt = performance.now();
  },
});
const { user, system } = process.cpuUsage(before);
await pool.end();
const rows = groups[0]?.totals.rows;
if (rows !== WANTED) throw new Error(`${rows} rows of ${WANTED}`);
const report = {
  perSecond: WANTED / ((endedAt - startedAt) / 1_000),
  nodeUsPerMessage: Math.round((user + system) / WANTED),
  rssMb: Math.round(process.resourceUsage().maxRSS / 1_024),
};
process.stdout.write(`${JSON.stringify(report)}\n`);
