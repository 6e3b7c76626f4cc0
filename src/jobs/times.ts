/**
 * Times in an answer. The driver reads a timestamp that is written in the ISO style, and none in any other that a role or a
 * database may ask for (DateStyle): so they travel as numbers and become dates here. Pure.
 */

/** A column of epoch ms. */
export const epochMs = (time: string): string => `date_part('epoch', ${time}) * 1000`;

/** Half a microsecond, the table's smallest part: what a time's last digit may lose on its way as a float. */
const HALF = 0.0005;

/** The last that a Date can be; before it, the first. By hand a row may get a time beyond it, or 'infinity': run it when I say so. */
const MAX_DATE_MS = 8_640_000_000_000_000;

/**
 * The same rows, with dates where these fields have epoch ms. One that no Date can be is the nearest that can: an invalid one is thrown
 * at by whoever writes it down, and one such row had ended a list of all jobs.
 */
export function withDates<Row>(rows: readonly unknown[], fields: readonly (keyof Row & string)[]): Row[] {
  for (const row of rows as Record<string, unknown>[])
    for (const field of fields) {
      const ms = row[field];
      if (typeof ms === 'number')
        row[field] = new Date(Math.min(Math.max(Math.floor(ms + HALF), -MAX_DATE_MS), MAX_DATE_MS));
    }
  return rows as Row[];
}

/**
 * How long ago a time was, in ms; of what is before 1970, '-infinity' too, since then. The server takes nothing from infinity before 17,
 * and one job put in with such a run_at had left the metrics without the table and the doctor without an answer.
 */
export const agoMs = (time: string, now = 'now()'): string =>
  `date_part('epoch', ${now} - greatest(${time}, 'epoch')) * 1000`;
