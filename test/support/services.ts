/** The service starter's door: everything that the demo, the benches and the tests start. */
export {
  type FreshDatabase,
  type FreshVhost,
  freshDatabase,
  freshMigratedDatabase,
  freshVhost,
} from './fresh.js';
export { callManagement } from './management.js';
export { startPostgres } from './postgres.js';
export type { PostgresOptions, PostgresServer } from './postgres-server.js';
export { startRabbit } from './rabbitmq.js';
export type { RabbitOptions, RabbitServer } from './rabbitmq-server.js';
