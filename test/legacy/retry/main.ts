/** The retry service: puts its parts together and runs them. */
import pg from 'pg';
import { Bus } from '../common/bus.js';
import { env, intEnv, run } from '../common/service.js';
import { listen } from '../common/web.js';
import { declare } from './broker.js';
import { consume } from './consumers.js';
import { createHttp } from './http.js';
import { RetryStore } from './store.js';

await run('retry', async () => {
  const ladder = env('RETRY_LADDER_MS', '1000,10000,60000').split(',').map(Number);
  if (ladder.length === 0 || ladder.some((rungMs) => !Number.isInteger(rungMs) || rungMs < 1)) {
    throw new Error('RETRY_LADDER_MS is not a list of milliseconds');
  }
  const pool = new pg.Pool({ connectionString: env('DATABASE_URL'), max: 10, application_name: 'retry' });
  pool.on('error', (error) => console.error(`retry: database: ${error.message}`));
  const store = new RetryStore(pool);
  await store.migrate();
  const bus = await Bus.connect(env('AMQP_URL'), 'retry', intEnv('PREFETCH', 20));
  await declare(bus, ladder);
  await consume(bus, store, ladder);
  const http = createHttp(bus, store);
  return {
    url: await listen(http, intEnv('PORT', 0)),
    stop: async () => {
      await http.close();
      await bus.stopConsuming();
      await bus.close();
      await pool.end();
    },
  };
});
