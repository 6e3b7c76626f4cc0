/** The service starter's door: everything that the demo, the benches and the tests start. */
export { type FreshDatabase, type FreshVhost, freshDatabase, freshVhost } from './fresh.js';
export { callManagement } from './management.js';
export { type PostgresOptions, type PostgresServer, startPostgres } from './postgres.js';
export { type RabbitOptions, type RabbitServer, startRabbit } from './rabbitmq.js';
