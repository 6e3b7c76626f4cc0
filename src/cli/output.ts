/**
 * Answers on stdout: a table for people, one JSON object as the last line for programs. A terminal that is too narrow for
 * a table gets its cells in several lines, or, where no word would fit, each row as a block. A pipe has no width.
 */
import Table from 'cli-table3';
import { printable } from './printable.js';

const MAX_CELL = 80;
/** A column of less is read letter by letter. */
const MIN_ROOM = 8;

/**
 * Rows under a head; cells are made safe for a terminal and cut to 80 characters. `width` in columns, undefined for as wide
 * as it gets.
 */
export function table(
  head: readonly string[],
  rows: readonly (readonly unknown[])[],
  width: number | undefined = columnsOf(process.stdout),
): string {
  const cells = rows.map((row) => row.map(cell));
  const whole = grid(head, cells);
  if (width === undefined || widthOf(whole) <= width) return whole;
  const narrow = grid(...wrapped(head, cells, width));
  return widthOf(narrow) <= width ? narrow : blocks(head, cells);
}

/** Undefined for what is no terminal, or does not know its width. */
export const columnsOf = (stream: NodeJS.WriteStream): number | undefined =>
  stream.isTTY && stream.columns > 0 ? stream.columns : undefined;

/** With lines between the rows only where a first cell of several lines would not tell where one begins. */
function grid(head: readonly string[], cells: readonly (readonly string[])[]): string {
  const compact = !cells.some(([first]) => first?.includes('\n'));
  const drawn = new Table({ head: [...head], style: { head: [], border: [], compact } });
  for (const row of cells) drawn.push([...row]);
  return drawn.toString();
}

/** Of its border: one column a character, whatever the cells hold. */
const widthOf = (drawn: string): number => drawn.split('\n', 1)[0]?.length ?? 0;

/** The widest columns give way first, each down to its longest word. */
function wrapped(
  head: readonly string[],
  cells: readonly (readonly string[])[],
  width: number,
): [string[], string[][]] {
  const shown = cells.map((row) => row.map(shortTime));
  const columns = head.map((title, at) => [title, ...shown.map((row) => row[at] ?? '')]);
  const room = columns.map(longest);
  const least = columns.map((texts, at) =>
    Math.max(longest(texts.flatMap(wordsOf)), Math.min(room[at] ?? 0, MIN_ROOM)),
  );
  // A space on each side of each cell, a border after it, and the first border.
  let excess = room.reduce((sum, each) => sum + each + 3, 1) - width;
  for (; excess > 0; excess -= 1) {
    const givers = room.map((each, at) => (each > (least[at] ?? 0) ? each : 0));
    const widest = Math.max(...givers);
    if (widest === 0) break;
    room[givers.indexOf(widest)] = widest - 1;
  }
  const inRoom = (row: readonly string[]): string[] =>
    row.map((text, at) => wrap(text, room[at] ?? text.length));
  return [inRoom(head), shown.map(inRoom)];
}

const longest = (texts: readonly string[]): number => Math.max(0, ...texts.map((text) => [...text].length));

const shortTime = (text: string): string =>
  text.replace(/^(\d{4}-\d{2}-\d{2})T(\d{2}:\d{2}:\d{2})\.\d+Z$/, '$1 $2Z');

/** A time is cut before its hour, all else after a space, dots, dashes and the like. */
const wordsOf = (text: string): string[] =>
  /^\d{4}-\d{2}-\d{2} /.test(text) ? text.split(/(?<= )/) : text.split(/(?<=[\s./#:,_-])(?=\S)/);

function wrap(text: string, room: number): string {
  const lines: string[] = [];
  let line = '';
  for (const word of wordsOf(text)) {
    if (line !== '' && [...(line + word).trimEnd()].length > room) {
      lines.push(line.trimEnd());
      line = '';
    }
    line += word;
  }
  return [...lines, line].join('\n');
}

/** As psql's expanded form: a line for each cell that holds something. */
function blocks(head: readonly string[], cells: readonly (readonly string[])[]): string {
  const room = longest(head);
  const block = (row: readonly string[]): string =>
    head.flatMap((title, at) => (row[at] ? [`${title.padEnd(room)}  ${row[at]}`] : [])).join('\n');
  // A blank line after each: what follows is not of the last.
  return cells.map((row) => `${block(row)}\n`).join('\n');
}

/** Whether a table shows only its beginning. */
export const isCut = (text: string): boolean => printable(text).length > MAX_CELL;

function cell(value: unknown): string {
  if (value === null || value === undefined) return '';
  const text = value instanceof Date ? value.toISOString() : printable(String(value));
  return text.length > MAX_CELL ? `${text.slice(0, MAX_CELL - 1)}…` : text;
}

export function print(text: string): void {
  process.stdout.write(`${text}\n`);
}

/** `--json`: one line. */
export function printJson(value: unknown): void {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}
