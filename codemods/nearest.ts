/** The name that somebody probably meant, for error messages. Pure; it refuses to be sure. */

const MAX_LENGTH = 200;

/** `; did you mean "kinds"?`, or nothing when no name is near. A longer name may differ by more. */
export function didYouMean(given: string, names: readonly string[]): string {
  if (given.length > MAX_LENGTH) return '';
  const far = Math.max(2, Math.floor(given.length / 5));
  const near = names
    .filter((name) => Math.abs(name.length - given.length) <= far)
    .map((name) => ({ name, distance: distance(given.toLowerCase(), name.toLowerCase()) }))
    .sort((a, b) => a.distance - b.distance)[0];
  return near === undefined || near.distance > far ? '' : `; did you mean "${near.name}"?`;
}

/** Insertions, removals and replacements that turn one text into the other. */
function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const replaced = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}
