/** What a drain's plan says about a queue beside its rows. */
import { expect, test } from 'vitest';
import { notesOf } from '../../src/cli/drain-plan.js';

const queue = {
  ...{
    queue: 'q',
    role: 'main' as const,
    ready: 3,
    refused: null,
    otherWay: null,
    looked: 3,
    redelivered: 0,
  },
  ...{ kinds: { 'order.placed': 3 }, rows: [] },
};

test('nothing when there is nothing to say; a rule where kinds are missing; the look that counts nothing', () => {
  expect(notesOf(queue)).toEqual([]);
  expect(notesOf({ ...queue, kinds: { unmapped: 2, 'order.placed': 1 } })).toEqual([
    expect.stringMatching(
      /Add a rule under drain\.rules, for example \{ match: \{ exchange: 'shop' \}.* for this queue \{ match: \{ queue: 'q' \}/,
    ),
  ]);
  expect(notesOf({ ...queue, redelivered: 2 })[0]).toContain('2 were delivered before');
  expect(notesOf({ ...queue, refused: 'counts', otherWay: 'rabbitmq-queues peek' })).toEqual([
    'look with rabbitmq-queues peek',
  ]);
});
