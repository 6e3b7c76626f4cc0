/**
 * The edits of one file, out of decisions that are final: move an enqueue in front of a COMMIT, replace a publish
 * where it stands, or put a transaction around a write and its publish. It asks no question about types any more
 * except who else uses a name.
 */

import { ts } from 'ts-morph';
import {
  type BulkParts,
  type CallParts,
  enqueueManyText,
  enqueueText,
  inlineSqlText,
  passText,
} from './call-text.js';
import {
  indentAt,
  type Layout,
  layoutOf,
  lineStart,
  reindent,
  removeLines,
  type Span,
  spanOf,
  type TextEdit,
} from './edits.js';
import { ENQUEUE, ENQUEUE_MANY, FileImports, specifierFor, TRANSACTIONS } from './imports.js';
import { kindReference } from './kind-file.js';
import { localSymbol } from './origins.js';
import { bare, contains, eachNode, lineOf } from './syntax.js';
import { additionEdits, argumentEdits, parameterEdits, typeTexts } from './thread-edits.js';
import type { NewArgument, NewParameter, Threading } from './thread-shapes.js';
import type { AddedParameter, InnerNames, Target } from './transactions/scope.js';
import { removeUnused } from './unused.js';
import type { Publish, Wrap } from './wrap.js';
import { WrapEdits } from './wrap-edits.js';

export interface Move extends Publish {
  readonly how: 'move';
  readonly target: Target;
  readonly moved: readonly ts.VariableStatement[];
  readonly inner: InnerNames | undefined;
  readonly parameter?: AddedParameter | undefined;
}

export interface Replace extends Publish {
  readonly how: 'replace';
  readonly parameter?: AddedParameter | undefined;
}

/** A call inside a transaction that stays where it is and is handed the transaction. */
export interface Pass extends Publish {
  readonly how: 'pass';
  readonly argument: NewArgument | undefined;
  readonly parameter?: AddedParameter | undefined;
}

/** `threading`: what else changes with it, in other functions. */
export type Rewrite = (Move | Replace | Wrap | Pass) & { readonly threading?: Threading | undefined };

/** What a file gets beside its own rewrites: parameters and arguments for handles that pass through it. */
export interface Passing {
  readonly parameters: readonly NewParameter[];
  readonly arguments: readonly NewArgument[];
  readonly replacements: Threading['replacements'];
  readonly additions: Threading['additions'];
}

export interface RewriteOptions {
  readonly inlineSql: boolean;
  /** Whether an initialiser may be dropped when nothing reads its name any more. */
  readonly isSpent: (initializer: ts.Expression) => boolean;
  /** The file whose `kinds` the enqueues use. */
  readonly kinds?: Pick<ts.SourceFile, 'fileName'> | undefined;
}

export interface Rewritten {
  readonly edits: readonly TextEdit[];
  /** Declarations that nothing reads any more and that stay: `channel (line 12)`. */
  readonly leftovers: readonly string[];
}

export function rewriteFile(
  file: ts.SourceFile,
  rewrites: readonly Rewrite[],
  checker: ts.TypeChecker,
  options: RewriteOptions,
  passing: Passing = { parameters: [], arguments: [], replacements: [], additions: [] },
): Rewritten {
  return new FileRewrite(file, checker, options).run(rewrites, passing);
}

class FileRewrite {
  private readonly layout: Layout;
  private readonly imports: FileImports;
  private readonly edits: TextEdit[] = [];
  private readonly removed: { start: number; end: number }[] = [];

  constructor(
    private readonly file: ts.SourceFile,
    private readonly checker: ts.TypeChecker,
    private readonly options: RewriteOptions,
  ) {
    this.layout = layoutOf(file);
    this.imports = new FileImports(file, this.layout);
  }

  run(rewrites: readonly Rewrite[], passing: Passing): Rewritten {
    const sorted = [...rewrites].sort((a, b) => a.statement.pos - b.statement.pos);
    for (const rewrite of sorted) {
      if (rewrite.how === 'move') this.move(rewrite);
      else if (rewrite.how === 'replace') this.replace(rewrite);
      else if (rewrite.how === 'pass') this.pass(rewrite);
    }
    const type = typeTexts(this.file, this.imports, this.checker);
    for (const p of passing.parameters) this.edits.push(...parameterEdits(p, type, this.layout));
    for (const a of passing.additions) this.edits.push(...additionEdits(a, type, this.layout));
    for (const a of passing.arguments) this.edits.push(...argumentEdits(a, this.layout));
    this.edits.push(...passing.replacements.flatMap((r) => r.edits));
    const wraps = new WrapEdits(this.file, this.checker, this.layout, this.imports, (parts, indent) =>
      this.call(parts, indent),
    );
    this.edits.push(...wraps.of(sorted.filter((r) => r.how === 'wrap')));
    const results = new Set(
      sorted.flatMap((r) => (r.how === 'move' ? [...(r.inner?.renames.keys() ?? [])] : [])),
    );
    const replaced = sorted.filter((r) => r.how !== 'pass');
    const dropped = droppedNames(replaced, (id) => {
      const symbol = localSymbol(this.checker, id);
      return symbol !== undefined && results.has(symbol);
    });
    const unused = removeUnused(this.file, this.checker, { dropped, results, isSpent: this.options.isSpent });
    this.removed.push(...unused.lines);
    return {
      edits: [
        ...this.imports.finish(),
        ...this.edits,
        ...unused.edits,
        ...removeLines(this.file.text, this.removed),
      ],
      leftovers: unused.leftovers.map(
        (d) => `${ts.getNameOfDeclaration(d)?.getText() ?? 'a name'} (line ${lineOf(d)})`,
      ),
    };
  }

  private call(given: CallParts, indent: string): string {
    const { bulk, pass } = given;
    if (pass !== undefined) return passText(given, pass, this.layout, indent) + this.layout.semi;
    if (this.options.inlineSql && bulk !== undefined) return this.inlineLoop(given, bulk, indent);
    if (bulk !== undefined) {
      const many = this.imports.use(ENQUEUE_MANY);
      const lead = bulk.comments.map((comment) => comment + this.layout.eol + indent).join('');
      return (
        lead +
        enqueueManyText(this.adapted(this.typed(given)), bulk, many, this.layout, indent) +
        this.layout.semi
      );
    }
    if (this.options.inlineSql) {
      return inlineSqlText(this.adapted(given), this.layout, indent) + this.layout.semi;
    }
    const name = this.imports.use(ENQUEUE);
    return enqueueText(this.adapted(this.typed(given)), name, this.layout, indent) + this.layout.semi;
  }

  /** The SQL function takes one job a call: the loop stays, in front of the COMMIT. */
  private inlineLoop(given: CallParts, bulk: BulkParts, indent: string): string {
    const { eol, semi, unit } = this.layout;
    const inner = inlineSqlText(this.adapted(given), this.layout, indent + unit) + semi;
    return `for (const ${bulk.binding} of ${bulk.iterable}) {${eol}${indent}${unit}${inner}${eol}${indent}}`;
  }

  /** `'order.placed'` → `kinds['order.placed']`. */
  private typed(parts: CallParts): CallParts {
    const { kinds } = this.options;
    if (kinds === undefined) return parts;
    const local = this.imports.use({ module: specifierFor(this.file, kinds), name: 'kinds' });
    return { ...parts, kindOf: kindReference(local, parts.kind, this.layout.quote) };
  }

  /** `trx` → `fromKnex(trx)`. */
  private adapted(parts: CallParts): CallParts {
    if (parts.adapter === undefined) return parts;
    const adapter = this.imports.use({ module: TRANSACTIONS, name: parts.adapter });
    return { ...parts, handle: `${adapter}(${parts.handle})` };
  }

  /** `async () => {` → `async (transaction) => {`; several publishes of one transaction share it. */
  private addParameter(parameter: AddedParameter | undefined): void {
    if (parameter === undefined) return;
    const { text } = this.file;
    const at = text.indexOf('(', parameter.callback.getStart()) + 1;
    if (!this.edits.some((e) => e.start === at && e.end === at))
      this.edits.push({ start: at, end: at, text: parameter.name });
  }

  // ── safe ──

  private move(rewrite: Move): void {
    const { text } = this.file;
    const place = this.placeOf(rewrite.target);
    const lines: string[] = [];
    for (const statement of rewrite.moved) lines.push(...this.takeLines(statement, place.indent));
    const span = spanOf(rewrite.statement, this.file);
    const comments = span.lines ? text.slice(span.start, lineStart(text, rewrite.statement.getStart())) : '';
    const from = indentAt(text, rewrite.statement.getStart());
    const trailing = span.lines ? text.slice(rewrite.statement.end, span.end).trimEnd() : '';
    const lead = comments === '' ? '' : reindentLines(comments, from, place.indent);
    lines.push(
      `${lead}${place.indent}${this.call(rewrite.parts, place.indent)}${trailing}${this.layout.eol}`,
    );
    this.remove(span);
    this.insert(place, lines, rewrite.inner);
    this.addParameter(rewrite.parameter);
  }

  /** Where lines go in, and the indentation there. */
  private placeOf(target: Target): Place {
    const { text } = this.file;
    if (target.before !== undefined) {
      const span = spanOf(target.before, this.file);
      return { at: span.start, lines: span.lines, indent: indentAt(text, target.before.getStart()) };
    }
    const last = target.atEndOf.statements.at(-1);
    const at = last === undefined ? target.atEndOf.end - 1 : spanOf(last, this.file).end;
    const indent =
      last === undefined
        ? indentAt(text, target.atEndOf.end) + this.layout.unit
        : indentAt(text, last.getStart());
    return { at, lines: last !== undefined && spanOf(last, this.file).lines, indent };
  }

  private insert(place: Place, lines: readonly string[], inner: InnerNames | undefined): void {
    const all = [...this.introduced(place, inner), ...lines].join('');
    const { semi } = this.layout;
    const text = place.lines ? all : `${all.trim()}${semi === '' ? ';' : ''} `;
    this.edits.push({ start: place.at, end: place.at, text });
  }

  /** `return rows[0]` → `const order = rows[0]` in front of the enqueue, and `return order`. */
  private introduced(place: Place, inner: InnerNames | undefined): string[] {
    const value = inner?.introduce?.statement.expression;
    const name = inner?.introduce?.name;
    if (value === undefined || name === undefined) return [];
    // Several publishes of one transaction share the name.
    if (this.edits.some((e) => e.start === value.getStart() && e.end === value.end)) return [];
    this.edits.push({ start: value.getStart(), end: value.end, text: name });
    const text = awaited(value, this.checker);
    return [`${place.indent}const ${name} = ${text}${this.layout.semi}${this.layout.eol}`];
  }

  /** A declaration that comes along: its lines leave their place and get the new indentation. */
  private takeLines(statement: ts.VariableStatement, indent: string): string[] {
    const { text } = this.file;
    const span = spanOf(statement, this.file);
    if (this.removed.some((r) => r.end === span.end)) return [];
    this.remove(span);
    const first = lineStart(text, statement.getStart());
    const comments = span.lines ? text.slice(span.start, first) : '';
    const from = indentAt(text, statement.getStart());
    const code = reindent(statement.getText(), from, indent);
    const trailing = span.lines ? text.slice(statement.end, span.end).trimEnd() : '';
    return [`${reindentLines(comments, from, indent)}${indent}${code}${trailing}${this.layout.eol}`];
  }

  private remove(span: Span): void {
    const { text } = this.file;
    let start = span.start;
    // At the end of a line the space in front goes too.
    if (!span.lines && /^[ \t]*(?:\r?\n|$)/.test(text.slice(span.end))) {
      while (start > 0 && /[ \t]/.test(text[start - 1] as string)) start--;
    }
    this.removed.push({ start, end: span.end });
  }

  private pass(rewrite: Pass): void {
    if (rewrite.argument !== undefined) this.edits.push(...argumentEdits(rewrite.argument, this.layout));
    this.addParameter(rewrite.parameter);
  }

  private replace(rewrite: Replace): void {
    const start = rewrite.statement.getStart();
    const text = this.call(rewrite.parts, indentAt(this.file.text, start));
    this.edits.push({ start, end: rewrite.statement.end, text });
    this.addParameter(rewrite.parameter);
  }
}

/** `return tx.order.create(…)` of an async function waits by itself; a name for the value has to be told to. */
function awaited(value: ts.Expression, checker: ts.TypeChecker): string {
  const e = bare(value);
  const reads = ts.isIdentifier(e) || ts.isPropertyAccessExpression(e) || ts.isElementAccessExpression(e);
  const made = ts.isObjectLiteralExpression(e) || ts.isArrayLiteralExpression(e) || ts.isLiteralExpression(e);
  if (reads || made || ts.isAwaitExpression(e)) return value.getText();
  const type = checker.getTypeAtLocation(value);
  const isAny = (type.flags & ts.TypeFlags.Any) !== 0;
  if (!isAny && checker.getAwaitedType(type) === type) return value.getText();
  return ts.isCallExpression(value) || ts.isTaggedTemplateExpression(value)
    ? `await ${value.getText()}`
    : `await (${value.getText()})`;
}

interface Place {
  readonly at: number;
  readonly lines: boolean;
  readonly indent: string;
}

/** Comment lines at a new indentation. */
function reindentLines(lines: string, from: string, to: string): string {
  return lines.replace(/^[ \t]*/gm, (lead, offset: number) => {
    if (offset >= lines.length) return '';
    return lead.startsWith(from) ? to + lead.slice(from.length) : lead;
  });
}

/** Names in the replaced statements that are not in what is kept of them, or are written otherwise there. */
function droppedNames(
  rewrites: readonly Rewrite[],
  isRenamed: (id: ts.Identifier) => boolean,
): ts.Identifier[] {
  return rewrites.flatMap(({ statement, kept }) => {
    const names: ts.Identifier[] = [];
    eachNode(statement, (n) => {
      if (!ts.isIdentifier(n)) return;
      if (!kept.some((k) => contains(k, n)) || isRenamed(n)) names.push(n);
    });
    return names;
  });
}

/** Whether the arguments of a call stand on lines of their own. */
export function isSpread(call: ts.CallExpression): boolean {
  const [first] = call.arguments;
  if (first === undefined) return false;
  const text = call.getSourceFile().text.slice(call.expression.end, first.getStart());
  return text.includes('\n');
}
