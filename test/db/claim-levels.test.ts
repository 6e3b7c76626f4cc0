/** Which jobs a claim finds among levels that are due, of the future, empty or behind a floor: those that one plain question finds. */
import fc from 'fast-check';
import { afterAll, expect, test } from 'vitest';
import type { Floor } from '../../src/jobs/floors.js';
import { jobsDatabase } from '../support/jobs.js';

const db = await jobsDatabase();
afterAll(() => db.close());

const LEVELS = [32_767, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, -1, -32_768];
const KINDS = ['a', 'b'];

const row = fc.record({
  kind: fc.constantFrom(...KINDS),
  priority: fc.constantFrom(...LEVELS),
  // Most levels have nothing that is due.
  agoSeconds: fc.oneof(
    { weight: 3, arbitrary: fc.integer({ min: -90, max: -30 }) },
    fc.integer({ min: 3, max: 60 }),
  ),
  state: fc.constantFrom('ready', 'ready', 'ready', 'running'),
});
const floor = fc.record({
  kind: fc.constantFrom(...KINDS),
  priority: fc.constantFrom(...LEVELS),
  agoSeconds: fc.integer({ min: 3, max: 60 }),
  id: fc.constantFrom(0, 1_000_000_000),
});

const EXPECTED = `
select j.id::text
from unbroker.jobs j cross join lateral unnest($1::text[]) with ordinality as k (kind, place)
where j.kind = k.kind and j.state = 'ready' and j.run_at <= now()
  and not exists (
    select from unnest($2::text[], $3::integer[], $4::timestamptz[], $5::bigint[]) as f (kind, priority, run_at, id)
    where f.kind = j.kind and f.priority = j.priority and (j.run_at, j.id) <= (f.run_at, f.id))
order by k.place, j.priority desc, j.run_at, j.id
limit $6`;

test('the same jobs as one plain question, whatever stands in the levels', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(row, { maxLength: 25 }),
      fc.uniqueArray(floor, { maxLength: 6, selector: ({ kind, priority }) => `${kind} ${priority}` }),
      fc.constantFrom([...KINDS], [...KINDS].reverse()),
      fc.integer({ min: 1, max: 12 }),
      async (rows, floors, kinds, total) => {
        await db.clear();
        const base = Date.now();
        const at = (agoSeconds: number): string => new Date(base - agoSeconds * 1_000).toISOString();
        await db.pool.query(
          `insert into unbroker.jobs (kind, priority, run_at, state, lease_token, locked_until, locked_by)
           select kind, priority, run_at, state, case state when 'running' then 1 end, case state when 'running' then now() end,
                  case state when 'running' then 'w' end
           from unnest($1::text[], $2::smallint[], $3::timestamptz[], $4::text[]) as given (kind, priority, run_at, state)`,
          [
            rows.map(({ kind }) => kind),
            rows.map(({ priority }) => priority),
            rows.map(({ agoSeconds }) => at(agoSeconds)),
            rows.map(({ state }) => state),
          ],
        );
        const expected = await db.pool.query<{ id: string }>(EXPECTED, [
          kinds,
          floors.map(({ kind }) => kind),
          floors.map(({ priority }) => priority),
          floors.map(({ agoSeconds }) => at(agoSeconds)),
          floors.map(({ id }) => id),
          total,
        ]);
        const known: Floor[] = floors.map(({ kind, priority, agoSeconds, id }) => ({
          ...{ kind, priority },
          ...{ id: String(id), runAtMs: base - agoSeconds * 1_000 },
        }));
        const demands = kinds.map((kind) => ({ kind, limit: total, park: false }));
        const claimed = await db.store.claim(db.pool, demands, total, 'w', 30_000, known);
        expect(claimed.map(({ id }) => id).sort()).toEqual(expected.rows.map(({ id }) => id).sort());
      },
    ),
    { numRuns: 250 },
  );
}, 60_000);
