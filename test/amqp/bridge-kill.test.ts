/** The short form of `npm run faults -- bridge`: kill -9 at steps by chance while publishers go on. */
import { afterEach, expect, test } from 'vitest';
import { killBridge } from '../faults/bridge.js';
import { freshVhost } from '../support/fresh.js';
import { jobsDatabase } from '../support/jobs.js';
import { newSeed, seeded } from '../support/seeded.js';

const closers: (() => Promise<void>)[] = [];
afterEach(async () => {
  await Promise.all(closers.splice(0).map((close) => close()));
});

test('live publishers: with ids 0 lost, 0 doubled; without 0 lost, doubles no more than it says', {
  timeout: 180_000,
}, async () => {
  const [vhost, database] = await Promise.all([freshVhost(), jobsDatabase()]);
  closers.push(
    () => vhost.close(),
    () => database.close(),
  );
  const seed = newSeed();
  const plan = { kills: 3, maxBatch: 20, rate: 100, random: seeded(seed) };
  const result = await killBridge(vhost, database, plan);
  const told = `seed ${seed}: ${JSON.stringify(result)}`;
  expect(result, told).toMatchObject({ points: 3, lost: 0, extra: 0, recovered: true });
  expect(result.doubled, told).toBeLessThanOrEqual(result.said);
  expect(result.messages, told).toBeGreaterThan(100);
});
