/**
 * Says on stderr what a long scan is at: nothing in the first seconds, then a line now and then, on a terminal one that
 * rewrites itself. It knows no codemods, only their words.
 */
import { printable } from './printable.js';

const QUIET_MS = 2_000;
const REDRAW_MS = 200;
const LINE_MS = 5_000;

export interface StepLine {
  readonly step: (what: string) => void;
  /** Takes the line off the terminal. */
  readonly end: () => void;
}

/** `now`: milliseconds of a clock that only goes forward. `columns` of the terminal. */
export function stepLine(
  write: (text: string) => void,
  isTerminal: boolean,
  now: () => number = () => performance.now(),
  columns = process.stderr.columns || 100,
): StepLine {
  let nextAt = now() + QUIET_MS;
  let drawn = false;
  return {
    step(what) {
      if (now() < nextAt) return;
      nextAt = now() + (isTerminal ? REDRAW_MS : LINE_MS);
      drawn = true;
      const line = printable(what);
      write(isTerminal ? `\r\u001b[K${line.slice(0, columns - 1)}` : `${line}\n`);
    },
    end() {
      if (drawn && isTerminal) write('\r\u001b[K');
    },
  };
}
