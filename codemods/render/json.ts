/** The plan as data: what `--json` prints as its last line. Positions are 1-based lines, paths relative to the root. */

import type { Plan } from '../plan.js';

export function renderJson(plan: Plan): object {
  const { changes, ...rest } = plan;
  return { ...rest, changes: changes.map(({ path, hash, leftovers }) => ({ path, hash, leftovers })) };
}
