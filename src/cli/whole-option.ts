/** A whole number that was given as an option. */
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
