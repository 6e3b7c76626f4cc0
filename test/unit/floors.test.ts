import { expect, test } from 'vitest';
import { Floors } from '../../src/jobs/floors.js';
import type { ClaimedJob } from '../../src/jobs/job.js';

const job = (id: string, kind = 'a', priority = 0): ClaimedJob =>
  ({ id, kind, priority, orderingKey: null }) as ClaimedJob;

test('the first claim starts at the head, those of the next half second behind the last jobs', () => {
  const floors = new Floors();
  expect(floors.at(0)).toEqual([]);
  floors.claimed([job('1'), job('2'), job('3', 'a', -1), job('4', 'b')], [], 0, 10);
  expect(floors.at(11)).toEqual(['2', '3', '4']);
  floors.claimed([job('5')], ['2', '3', '4'], 11, 12);
  expect(floors.at(509)).toEqual(['5', '3', '4']);
  expect(floors.at(510)).toEqual([]);
});

test('a claim from the head forgets what was before it', () => {
  const floors = new Floors();
  floors.claimed([job('1', 'b')], [], 0, 1);
  floors.claimed([job('2')], [], 2_000, 2_001);
  expect(floors.at(2_002)).toEqual(['2']);
});

test('a claim from the head that was slow is not repeated before twenty times its time', () => {
  const floors = new Floors();
  floors.claimed([job('1')], [], 0, 100);
  expect(floors.at(2_099)).toEqual(['1']);
  expect(floors.at(2_100)).toEqual([]);
});

test('more than a hundred kinds and priorities are not kept', () => {
  const floors = new Floors();
  const many = Array.from({ length: 150 }, (_, n) => job(String(n), `kind ${n}`));
  floors.claimed(many, [], 0, 1);
  expect(floors.at(2)).toHaveLength(100);
  floors.claimed([job('new', 'kind 7')], ['0'], 2, 3);
  expect(floors.at(4)).toContain('new');
});
