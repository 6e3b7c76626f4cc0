/**
 * A program for the starter's tests: it starts the server that its argument names (`postgres`, `rabbitmq`), prints one
 * line with its URL and (for RabbitMQ, which cannot be asked) its folder, and waits to be killed.
 */
import { startPostgres, startRabbit } from './services.js';

if (process.argv[2] === 'postgres') {
  const { url } = await startPostgres({ controllable: true });
  console.log(`started ${url}`);
} else {
  const server = await startRabbit({ controllable: true });
  const home = await server.ctl(['eval', 'os:getenv("HOME").']);
  console.log(`started ${server.url} ${home.trim().replaceAll('"', '')}`);
}
setInterval(() => {}, 60_000);
