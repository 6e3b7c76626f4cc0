/** The notification service: puts its parts together and runs them. */
import { join } from 'node:path';
import pg from 'pg';
import { Bus } from '../common/bus.js';
import { env, intEnv, run } from '../common/service.js';
import { listen } from '../common/web.js';
import { consume, declare } from './consumer.js';
import { Delivery } from './delivery.js';
import { createHttp } from './http.js';
import { NotificationStore } from './store.js';
import { Templates } from './templates.js';

await run('notification', async () => {
  const pool = new pg.Pool({
    connectionString: env('DATABASE_URL'),
    max: 10,
    application_name: 'notification',
  });
  pool.on('error', (error) => console.error(`notification: database: ${error.message}`));
  const store = new NotificationStore(pool);
  await store.migrate();
  const templates = new Templates(env('TEMPLATES_DIR', join(import.meta.dirname, 'templates')));
  const delivery = new Delivery({
    smtpUrl: process.env['SMTP_URL'],
    providerUrl: process.env['PROVIDER_URL'],
    from: env('MAIL_FROM', 'Shop <shop@example.org>'),
  });
  const bus = await Bus.connect(env('AMQP_URL'), 'notification', intEnv('PREFETCH', 10));
  await declare(bus);
  await consume({ bus, store, templates, delivery });
  const http = createHttp(bus, store, templates);
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
