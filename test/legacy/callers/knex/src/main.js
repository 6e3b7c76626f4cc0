const { knex, migrate } = require('./db');
const events = require('./events');
const loans = require('./loans');

async function run() {
  await migrate();
  await events.connect();
  const id = await loans.buy('Moby-Dick');
  await loans.lend(id, 'ishmael');
  await loans.takeBack(id);
  await events.close();
  await knex.destroy();
}

run().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
