/**
 * Reads Erlang terms as `rabbitmqctl eval` prints them: what a broker answers where no API speaks JSON. Pure; it knows the
 * notation, not what terms mean.
 */

export type ErlangTerm =
  | { readonly type: 'atom'; readonly name: string }
  | { readonly type: 'number'; readonly value: number }
  | { readonly type: 'binary'; readonly bytes: Buffer }
  /** Also a string, which is a list of its characters. */
  | { readonly type: 'list'; readonly items: readonly ErlangTerm[] }
  | { readonly type: 'tuple'; readonly items: readonly ErlangTerm[] }
  /** Maps, pids, references, functions: kept as text. */
  | { readonly type: 'other'; readonly text: string };

const MAX_DEPTH = 200;

/** Null when the text is not one term. */
export function readErlangTerm(text: string): ErlangTerm | null {
  try {
    const reader = new TermReader(text);
    const term = reader.term(0);
    reader.end();
    return term;
  } catch (error) {
    if (error instanceof NotATerm) return null;
    throw error;
  }
}

class NotATerm extends Error {}

class TermReader {
  #at = 0;

  constructor(private readonly text: string) {}

  term(depth: number): ErlangTerm {
    if (depth > MAX_DEPTH) throw new NotATerm();
    this.#space();
    const rest = this.text[this.#at] ?? '';
    if (this.#take('<<')) return { type: 'binary', bytes: this.#binary() };
    if (this.#take('{')) return { type: 'tuple', items: this.#items('}', depth) };
    if (this.#take('[')) return { type: 'list', items: this.#items(']', depth) };
    if (rest === '"') return { type: 'list', items: [...this.#characters()].map(asCodePoint) };
    if (rest === "'") return { type: 'atom', name: this.#quoted("'") };
    if (rest === '#' || rest === '<') return { type: 'other', text: this.#opaque() };
    const number = this.#match(/-?\d+(?:\.\d+(?:e[+-]?\d+)?)?/y);
    if (number !== null) return { type: 'number', value: Number(number) };
    const atom = this.#match(/[a-z][\w@]*/y);
    if (atom === null) throw new NotATerm();
    return { type: 'atom', name: atom };
  }

  end(): void {
    this.#take('.');
    this.#space();
    if (this.#at < this.text.length) throw new NotATerm();
  }

  #items(close: string, depth: number): ErlangTerm[] {
    const items: ErlangTerm[] = [];
    if (this.#take(close)) return items;
    for (;;) {
      items.push(this.term(depth + 1));
      if (this.#take(close)) return items;
      if (!this.#take(',')) throw new NotATerm();
    }
  }

  /** `<<1,2,255>>`, `<<"text">>`, and a text that is broken over lines, each part in its own quotes. */
  #binary(): Buffer {
    const parts: Buffer[] = [];
    if (this.#take('>>')) return Buffer.alloc(0);
    for (;;) {
      this.#space();
      if (this.text[this.#at] === '"') {
        const characters = this.#characters();
        // Printed as UTF-8 characters or as bytes; the mark says which.
        parts.push(Buffer.from(characters, this.#take('/utf8') ? 'utf8' : 'latin1'));
      } else {
        const byte = this.#match(/\d{1,3}/y);
        if (byte === null || Number(byte) > 255) throw new NotATerm();
        parts.push(Buffer.of(Number(byte)));
      }
      if (this.#take('>>')) return Buffer.concat(parts);
      if (!this.#take(',')) throw new NotATerm();
    }
  }

  /** A string and those that follow it without a comma. */
  #characters(): string {
    let text = '';
    while (this.text[this.#at] === '"') {
      text += this.#quoted('"');
      this.#space();
    }
    return text;
  }

  #quoted(mark: string): string {
    this.#at += 1;
    let text = '';
    for (;;) {
      const character = this.text[this.#at];
      if (character === undefined) throw new NotATerm();
      this.#at += 1;
      if (character === mark) return text;
      text += character === '\\' ? this.#escape() : character;
    }
  }

  #escape(): string {
    const hex = this.#match(/x\{([0-9A-Fa-f]{1,6})\}/y) ?? this.#match(/x[0-9A-Fa-f]{2}/y);
    if (hex !== null) return String.fromCodePoint(Number.parseInt(hex.replace(/[x{}]/g, ''), 16));
    const octal = this.#match(/[0-7]{1,3}/y);
    if (octal !== null) return String.fromCharCode(Number.parseInt(octal, 8));
    const letter = this.text[this.#at] ?? '';
    this.#at += 1;
    return ESCAPES[letter] ?? letter;
  }

  /** `#Ref<0.1.2>`, `<0.1.0>`, `#Fun<erl_eval.20>`, `#{a => 1}`. */
  #opaque(): string {
    const from = this.#at;
    this.#match(/#?\w*/y);
    const open = this.text[this.#at];
    const close = open === '<' ? '>' : '}';
    let depth = 0;
    while (this.#at < this.text.length) {
      const character = this.text[this.#at];
      if (character === '"' || character === "'") {
        this.#quoted(character);
        continue;
      }
      this.#at += 1;
      if (character === open) depth += 1;
      // The arrow of a map is no bracket.
      if (character === close && this.text[this.#at - 2] !== '=') depth -= 1;
      if (depth === 0) return this.text.slice(from, this.#at);
    }
    throw new NotATerm();
  }

  #space(): void {
    this.#match(/\s+/y);
  }

  #take(sign: string): boolean {
    this.#space();
    if (!this.text.startsWith(sign, this.#at)) return false;
    this.#at += sign.length;
    return true;
  }

  #match(pattern: RegExp): string | null {
    pattern.lastIndex = this.#at;
    const [found] = pattern.exec(this.text) ?? [];
    if (found === undefined) return null;
    this.#at += found.length;
    return found;
  }
}

const ESCAPES: Readonly<Record<string, string>> = {
  ...{ n: '\n', r: '\r', t: '\t', b: '\b', f: '\f', v: '\v' },
  ...{ e: '\u001b', s: ' ', d: '\u007f' },
};

const asCodePoint = (character: string): ErlangTerm => ({
  type: 'number',
  value: character.codePointAt(0) ?? 0,
});
