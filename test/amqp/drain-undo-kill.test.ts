/** The short form of `npm run faults -- undo`: kill -9 at steps by chance, every message back once and no more. */
import { afterEach, expect, test } from 'vitest';
import { killUndoAndCompare } from '../faults/undo.js';
import { freshVhost } from '../support/fresh.js';
import { jobsDatabase } from '../support/jobs.js';
import { newSeed, seeded } from '../support/seeded.js';

const closers: (() => Promise<void>)[] = [];
afterEach(async () => {
  await Promise.all(closers.splice(0).map((close) => close()));
});

test('twins without ids, small and large: 0 lost, 0 extra, books balance', { timeout: 180_000 }, async () => {
  const [broker, database] = await Promise.all([freshVhost(), jobsDatabase()]);
  closers.push(
    () => broker.close(),
    () => database.close(),
  );
  const seed = newSeed();
  const result = await killUndoAndCompare(
    { broker, database },
    {
      bodies: 'twins',
      shape: 'classic',
      messages: 500,
      kills: 2,
      maxBatch: 100,
      mixedSizes: true,
      random: seeded(seed),
    },
  );
  expect(result, `seed ${seed}: ${result.output}`).toMatchObject({ lost: 0, extra: 0, recovered: true });
  expect(result.points, `seed ${seed}`).toBeGreaterThan(0);
});
