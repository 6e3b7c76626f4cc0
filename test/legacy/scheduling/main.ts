/** The scheduling service: puts its parts together and runs them. */
import pg from 'pg';
import { Bus } from '../common/bus.js';
import { env, intEnv, run } from '../common/service.js';
import { listen } from '../common/web.js';
import { consume } from './consumers.js';
import { createHttp } from './http.js';
import { ScheduleStore } from './store.js';
import { declare } from './timer.js';

await run('scheduling', async () => {
  const pool = new pg.Pool({
    connectionString: env('DATABASE_URL'),
    max: 10,
    application_name: 'scheduling',
  });
  pool.on('error', (error) => console.error(`scheduling: database: ${error.message}`));
  const store = new ScheduleStore(pool);
  await store.migrate();
  const bus = await Bus.connect(env('AMQP_URL'), 'scheduling', intEnv('PREFETCH', 20));
  await declare(bus);
  await consume(bus, store);
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
