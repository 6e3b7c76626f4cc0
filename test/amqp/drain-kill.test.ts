/** The short form of `npm run faults -- drain`: kill -9 at steps by chance, every message one row all the same. */
import { afterEach, expect, test } from 'vitest';
import { type KillPlan, killAndCompare } from '../faults/drain.js';
import { freshVhost } from '../support/fresh.js';
import { jobsDatabase } from '../support/jobs.js';
import { newSeed, seeded } from '../support/seeded.js';

const closers: (() => Promise<void>)[] = [];
afterEach(async () => {
  await Promise.all(closers.splice(0).map((close) => close()));
});

test.each<Pick<KillPlan, 'shape' | 'bodies'>>([
  { shape: 'classic', bodies: 'twins' },
  { shape: 'quorum', bodies: 'unique' },
  { shape: 'expiring-group', bodies: 'neighbours' },
])(
  '$bodies bodies without ids, $shape: 0 lost, 0 extra, books balance',
  { timeout: 120_000 },
  async (plan) => {
    const [vhost, database] = await Promise.all([freshVhost(), jobsDatabase()]);
    closers.push(
      () => vhost.close(),
      () => database.close(),
    );
    const seed = newSeed();
    const numbers = { messages: 700, kills: 4, maxBatch: 100, random: seeded(seed) };
    const result = await killAndCompare(vhost, database, { ...plan, ...numbers });
    expect(result, `seed ${seed}: ${result.output}`).toMatchObject({ lost: 0, extra: 0, recovered: true });
    expect(result.points, `seed ${seed}`).toBeGreaterThan(0);
  },
);
