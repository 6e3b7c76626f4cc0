/** A list that is read piece by piece: in order, none twice, none left out, and not more than the memory should hold. */
import { expect, test } from 'vitest';
import type { Job } from '../../src/jobs/job.js';
import { MAX_PAGE_LENGTH, readPage } from '../../src/shims/page.js';

/** `count` jobs, the newest first, each with a payload of so many characters. */
function table(count: number, length = 1) {
  const payloadText = 'x'.repeat(length);
  const jobs = Array.from({ length: count }, (_, n) => ({ id: String(count - n), payloadText }) as Job);
  const asked: number[] = [];
  return {
    asked,
    read: async (limit: number, beforeId: string | undefined) => {
      asked.push(limit);
      return jobs.filter(({ id }) => beforeId === undefined || Number(id) < Number(beforeId)).slice(0, limit);
    },
  };
}

test.each([
  [0, 10, 0],
  [24, 50, 24],
  [25, 50, 25],
  [60, 60, 60],
  [60, 59, 59],
  [200, 50, 50],
])('of %d jobs at most %d: %d, each once, in order', async (count, limit, expected) => {
  const { read, asked } = table(count);
  const { jobs, cut } = await readPage(limit, undefined, read);
  expect(jobs.map(({ id }) => id)).toEqual(Array.from({ length: expected }, (_, n) => String(count - n)));
  expect(cut).toBe(false);
  expect(Math.max(...asked)).toBeLessThanOrEqual(25);
});

test('below an id, and early when the payloads are long', async () => {
  const { read } = table(60, MAX_PAGE_LENGTH / 8);
  const first = await readPage(60, '41', read);
  expect(first.jobs.map(({ id }) => id)).toEqual(['40', '39', '38', '37', '36', '35', '34', '33']);
  expect(first.cut).toBe(true);
  const second = await readPage(60, first.jobs.at(-1)?.id, read);
  expect(second.jobs[0]?.id).toBe('32');
});

test('one that is too long by itself is given all the same', async () => {
  const { jobs, cut } = await readPage(10, undefined, table(2, MAX_PAGE_LENGTH + 1).read);
  expect([jobs.length, cut]).toEqual([1, true]);
});
