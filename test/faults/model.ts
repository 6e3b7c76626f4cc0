/** `npm run faults -- model [--long]`: the simulator's histories, and how soon each planted mutant is caught. */
import { MUTANTS, type Mutant, simulate, type Violation } from '../model/simulator.js';

const MAX_SEEDS = 500;
/** Mutants are looked for from so many starting points; the slowest counts. */
const STARTS = 5;

export async function faultsModel({ long }: { readonly long: boolean }): Promise<object> {
  const from = Math.floor(Math.random() * 2 ** 30);
  const seeds = long ? 100_000 : 10_000;
  const violations: Violation[] = [];
  for (let seed = from; seed < from + seeds && violations.length < 5; seed += 1) {
    const violation = simulate(seed);
    if (violation !== null) violations.push(violation);
  }
  const caughtAfter = Object.fromEntries(
    (Object.keys(MUTANTS) as Mutant[]).map((mutant) => [mutant, slowest(mutant, from)]),
  );
  const missed = Object.values(caughtAfter).filter((found) => found === null).length;
  return { seeds, from, failed: violations.length + missed, violations, caughtAfter };
}

/** Seeds until it was caught; null when one start had not caught it in time. */
function slowest(mutant: Mutant, from: number): { seeds: number; invariant: string } | null {
  let worst = { seeds: 0, invariant: '' };
  for (let start = 0; start < STARTS; start += 1) {
    const first = from + start * MAX_SEEDS;
    let seed = first;
    let violation = simulate(seed, mutant);
    while (violation === null && seed - first < MAX_SEEDS - 1) {
      seed += 1;
      violation = simulate(seed, mutant);
    }
    if (violation === null) return null;
    if (seed - first + 1 >= worst.seeds) worst = { seeds: seed - first + 1, invariant: violation.invariant };
  }
  return worst;
}
