/**
 * Answers on stdout: a table for people, one JSON object as the last line for programs.
 */
import Table from 'cli-table3';
import { printable } from './context.js';

/** Rows under a head; cells are made safe for a terminal and cut to 80 characters. */
export function table(head: readonly string[], rows: readonly (readonly unknown[])[]): string {
  const grid = new Table({ head: [...head], style: { head: [], border: [], compact: true } });
  for (const row of rows) grid.push(row.map(cell));
  return grid.toString();
}

function cell(value: unknown): string {
  if (value === null || value === undefined) return '';
  const text = value instanceof Date ? value.toISOString() : printable(String(value));
  return text.length > 80 ? `${text.slice(0, 79)}…` : text;
}

export function print(text: string): void {
  process.stdout.write(`${text}\n`);
}

/** `--json`: one line. */
export function printJson(value: unknown): void {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}
