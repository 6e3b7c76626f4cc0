/** Runs that come and go: what is in the list, and that what left it is garbage. */
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { Run } from '../../src/jobs/handler.js';
import { RunList } from '../../src/jobs/run-list.js';

const run = (): Run => ({ slotAt: -1, leaseAt: -1 }) as Run;

test('holds what a set would hold, in two lists at once', () => {
  const step = fc.record({
    list: fc.constantFrom(0, 1),
    act: fc.constantFrom('add', 'delete'),
    run: fc.nat(9),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const runs = Array.from({ length: 10 }, run);
      const lists = [new RunList('slotAt'), new RunList('leaseAt')] as const;
      const sets = [new Set<Run>(), new Set<Run>()] as const;
      for (const { list, act, run: at } of steps) {
        const one = runs[at] as Run;
        lists[list as 0 | 1][act as 'add' | 'delete'](one);
        sets[list as 0 | 1][act as 'add' | 'delete'](one);
      }
      for (const list of [0, 1] as const) {
        expect(lists[list].size).toBe(sets[list].size);
        expect(new Set(lists[list].all())).toEqual(sets[list]);
        expect(runs.filter((one) => lists[list].has(one))).toEqual(runs.filter((one) => sets[list].has(one)));
      }
    }),
  );
});

test('what left it is young garbage: next to nothing of 200,000 runs is kept for the old generation', () => {
  const file = fileURLToPath(new URL('../../src/jobs/run-list.ts', import.meta.url));
  const churn = `
import { RunList } from ${JSON.stringify(file)};
const list = new RunList('slotAt');
const batches = [];
for (let batch = 0; batch < 200; batch += 1) {
  const runs = Array.from({ length: 1_000 }, () => ({ slotAt: -1, leaseAt: -1, job: new Array(40).fill(0) }));
  for (const run of runs) list.add(run);
  batches.push(runs);
  if (batches.length > 2) for (const run of batches.shift()) list.delete(run);
}`;
  const { stdout, status } = spawnSync(
    process.execPath,
    ['--trace-gc', '--trace-gc-nvp', '--import', 'tsx', '--input-type=module', '-e', churn],
    { encoding: 'utf8', timeout: 60_000 },
  );
  expect(status).toBe(0);
  const sum = (figure: string): number =>
    [...stdout.matchAll(new RegExp(` ${figure}=(\\d+)`, 'g'))].reduce(
      (all, [, bytes]) => all + Number(bytes),
      0,
    );
  expect(sum('allocated')).toBeGreaterThan(60_000_000);
  // A set here: 83 MB on Node 20, 16 MB on Node 24; the list: 4 and 3.
  expect(sum('promoted')).toBeLessThan(12_000_000);
});
