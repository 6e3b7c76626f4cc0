import createKnex from 'knex';

export const db = createKnex({ client: 'pg', connection: process.env.DATABASE_URL });
export const close = () => db.destroy();
