/** The drain's progress line. */
import { expect, test } from 'vitest';
import { describe as line } from '../../src/cli/drain-progress.js';

test.each([
  [{ taken: 0, initial: 200 }, null, 'work [........................] 0/200 0%'],
  [{ taken: 50, initial: 200 }, 10, 'work [######..................] 50/200 25% 10/s, 15s left'],
  [{ taken: 0, initial: 1_000_000 }, 100, 'work [........................] 0/1000000 0% 100/s, 2h46m left'],
  [{ taken: 200, initial: 200 }, 5_000, 'work [########################] 200/200 100% 5000/s, 0s left'],
  [{ taken: 210, initial: 200 }, 0.4, 'work [########################] 210/200 100% 0/s'],
  [{ taken: 0, initial: 0 }, null, 'work [########################] 0/0 100%'],
])('%j at %s/s', (progress, rate, shown) => expect(line('work', progress, rate)).toBe(shown));

test.each([80, 60, 40, 24])('fits %i columns: the bar gives way, then the name; counts stay', (width) => {
  const shown = line('notification.work', { taken: 50_000, initial: 100_000 }, 500, width);
  expect(shown.length).toBeLessThanOrEqual(width);
  expect(shown).toMatch(
    width < 40 ? /50% 500\/s, 1m40s left$/ : /[#.]\] 50000\/100000 50% 500\/s, 1m40s left$/,
  );
});

test('a queue name cannot steer the terminal', () => {
  expect(line('a\u001b[2Jb', { taken: 0, initial: 1 }, null)).not.toContain('\u001b');
});
