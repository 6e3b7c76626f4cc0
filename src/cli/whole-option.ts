/** Whole numbers that were given as options. */
import { invalid } from '../check.js';

/** Throws `config-invalid`, which says `what` it must be: a whole number, of something. */
export function wholeOption(
  text: string,
  name: string,
  min: number,
  max: number,
  what = 'a whole number',
): number {
  const number = Number(text);
  if (/^(?!-0)-?\d{1,10}$/.test(text) && number >= min && number <= max) return number;
  throw invalid(name, `${what} from ${min} to ${max}`);
}

const MAX_RATE = 1_000_000;

/** `--rate`, in messages per second. Undefined when it is not given. */
export function rateOption(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  return wholeOption(text, '--rate', 1, MAX_RATE, 'a whole number of messages per second');
}
