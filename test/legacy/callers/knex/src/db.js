const createKnex = require('knex');

const knex = createKnex({ client: 'pg', connection: process.env.DATABASE_URL, pool: { min: 0, max: 4 } });

async function migrate() {
  await knex.raw(
    'create table if not exists books (id serial primary key, title text not null, on_loan boolean not null)',
  );
  await knex.raw(
    'create table if not exists loans (id serial primary key, book_id int not null, member text not null)',
  );
}

module.exports = { knex, migrate };
