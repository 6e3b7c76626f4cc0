/**
 * Times in an answer. The driver reads a timestamp that is written in the ISO style, and none in any other that a role or a
 * database may ask for (DateStyle): so they travel as numbers and become dates here. Pure.
 */

/** A column of epoch ms. */
export const epochMs = (time: string): string => `date_part('epoch', ${time}) * 1000`;

/** Half a microsecond, the table's smallest part: what a time's last digit may lose on its way as a float. */
const HALF = 0.0005;

/** The same rows, with dates where these fields have epoch ms. */
export function withDates<Row>(rows: readonly unknown[], fields: readonly (keyof Row & string)[]): Row[] {
  for (const row of rows as Record<string, unknown>[])
    for (const field of fields) {
      const ms = row[field];
      if (typeof ms === 'number') row[field] = new Date(Math.floor(ms + HALF));
    }
  return rows as Row[];
}
