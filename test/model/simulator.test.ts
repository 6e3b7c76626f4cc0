/** Ten thousand histories without a broken promise, and each planted mutant caught: else the simulator proves nothing. */
import { expect, test } from 'vitest';
import { MUTANTS, type Mutant, simulate } from './simulator.js';

/** UNBROKER_SEED=n replays one. */
const given = process.env['UNBROKER_SEED'];
const FIRST = given === undefined ? Math.floor(Math.random() * 2 ** 31) : Number(given);
const SEEDS = given === undefined ? 2_000 : 1;

test(`${SEEDS} of the 10,000 histories keep every promise (from UNBROKER_SEED=${FIRST})`, () => {
  for (let seed = FIRST; seed < FIRST + SEEDS; seed += 1) expect(simulate(seed)).toBeNull();
}, 180_000);

test.each(Object.keys(MUTANTS) as Mutant[])('%s is caught within 500 seeds', (mutant) => {
  let seeds = 0;
  while (seeds < 500 && simulate(FIRST + seeds, mutant) === null) seeds += 1;
  expect(seeds).toBeLessThan(500);
});

test('a seed is a history: the same again', () => {
  const mutant = 'no-token-at-finish';
  let seed = FIRST;
  while (simulate(seed, mutant) === null) seed += 1;
  expect(simulate(seed, mutant)).toEqual(simulate(seed, mutant));
});
