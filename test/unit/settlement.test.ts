/** Which ends are written together. */
import { expect, test } from 'vitest';
import { ofWholeClaims, type Settlement } from '../../src/jobs/settlement.js';

/** Ends of so many jobs of each claim, in that order. */
const queue = (...claims: readonly (readonly [token: string, jobs: number])[]): Settlement[] =>
  claims.flatMap(([leaseToken, jobs]) =>
    Array.from({ length: jobs }, () => ({ run: { job: { leaseToken } } }) as unknown as Settlement),
  );

test.each([
  ['nothing', queue(), 1_000, 0],
  ['all, of several claims', queue(['1', 100], ['2', 200]), 1_000, 300],
  ['all of one', queue(['1', 1_000]), 1_000, 1_000],
  ['what came before a claim that would be cut', queue(['1', 300], ['2', 1_000]), 1_000, 300],
  ['claims up to the one that would be cut', queue(['1', 100], ['2', 200], ['3', 800]), 1_000, 300],
  ['up to the end of a claim', queue(['1', 400], ['2', 600], ['3', 1]), 1_000, 1_000],
  ['a part of one that is longer than a statement', queue(['1', 1_500]), 1_000, 1_000],
  ['few whatever they came with', queue(['1', 3], ['2', 30]), 24, 24],
] as const)('%s', (_name, waiting, most, next) => {
  expect(ofWholeClaims(waiting, most)).toBe(next);
});
