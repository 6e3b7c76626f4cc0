/**
 * Times as QStash's clients write them: `10s`, `1d10h`, epoch seconds, and the formula of a retry's delay. Pure; a formula
 * is read by a small parser of its own, never evaluated as code.
 */

const UNIT_MS: Readonly<Record<string, number>> = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** ms; null for anything else. A bare number counts seconds. */
export function parseDelay(text: string): number | null {
  if (/^\d{1,9}$/.test(text)) return Number(text) * 1_000;
  if (!/^(?:\d{1,9}[smhd])+$/.test(text)) return null;
  let ms = 0;
  for (const [, count = '0', unit = 's'] of text.matchAll(/(\d+)([smhd])/g))
    ms += Number(count) * (UNIT_MS[unit] ?? 0);
  return ms;
}

const FUNCTIONS: Readonly<Record<string, (...args: number[]) => number>> = {
  pow: Math.pow,
  sqrt: Math.sqrt,
  abs: Math.abs,
  exp: Math.exp,
  floor: Math.floor,
  ceil: Math.ceil,
  round: Math.round,
  min: Math.min,
  max: Math.max,
};

const MAX_LENGTH = 200;
const MAX_DEPTH = 20;

/** ms for a number of failed attempts; null when the formula cannot be read. */
export function delayFormula(text: string): ((retried: number) => number) | null {
  if (text.length > MAX_LENGTH) return null;
  const tokens = text.match(/\d+(?:\.\d+)?|[a-z]+|[-+*/(),]|\S/g) ?? [];
  const evaluate = (retried: number): number => new Formula(tokens, retried).value();
  try {
    return Number.isFinite(evaluate(1)) ? evaluate : null;
  } catch {
    return null;
  }
}

/** Sums of products of numbers, `retried` and calls. Throws SyntaxError. */
class Formula {
  #at = 0;
  #depth = 0;

  constructor(
    private readonly tokens: readonly string[],
    private readonly retried: number,
  ) {}

  value(): number {
    const value = this.#sum();
    if (this.#at !== this.tokens.length) throw new SyntaxError('something follows the formula');
    return value;
  }

  #sum(): number {
    this.#depth += 1;
    if (this.#depth > MAX_DEPTH) throw new SyntaxError('nested too deeply');
    let value = this.#product();
    for (let sign = this.#take('+', '-'); sign !== null; sign = this.#take('+', '-'))
      value += sign === '+' ? this.#product() : -this.#product();
    this.#depth -= 1;
    return value;
  }

  #product(): number {
    let value = this.#factor();
    for (let sign = this.#take('*', '/'); sign !== null; sign = this.#take('*', '/')) {
      const next = this.#factor();
      value = sign === '*' ? value * next : value / next;
    }
    return value;
  }

  #factor(): number {
    const token = this.tokens[this.#at] ?? '';
    this.#at += 1;
    if (/^\d/.test(token)) return Number(token);
    if (token === 'retried') return this.retried;
    if (token === '(') return this.#closed(this.#sum());
    const call = Object.hasOwn(FUNCTIONS, token) ? FUNCTIONS[token] : undefined;
    if (call === undefined || this.#take('(') === null) throw new SyntaxError('unknown word');
    const args = [this.#sum()];
    while (this.#take(',') !== null) args.push(this.#sum());
    return this.#closed(call(...args));
  }

  #closed(value: number): number {
    if (this.#take(')') === null) throw new SyntaxError('a bracket is open');
    return value;
  }

  #take(...wanted: readonly string[]): string | null {
    const token = this.tokens[this.#at];
    if (token === undefined || !wanted.includes(token)) return null;
    this.#at += 1;
    return token;
  }
}
