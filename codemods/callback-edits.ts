/**
 * The edits that put a client's or ORM's own transaction around autocommitted writes and their publish:
 * `const order = await db.transaction(async (tx) => { … return order; });`. What is read later is given back by the
 * callback, so nothing loses its type.
 */

import { ts } from 'ts-morph';
import { boundNames } from './availability.js';
import type { CallParts } from './call-text.js';
import {
  indentAt,
  indentableLines,
  type Layout,
  removeLines,
  type Span,
  spanOf,
  type TextEdit,
} from './edits.js';
import { localSymbol } from './origins.js';
import type { Obstacle } from './reasons.js';
import { bare, contains, eachNode, isReference, lineOf, scopeOf } from './syntax.js';
import { handedDown } from './thread-edits.js';
import type { Idiom, WrapShape } from './transactions/idiom.js';
import type { PoolQuery, PoolScope } from './transactions/pool-query.js';
import { replacedBy, type Wrap } from './wrap.js';

/** What the callback has to give back, and why it may not be possible. */
export interface Results {
  readonly names: readonly string[];
  /** The one name is a variable from outside: `order = await db.insert(…)`. */
  readonly assigned: ts.Identifier | undefined;
  readonly obstacles: readonly Obstacle[];
}

/** Names that the stretch declares and that are read after it, or in what leaves it. */
export function resultsOf(
  all: readonly ts.Statement[],
  checker: ts.TypeChecker,
  behind: readonly ts.Statement[] = [],
): Results {
  const statements = all.filter((s) => !behind.includes(s));
  const names: string[] = [];
  const obstacles: Obstacle[] = [];
  const [first] = statements;
  const last = statements.at(-1);
  if (first === undefined || last === undefined) return { names, assigned: undefined, obstacles };
  const outside = symbolsOutside(first.getSourceFile(), first.pos, last.end, behind, checker);
  const assignments = statements.flatMap((s) => assignmentIn(s) ?? []);
  for (const statement of statements) {
    if (!ts.isVariableStatement(statement)) continue;
    const isConst = (statement.declarationList.flags & ts.NodeFlags.Const) !== 0;
    for (const declaration of statement.declarationList.declarations) {
      const used = boundNames(declaration.name).filter((n) => outside.has(localSymbol(checker, n)));
      const [one] = used;
      if (one !== undefined && !isConst) obstacles.push(neededLater(one));
      names.push(...used.map((n) => n.text));
    }
  }
  const [only] = assignments;
  const assigned =
    names.length === 0 && assignments.length === 1 && only === assignmentIn(first) ? only : undefined;
  if (assigned === undefined) obstacles.push(...assignments.map(neededLater));
  return { names: assigned === undefined ? names : [assigned.text], assigned, obstacles };
}

/** `order` in `order = await db.insert(…)`. */
function assignmentIn(statement: ts.Statement): ts.Identifier | undefined {
  const e = ts.isExpressionStatement(statement) ? bare(statement.expression) : undefined;
  if (e === undefined || !ts.isBinaryExpression(e) || !ts.isIdentifier(e.left)) return undefined;
  return e.operatorToken.kind === ts.SyntaxKind.EqualsToken ? e.left : undefined;
}

function neededLater(name: ts.Identifier): Obstacle {
  return { code: 'names-needed-later', what: `${name.text} (line ${lineOf(name)})` };
}

function symbolsOutside(
  file: ts.SourceFile,
  start: number,
  end: number,
  behind: readonly ts.Statement[],
  checker: ts.TypeChecker,
): ReadonlySet<ts.Symbol | undefined> {
  const found = new Set<ts.Symbol | undefined>();
  eachNode(file, (n) => {
    if (!ts.isIdentifier(n)) return;
    if (n.pos >= start && n.end <= end && !behind.some((s) => contains(s, n))) return;
    const symbol = localSymbol(checker, n);
    if (symbol !== undefined) found.add(symbol);
  });
  return found;
}

export class CallbackEdits {
  constructor(
    private readonly file: ts.SourceFile,
    private readonly checker: ts.TypeChecker,
    private readonly layout: Layout,
    private readonly call: (parts: CallParts, indent: string) => string,
    /** What the pool is called, imported where it has to be. */
    private readonly poolText: (scope: PoolScope) => string,
  ) {}

  /** One transaction for wraps whose stretches overlap. */
  of(group: readonly Wrap[]): TextEdit[] {
    const scope = group[0]?.scope;
    const shape = scope === undefined ? undefined : shapeOf(scope);
    return shape === undefined ? [] : this.around(group, scope?.library, shape);
  }

  private around(group: readonly Wrap[], library: Idiom | undefined, shape: WrapShape): TextEdit[] {
    const statements = [...new Set(group.flatMap((w) => w.scope.statements))].sort((a, b) => a.pos - b.pos);
    const [first] = statements;
    const last = statements.at(-1);
    const [one] = group;
    if (first === undefined || last === undefined || one === undefined) return [];
    const range = { start: spanOf(first, this.file).start, end: spanOf(last, this.file).end };
    const { eol, unit, semi } = this.layout;
    const indent = indentAt(this.file.text, first.getStart());
    const handle = freeName(shape.names, first);
    const late = [...new Set(group.flatMap((w) => w.scope.behind))];
    const { names, assigned } = resultsOf(statements, this.checker, late);
    const behind = linesBehind(late, group, this.file, this.layout, indent);
    const [name] = names;
    const list = names.length === 1 ? name : `{ ${names.join(', ')} }`;
    const word = assigned === undefined ? 'const ' : '';
    const target = name === undefined ? '' : `${word}${list} = `;
    const root = {
      text: one.scope.opener === undefined ? this.poolText(one.scope) : '',
      what: rootRole(one.scope),
      isTyped: /\.[cm]?tsx?$/.test(this.file.fileName),
    };
    const open = shape.open(root.text, root.what, handle, root.isTyped);
    const adapted = shape.adapted?.(root.text, root.what, handle, root.isTyped) ?? handle;
    const before = `${indent}${target}await ${open}${eol}`;
    const giveBack = name === undefined ? '' : `${indent}${unit}return ${list}${semi}${eol}`;
    const after = `${this.file.text[range.end - 1] === '\n' ? '' : eol}${giveBack}${indent}})${semi}${eol}${behind.text}`;
    const start = assigned?.getStart() ?? 0;
    return [
      { start: range.start, end: range.start, text: before },
      ...(assigned === undefined ? [] : [{ start, end: start, text: 'const ' }]),
      ...behind.edits,
      ...this.inside(group, library, shape, range, behind.edits, { handle, adapted }),
      { start: range.end, end: range.end, text: after },
    ];
  }

  private inside(
    group: readonly Wrap[],
    library: Idiom | undefined,
    shape: WrapShape,
    range: Pick<Span, 'start' | 'end'>,
    taken: readonly Pick<Span, 'start' | 'end'>[],
    { handle, adapted }: { readonly handle: string; readonly adapted: string },
  ): TextEdit[] {
    const edits: TextEdit[] = replacedBy(group).map(({ statement, wraps }) => {
      const start = statement.getStart();
      const at = indentAt(this.file.text, start) + this.layout.unit;
      const calls = wraps.map((w) =>
        this.call({ ...w.parts, handle: adapted, adapter: library?.adapter }, at),
      );
      return { start, end: statement.end, text: calls.join(this.layout.eol + at) };
    });
    const replaced = [...edits];
    const queries = [...new Set(group.flatMap((w) => w.scope.queries))];
    for (const { call, deep, what } of queries) {
      if (deep === undefined || !ts.isCallExpression(call)) continue;
      const root = call.arguments[deep.index];
      const text =
        deep.instead && root !== undefined
          ? (shape.inside?.(root.getText(), what ?? '', handle) ?? handle)
          : handle;
      edits.push(...handedDown(call, deep, text, this.layout));
    }
    const lists = queries.flatMap((query) => listEdits(query, this.layout, this.file));
    edits.push(...lists);
    const roots = new Map(
      queries
        .flatMap((q) => q.list ?? [q])
        .filter((q) => q.deep === undefined)
        .map((q) => [q.handle.getStart(), q]),
    );
    for (const query of roots.values()) {
      const { handle: root } = query;
      if (replaced.some((r) => root.getStart() >= r.start && root.end <= r.end)) continue;
      if (shape.join !== undefined) {
        edits.push(...(shape.join(query.call, handle) ?? []));
        continue;
      }
      const text = shape.inside?.(root.getText(), query.what ?? '', handle) ?? handle;
      edits.push({ start: root.getStart(), end: root.end, text });
    }
    for (const at of indentableLines(this.file, range)) {
      if ([...replaced, ...lists].some((r) => at > r.start && at <= r.end)) continue;
      if (taken.some((r) => at >= r.start && at < r.end)) continue;
      edits.push({ start: at, end: at, text: this.layout.unit });
    }
    return edits.sort((a, b) => a.start - b.start);
  }
}

/** Statements that leave a transaction: their lines go, and come back behind it as they are. */
export function linesBehind(
  late: readonly ts.Statement[],
  group: readonly Wrap[],
  file: ts.SourceFile,
  { eol, semi }: Layout,
  indent: string,
): { readonly text: string; readonly edits: readonly TextEdit[] } {
  const spans = [...late].sort((a, b) => a.pos - b.pos).map((s) => ({ statement: s, span: spanOf(s, file) }));
  const texts = spans.map(({ statement, span }) =>
    span.lines
      ? file.text.slice(span.start, span.end).replace(/(?<!\n)$/, eol)
      : `${indent}${statement.getText()}${eol}`,
  );
  const rests = replacedBy(group).flatMap(({ rest }) => {
    const [only, ...more] = rest.map((e) => e.getText());
    if (only === undefined) return [];
    const waited = more.length === 0 ? only : `Promise.all([${[only, ...more].join(', ')}])`;
    return [`${indent}await ${waited}${semi}${eol}`];
  });
  return {
    text: [...texts, ...rests].join(''),
    edits: removeLines(
      file.text,
      spans.map(({ span }) => span),
    ),
  };
}

/** `await prisma.$transaction([a, b])` → `await a; await b`, or `[await a, await b]` where names take it apart. */
function listEdits({ call, list }: PoolQuery, { eol, unit, semi }: Layout, file: ts.SourceFile): TextEdit[] {
  const waited = call.parent;
  const array = ts.isCallExpression(call) ? call.arguments[0] : undefined;
  if (list === undefined || array === undefined || !ts.isAwaitExpression(waited)) return [];
  const starts = list.map((q) => q.call.getStart());
  if (!ts.isExpressionStatement(waited.parent)) {
    return [
      { start: waited.getStart(), end: array.getStart(), text: '' },
      ...starts.map((start) => ({ start, end: start, text: 'await ' })),
      { start: array.end, end: waited.end, text: '' },
    ];
  }
  const indent = indentAt(file.text, waited.getStart()) + unit;
  const ends = list.map((q) => q.call.end);
  return [
    { start: waited.getStart(), end: starts[0] ?? 0, text: 'await ' },
    ...starts.slice(1).map((start, i) => ({
      start: ends[i] ?? 0,
      end: start,
      text: `${semi}${eol}${indent}await `,
    })),
    { start: ends.at(-1) ?? 0, end: waited.end, text: '' },
  ];
}

/** The library's own callback, or that of a method that opens the transaction. */
function shapeOf({ opener, library }: PoolScope): WrapShape | undefined {
  if (opener === undefined) return library?.wrap;
  const names = library?.wrap?.names ?? ['client', 'dbClient', 'txClient'];
  return {
    roots: new Set(),
    names,
    open: (_root, _what, handle) => `${opener}(async (${handle}) => {`,
    ...(library?.wrap?.inside === undefined ? {} : { inside: library.wrap.inside }),
  };
}

function rootRole(scope: PoolScope): string {
  return scope.queries.find((q) => q.handle === scope.handleNode)?.what ?? '';
}

/** A name for the handle that nothing in the function uses. */
function freeName(names: readonly string[], near: ts.Node): string {
  const taken = new Set<string>();
  eachNode(scopeOf(near), (n) => {
    const isName =
      ts.isIdentifier(n) &&
      (isReference(n) ||
        ts.isParameter(n.parent) ||
        ts.isVariableDeclaration(n.parent) ||
        ts.isBindingElement(n.parent));
    if (isName) taken.add(n.text);
  });
  return names.find((n) => !taken.has(n)) ?? `${names[0]}${taken.size}`;
}
