/** Which message a broker ends the connection for, found out by counts: alone in the end, in few attempts, never for ever. */
import { expect, test } from 'vitest';
import type { Prepared } from '../../adapters/rabbitmq/undo-messages.js';
import { Refusals } from '../../adapters/rabbitmq/undo-refusals.js';
import { Suspects } from '../../adapters/rabbitmq/undo-suspects.js';

const message = (position: number) => ({ row: { batch: '1', position } }) as unknown as Prepared;
const all = Array.from({ length: 100 }, (_, index) => message(index + 1));

/** Sends what is left until nothing is: a part with a poisoned message delivers what comes before it, then the connection ends. */
function giveBack(poisoned: readonly number[]) {
  const suspects = new Suspects();
  const refusals = new Refusals();
  const moved = new Set<number>();
  let attempts = 0;
  for (;;) {
    attempts += 1;
    refusals.begin();
    const left = all.filter(({ row }) => !moved.has(row.position) && !refusals.isPoison(`1/${row.position}`));
    let ended = false;
    for (const part of suspects.split(left)) {
      const at = part.findIndex(({ row }) => poisoned.includes(row.position));
      const arrived = at === -1 ? part : part.slice(0, at);
      for (const { row } of arrived) moved.add(row.position);
      if (at === -1) {
        for (const each of part) suspects.acquit(each);
        continue;
      }
      suspects.ended(part, 541);
      expect(suspects.blame(arrived.length, refusals), `attempt ${attempts}`).toBe(true);
      ended = true;
      break;
    }
    if (!ended) return { attempts, moved: moved.size, refused: refusals.byReason };
  }
}

test.each([[[]], [[1]], [[50]], [[100]], [[1, 2, 3]], [[10, 60, 61]]])('poisoned: %j', (poisoned) => {
  const { attempts, moved, refused } = giveBack(poisoned);
  expect(moved).toBe(100 - poisoned.length);
  expect(refused).toEqual(poisoned.length === 0 ? {} : { 'the-broker-refuses-it-541': poisoned.length });
  expect(attempts).toBeLessThanOrEqual(1 + 2 * poisoned.length);
});

test('an end that no message caused blames none', () => {
  const suspects = new Suspects();
  suspects.ended(all, undefined);
  expect(suspects.blame(3, new Refusals())).toBe(false);
  expect(suspects.split(all)).toEqual([all]);
});

test('the same suspicion twice tells nothing new: whoever counts attempts in vain must count it', () => {
  const suspects = new Suspects();
  for (const expected of [true, false]) {
    suspects.ended(all, 541);
    expect(suspects.blame(0, new Refusals())).toBe(expected);
  }
});

test('parts keep the order; suspects go alone', () => {
  const suspects = new Suspects();
  suspects.ended(all.slice(4, 6), 541);
  suspects.blame(0, new Refusals());
  const parts = suspects.split(all.slice(0, 8)).map((part) => part.map(({ row }) => row.position));
  expect(parts).toEqual([[1, 2, 3, 4], [5], [6], [7, 8]]);
});
