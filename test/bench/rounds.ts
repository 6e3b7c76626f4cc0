/** Interleaved rounds and what is said of them: medians, ranges, ratios of figures of the same round. */

/**
 * Measures every case once a round, in reversed order each second round, so that whatever drifts hits all alike.
 * Answers the figures of each case, a round each.
 */
export async function interleave<Name extends string, Figure>(
  names: readonly Name[],
  rounds: number,
  measure: (name: Name, round: number) => Promise<Figure>,
): Promise<Record<Name, Figure[]>> {
  const figures = Object.fromEntries(names.map((name) => [name, []])) as unknown as Record<Name, Figure[]>;
  for (let round = 0; round < rounds; round += 1) {
    const order = round % 2 === 0 ? names : [...names].reverse();
    for (const name of order) figures[name].push(await measure(name, round));
  }
  return figures;
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  const upper = sorted[middle] ?? Number.NaN;
  return sorted.length % 2 === 1 ? upper : ((sorted[middle - 1] ?? Number.NaN) + upper) / 2;
}

export function quantile(values: readonly number[], q: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? Number.NaN;
}

/** The median of the ratios within each round. Null when one of the two was not measured. */
export function pairedRatio(of: readonly number[], to: readonly number[]): number | null {
  if (of.length === 0 || of.length !== to.length) return null;
  return round(median(of.map((value, i) => value / (to[i] ?? Number.NaN))), 2);
}

export function range(values: readonly number[], digits = 0): string {
  const shown = (value: number): string => round(value, digits).toLocaleString('en');
  if (values.length === 0) return '–';
  return `${shown(median(values))} (${shown(Math.min(...values))}–${shown(Math.max(...values))})`;
}

export function round(value: number, digits = 0): number {
  return Number(value.toFixed(digits));
}
