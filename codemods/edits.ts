/**
 * Text edits by offset, and the layout of the text around them: line ends, indentation, semicolons. Pure: strings in,
 * strings out. Bytes outside an edit do not change.
 */

import { ts } from 'ts-morph';
import { eachNode } from './syntax.js';

export interface TextEdit {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

/**
 * Applies edits bottom-up in one go. Insertions at one offset keep their order and go in front of a replacement
 * that starts there. Throws RangeError on edits that overlap: that is a bug, and half an edit would be worse.
 */
export function applyEdits(text: string, edits: readonly TextEdit[]): string {
  const sorted = edits
    .map((edit, order) => ({ edit, order }))
    .sort((a, b) => a.edit.start - b.edit.start || a.edit.end - b.edit.end || a.order - b.order)
    .map(({ edit }) => edit);
  let result = '';
  let at = 0;
  for (const edit of sorted) {
    if (edit.start < at || edit.end < edit.start || edit.end > text.length) {
      throw new RangeError(`overlapping edits at ${edit.start}`);
    }
    result += text.slice(at, edit.start) + edit.text;
    at = edit.end;
  }
  return result + text.slice(at);
}

/** How a file is laid out; read from its text once. */
export interface Layout {
  readonly eol: string;
  /** One step of indentation. */
  readonly unit: string;
  /** `;` or nothing. */
  readonly semi: string;
  readonly quote: "'" | '"';
}

export function layoutOf(file: ts.SourceFile): Layout {
  const { text } = file;
  const crlf = text.split('\r\n').length - 1;
  const lf = text.split('\n').length - 1 - crlf;
  return {
    eol: crlf > lf ? '\r\n' : '\n',
    unit: indentUnit(text),
    semi: usesSemicolons(file) ? ';' : '',
    quote: quoteOf(file),
  };
}

/** The step by which lines are most often indented further than the one above; two spaces when none is. */
function indentUnit(text: string): string {
  const steps = new Map<string, number>();
  let above = '';
  for (const line of text.split('\n')) {
    if (line.trim() === '' || /^\s*\*/.test(line)) continue;
    const indent = /^[ \t]*/.exec(line)?.[0] ?? '';
    const step = indent.startsWith(above) ? indent.slice(above.length) : '';
    if (step === '\t' || /^ {2,8}$/.test(step)) steps.set(step, (steps.get(step) ?? 0) + 1);
    above = indent;
  }
  const [best] = [...steps].sort((a, b) => b[1] - a[1]);
  return best?.[0] ?? '  ';
}

function usesSemicolons(file: ts.SourceFile): boolean {
  let withSemi = 0;
  let without = 0;
  eachNode(file, (node) => {
    if (ts.isExpressionStatement(node) || ts.isVariableStatement(node) || ts.isReturnStatement(node)) {
      if (file.text[node.end - 1] === ';') withSemi++;
      else without++;
    }
  });
  return withSemi >= without;
}

function quoteOf(file: ts.SourceFile): "'" | '"' {
  let single = 0;
  let double = 0;
  eachNode(file, (node) => {
    if (ts.isStringLiteral(node)) {
      if (file.text[node.getStart(file)] === '"') double++;
      else single++;
    }
  });
  return double > single ? '"' : "'";
}

export function quoteText(text: string, quote: "'" | '"'): string {
  const json = JSON.stringify(text).replace(/[\u2028\u2029]/g, (c) => `\\u${c.charCodeAt(0).toString(16)}`);
  return quote === '"' ? json : `'${json.slice(1, -1).replaceAll('\\"', '"').replaceAll("'", "\\'")}'`;
}

// ── lines ──

export function lineStart(text: string, offset: number): number {
  return text.lastIndexOf('\n', offset - 1) + 1;
}

/** Behind the line break that ends this line, or the end of the text. */
export function nextLine(text: string, offset: number): number {
  const at = text.indexOf('\n', offset);
  return at < 0 ? text.length : at + 1;
}

export function indentAt(text: string, offset: number): string {
  const start = lineStart(text, offset);
  return /^[ \t]*/.exec(text.slice(start, offset))?.[0] ?? '';
}

/** A statement with the comments that belong to it, as whole lines where it has its lines to itself. */
export interface Span {
  readonly start: number;
  readonly end: number;
  /** Whether the span is whole lines. */
  readonly lines: boolean;
}

export function spanOf(statement: ts.Node, file: ts.SourceFile): Span {
  const { text } = file;
  const start = statement.getStart(file);
  const first = lineStart(text, start);
  const after = /^[ \t]*(?:\/\/[^\r\n]*|\/\*(?:(?!\*\/)[^\r\n])*\*\/[ \t]*)?(?:\r?\n|$)/.exec(
    text.slice(statement.end),
  );
  if (text.slice(first, start).trim() !== '' || after === null)
    return { start, end: statement.end, lines: false };
  return { start: firstAttached(text, first), end: statement.end + after[0].length, lines: true };
}

/** Own-line comments directly above, without a blank line between, belong to the statement. */
function firstAttached(text: string, first: number): number {
  let start = first;
  while (start > 0) {
    const above = lineStart(text, start - 1);
    if (!/^[ \t]*\/\//.test(text.slice(above, start))) break;
    start = above;
  }
  return start;
}

/**
 * Whole lines to remove, grown by one blank line where the gap would leave two, or one against a brace. Ranges that
 * touch are removed as one.
 */
export function removeLines(text: string, ranges: readonly { start: number; end: number }[]): TextEdit[] {
  const merged: { start: number; end: number }[] = [];
  for (const range of [...ranges].sort((a, b) => a.start - b.start)) {
    const last = merged.at(-1);
    if (last !== undefined && range.start <= last.end) last.end = Math.max(last.end, range.end);
    else if (last !== undefined && text.slice(last.end, range.start).trim() === '') last.end = range.end;
    else merged.push({ ...range });
  }
  return merged.map(({ start, end }) => {
    if (start !== lineStart(text, start)) return { start, end, text: '' };
    const above = start === 0 ? '' : text.slice(lineStart(text, start - 1), start);
    const below = text.slice(end, nextLine(text, end));
    const isBlank = (line: string): boolean => line.trim() === '';
    if (start > 0 && isBlank(above) && (isBlank(below) || /^\s*[}\])]/.test(below))) {
      return { start: lineStart(text, start - 1), end, text: '' };
    }
    if (end < text.length && isBlank(below) && (start === 0 || /[{([]\s*$/.test(above))) {
      return { start, end: nextLine(text, end), text: '' };
    }
    return { start, end, text: '' };
  });
}

// ── indentation ──

/** Offsets of line starts inside template literals: what stands there is content. */
function contentLines(node: ts.Node, text: string): Set<number> {
  const lines = new Set<number>();
  eachNode(node, (n) => {
    if (ts.isTemplateLiteralToken(n)) {
      for (let i = n.getStart(); i < n.end; i++) if (text[i] === '\n') lines.add(i + 1);
    }
  });
  return lines;
}

/** Line starts strictly inside `range` that may be indented further. */
export function indentableLines(file: ts.SourceFile, range: { start: number; end: number }): number[] {
  const { text } = file;
  const content = contentLines(file, text);
  const starts: number[] = [];
  for (let at = range.start; at < range.end; at = nextLine(text, at)) {
    const line = text.slice(at, nextLine(text, at));
    if (at === lineStart(text, at) && line.trim() !== '' && !content.has(at)) starts.push(at);
    if (nextLine(text, at) === at) break;
  }
  return starts;
}

/**
 * Moves a piece of code to another indentation. `from` is the indentation of the line it began on. Template literals
 * keep their text.
 */
export function reindent(code: string, from: string, to: string): string {
  if (!code.includes('\n') || from === to) return code;
  // An object literal at the start of a file would be read as a block.
  const open = code.startsWith('{') ? '(' : '';
  const parsed = ts.createSourceFile('x.ts', open + code, ts.ScriptTarget.ES2023, true, ts.ScriptKind.TS);
  const content = contentLines(parsed, open + code);
  let offset = open.length;
  return code
    .split('\n')
    .map((line, index) => {
      const at = offset;
      offset += line.length + 1;
      if (index === 0 || content.has(at) || line.trim() === '') return line;
      return line.startsWith(from) ? to + line.slice(from.length) : line;
    })
    .join('\n');
}

/** The indentation of the line on which code of several lines began, read off its last line. */
export function baseIndent(code: string): string {
  return /^[ \t]*/.exec(code.slice(code.lastIndexOf('\n') + 1))?.[0] ?? '';
}
