/** Single enqueues that share statements: how many may wait while the database hangs, and that none is lost or mixed up. */
import { afterAll, expect, test } from 'vitest';
import { prepare } from '../../src/enqueue.js';
import { Batcher } from '../../src/shims/batcher.js';
import { jobsDatabase } from '../support/jobs.js';

const db = await jobsDatabase();
afterAll(() => db.close());

const job = (text: string) => ({
  ...prepare({ kind: 'a', payload: null }),
  payloadText: JSON.stringify(text),
});

test('while the database hangs, so many jobs and characters wait and no more; then all of them are in, each its own', async () => {
  const holder = await db.pool.connect();
  await holder.query('begin; lock table unbroker.jobs in exclusive mode');
  const few = new Batcher(db.pool, db.store, { jobs: 3, length: 1_000 });
  const short = new Batcher(db.pool, db.store, { jobs: 1_000, length: 50 });
  // The first goes at once, on its way to the lock; those behind it wait.
  const first = [few.enqueue(job('few')), short.enqueue(job('short'))];
  await new Promise((resolve) => setImmediate(resolve));
  const waiting = ['x', 'y', 'z'].map((text) => few.enqueue(job(text)));
  await expect(few.enqueue(job('one more'))).rejects.toMatchObject({ status: 503, code: 'overloaded' });
  const long = short.enqueue(job('x'.repeat(40)));
  await expect(short.enqueue(job('x'.repeat(40)))).rejects.toMatchObject({ code: 'overloaded' });
  const fits = short.enqueue(job('xyz'));
  await holder.query('commit');
  holder.release();
  const stored = await Promise.all([...first, ...waiting, long, fits]);
  const { rows } = await db.pool.query<{ id: string; text: string }>(
    `select id::text, payload #>> '{}' as text from unbroker.jobs`,
  );
  const texts = new Map(rows.map(({ id, text }) => [id, text]));
  expect(stored.map(({ id }) => texts.get(id))).toEqual([
    ...['few', 'short', 'x', 'y', 'z', 'x'.repeat(40), 'xyz'],
  ]);
  expect(rows).toHaveLength(7);
  // What has gone makes room again.
  await expect(few.enqueue(job('again'))).resolves.toMatchObject({ inserted: true });
  await expect(short.enqueue(job('x'.repeat(40)))).resolves.toMatchObject({ inserted: true });
});

test('a row that the server refuses does not take its neighbours along', async () => {
  const batcher = new Batcher(db.pool, db.store);
  // Twice as deep as jsonb will go.
  const deep = { ...job(''), payloadText: `${'['.repeat(50_000)}${']'.repeat(50_000)}` };
  const [good, bad, another] = await Promise.allSettled([
    batcher.enqueue(job('good')),
    batcher.enqueue(deep),
    batcher.enqueue(job('another')),
  ]);
  expect([good.status, bad.status, another.status]).toEqual(['fulfilled', 'rejected', 'fulfilled']);
});
