import postgres from 'postgres';

export const db = postgres(process.env.DATABASE_URL ?? '', { onnotice: () => {} });
await db`select 1`;
export const close = () => db.end();
