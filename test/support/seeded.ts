/** Chance that can be repeated: numbers from a seed, and a failure that names its seed. */

/** Numbers in [0, 1) from a seed. */
export function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

export const newSeed = (): number => Date.now() % 2 ** 31;

/** Runs with a new seed; what fails says which. */
export async function withSeed(run: (seed: number) => Promise<unknown>): Promise<void> {
  const seed = newSeed();
  try {
    await run(seed);
  } catch (error) {
    if (error instanceof Error) error.message = `seed ${seed}: ${error.message}`;
    throw error;
  }
}
