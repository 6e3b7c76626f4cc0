const { knex } = require('./db');
const { publishEvent } = require('./events');

async function buy(title) {
  const [book] = await knex('books').insert({ title, on_loan: false }).returning(['id', 'title']);
  await publishEvent('book.bought', { id: book.id, title: book.title });
  return book.id;
}

async function lend(bookId, member) {
  const loan = await knex.transaction(async (trx) => {
    await trx('books').where({ id: bookId }).update({ on_loan: true });
    const [row] = await trx('loans').insert({ book_id: bookId, member }).returning('id');
    return row;
  });
  await publishEvent('book.lent', { loan: loan.id, bookId, member });
  return loan.id;
}

async function takeBack(bookId) {
  const trx = await knex.transaction();
  try {
    await trx('loans').where({ book_id: bookId }).delete();
    await trx('books').where({ id: bookId }).update({ on_loan: false });
    await trx.commit();
    // the waiting list hears of it
    publishEvent('book.returned', { bookId });
  } catch (error) {
    await trx.rollback();
    throw error;
  }
}

module.exports = { buy, lend, takeBack };
