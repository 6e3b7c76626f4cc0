/**
 * What docs/do/questions.md tells people to do to rows by hand, with its own words: each statement is run as it stands
 * there. And whether the pages on the table name all of it.
 */
import { readFileSync } from 'node:fs';
import { afterAll, beforeEach, expect, test } from 'vitest';
import { jobsDatabase } from '../support/jobs.js';
import { until } from '../support/until.js';
import { startWorker } from '../support/workers.js';

const db = await jobsDatabase();
afterAll(() => db.close());
beforeEach(() => db.clear());

const page = readFileSync(new URL('../../docs/do/questions.md', import.meta.url), 'utf8');

/** The page's only statement with these words in it, for this job instead of 4711. */
function fromPage(words: string, id: string): string {
  const found = [...page.matchAll(/```sql\n([^`]*)```/g)].flatMap(([, sql = '']) =>
    sql.includes(words) ? [sql] : [],
  );
  expect(found).toHaveLength(1);
  return (found[0] as string).replace('id = 4711', `id = ${id}`);
}

const row = async (id: string): Promise<Record<string, unknown> | undefined> =>
  (await db.pool.query('select state, attempts, turn, payload from unbroker.jobs where id = $1', [id]))
    .rows[0];

test('cancels one that waits, by its dedupe key, and no other', async () => {
  const [id] = await db.put('order.receipt', [1], { dedupeKey: 'order-17-receipt' });
  const [other] = await db.put('order.receipt', [2], { dedupeKey: 'order-18-receipt' });
  await db.pool.query(fromPage("dedupe_key = 'order-17-receipt'", ''));
  expect(await row(id as string)).toMatchObject({ state: 'cancelled' });
  expect(await row(other as string)).toMatchObject({ state: 'ready' });
});

test('stops one that runs: its signal is aborted, nothing of it is written, the next of its key goes on', async () => {
  const [id, next] = (await db.put('long', ['first', 'next'], { orderingKey: 'k' })) as [string, string];
  let running = 0;
  const worker = startWorker({
    ...{ url: db.url, leaseMs: 3_000, upkeepMs: 100 },
    handlers: {
      long: ({ payload }, { signal }) => {
        if (payload === 'next') return;
        running += 1;
        return new Promise((resolve) => {
          signal.addEventListener('abort', () => {
            running -= 1;
            resolve('too late');
          });
        });
      },
    },
  });
  const stop = fromPage('locked_until = null', id);
  await until('it runs and is stopped', async () => (await db.pool.query(stop)).rowCount === 1);
  await until('its handler knows', () => running === 0);
  await until('the next of its key is done', async () => (await row(next))?.state === 'done');
  await worker.close();
  expect(await row(id)).toMatchObject({ state: 'cancelled', turn: null });
  expect(worker.settled().map(({ job }) => job.id)).toEqual([next]);
});

test('brings one forward, with another payload', async () => {
  const [id] = (await db.put('order.receipt', [1], { delayMs: 3_600_000, priority: -5 })) as [string];
  const seen: unknown[] = [];
  const worker = startWorker({
    url: db.url,
    handlers: { 'order.receipt': (job) => void seen.push(job.payload) },
  });
  await until('it is idle', () => worker.events.some(({ type }) => type === 'idle'));
  await db.pool.query(fromPage('run_at = now()', id));
  await worker.untilEnded(1);
  await worker.close();
  expect(seen).toEqual([{ orderId: 18 }]);
});

test('the pages on the table name its columns and its indexes', async () => {
  const cells = (path: string): string =>
    readFileSync(new URL(path, import.meta.url), 'utf8')
      .split('\n')
      .flatMap((line) => (line.startsWith('| ') ? [line.split(' | ')[0]] : []))
      .join('\n');
  const columns = cells('../../docs/lookup/table.md');
  const indexes = cells('../../docs/understand/table.md');
  const { rows } = await db.pool.query<{ name: string; sort: string }>(`
    select attname::text as name, 'column' as sort from pg_attribute
    where attrelid = 'unbroker.jobs'::regclass and attnum > 0 and not attisdropped
    union all
    select indexrelid::regclass::text, 'index' from pg_index
    where indrelid = 'unbroker.jobs'::regclass and not indisprimary`);
  const missing = rows.filter(({ name, sort }) =>
    sort === 'column'
      ? !columns.includes(`\`${name}\``)
      : !indexes.includes(`\`${name.replace('unbroker.', '')}\``),
  );
  expect(rows.length).toBeGreaterThan(30);
  expect(missing).toEqual([]);
});
