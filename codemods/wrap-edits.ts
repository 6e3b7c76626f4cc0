/**
 * The edits that put a transaction around a write and its publish: BEGIN in front, the enqueue and COMMIT behind,
 * ROLLBACK and release, the pool's statements moved to the client, what is read later declared in front.
 */

import { ts } from 'ts-morph';
import type { CallParts } from './call-text.js';
import { CallbackEdits, linesBehind } from './callback-edits.js';
import {
  indentAt,
  indentableLines,
  type Layout,
  lineStart,
  type Span,
  spanOf,
  type TextEdit,
} from './edits.js';
import { type Hoist, hoistsOf } from './hoists.js';
import { type FileImports, moduleName } from './imports.js';
import { eachNode, isReference, scopeOf } from './syntax.js';
import { handedDown } from './thread-edits.js';
import type { BracketShape } from './transactions/idiom.js';
import type { PoolScope } from './transactions/pool-query.js';
import { replacedBy, type Wrap } from './wrap.js';

export class WrapEdits {
  private readonly edits: TextEdit[] = [];
  private readonly callbacks: CallbackEdits;
  private readonly clientNames = new Map<ts.Node, Set<string>>();

  constructor(
    private readonly file: ts.SourceFile,
    private readonly checker: ts.TypeChecker,
    private readonly layout: Layout,
    private readonly imports: FileImports,
    /** The text of an enqueue at an indentation. */
    private readonly call: (parts: CallParts, indent: string) => string,
  ) {
    this.callbacks = new CallbackEdits(file, checker, layout, call, (scope) => this.poolText(scope));
  }

  of(wraps: readonly Wrap[]): readonly TextEdit[] {
    for (const group of groups(wraps)) {
      const scope = group[0]?.scope;
      if (scope?.opener === undefined && scope?.library?.wrap === undefined) this.wrap(group);
      else this.edits.push(...this.callbacks.of(group));
    }
    return this.edits;
  }

  private wrap(group: readonly Wrap[]): void {
    const { text } = this.file;
    const statements = [...new Set(group.flatMap((w) => w.scope.statements))].sort((a, b) => a.pos - b.pos);
    const [first] = statements;
    const last = statements.at(-1);
    const [one] = group;
    if (first === undefined || last === undefined || one === undefined) return;
    const range = { start: spanOf(first, this.file).start, end: spanOf(last, this.file).end };
    const { eol, unit, semi } = this.layout;
    const indent = indentAt(text, first.getStart());
    const bracket = one.scope.library?.bracket;
    const client = bracket === undefined ? this.clientName(first) : this.poolText(one.scope);
    const ended = this.words(client, bracket);
    const inside = indent + unit;
    const line = (at: string, code: string): string => `${at}${code}${eol}`;
    const late = [...new Set(group.flatMap((w) => w.scope.behind))];
    const behind = linesBehind(late, group, this.file, this.layout, indent);
    const { hoists } = hoistsOf(statements, this.checker, late);
    this.edits.push({
      start: range.start,
      end: range.start,
      text:
        (bracket === undefined
          ? line(indent, `const ${client} = await ${this.poolText(one.scope)}.connect()${semi}`)
          : '') +
        hoists
          .flatMap((h) => h.names)
          .map((n) => line(indent, `let ${n}${semi}`))
          .join('') +
        (bracket === undefined
          ? line(indent, 'try {') + line(inside, ended.begin)
          : line(indent, ended.begin) + line(indent, 'try {')),
    });
    this.edits.push({
      start: range.end,
      end: range.end,
      text:
        (text[range.end - 1] === '\n' ? '' : eol) +
        line(inside, ended.commit) +
        line(indent, '} catch (error) {') +
        line(inside, ended.rollback) +
        line(inside, `throw error${semi}`) +
        (bracket === undefined
          ? line(indent, '} finally {') + line(inside, `${client}.release()${semi}`)
          : '') +
        line(indent, '}') +
        behind.text,
    });
    this.edits.push(...behind.edits);
    this.wrapInside(group, hoists, range, behind.edits, client);
  }

  /** The statements that begin and end the transaction. */
  private words(
    client: string,
    bracket: BracketShape | undefined,
  ): { begin: string; commit: string; rollback: string } {
    const { semi } = this.layout;
    const said = (word: string): string =>
      bracket === undefined
        ? `await ${client}.query(${this.quoted(word)})${semi}`
        : `await ${client}.${word.toLowerCase()}()${semi}`;
    return { begin: said('BEGIN'), commit: said('COMMIT'), rollback: said('ROLLBACK') };
  }

  private wrapInside(
    group: readonly Wrap[],
    hoists: readonly Hoist[],
    range: Pick<Span, 'start' | 'end'>,
    taken: readonly Pick<Span, 'start' | 'end'>[],
    client: string,
  ): void {
    const inner: TextEdit[] = [];
    for (const { statement, wraps } of replacedBy(group)) {
      const start = statement.getStart();
      const at = indentAt(this.file.text, start) + this.layout.unit;
      const calls = wraps.map((w) =>
        this.call({ ...w.parts, handle: client, adapter: w.scope.library?.adapter }, at),
      );
      inner.push({ start, end: statement.end, text: calls.join(this.layout.eol + at) });
    }
    const queries = new Map(group.flatMap((w) => w.scope.queries).map((q) => [q.call, q]));
    for (const query of queries.values()) {
      if (query.library?.bracket !== undefined) continue;
      if (query.deep !== undefined && ts.isCallExpression(query.call)) {
        inner.push(...handedDown(query.call, query.deep, client, this.layout));
        continue;
      }
      const helper = query.helper !== undefined && ts.isCallExpression(query.call) ? query.call : undefined;
      const on = helper === undefined ? query.handle : helper.expression;
      const text = helper === undefined ? client : `${client}.query`;
      inner.push({ start: on.getStart(), end: on.end, text });
    }
    for (const hoist of hoists) inner.push(...assignment(hoist, this.layout));
    for (const statement of new Set(group.flatMap((w) => w.scope.emptyReturns))) {
      inner.push(...this.endBeforeReturn(statement, client, group[0]?.scope.library?.bracket));
    }
    const replaced = group.map((w) => ({ start: w.statement.getStart(), end: w.statement.end }));
    for (const at of indentableLines(this.file, range)) {
      if (replaced.some((r) => at > r.start && at <= r.end)) continue;
      if (taken.some((r) => at >= r.start && at < r.end)) continue;
      inner.push({ start: at, end: at, text: this.layout.unit });
    }
    this.edits.push(...inner.sort((a, b) => a.start - b.start));
  }

  /** Nothing was written on this path; the transaction still has to end before the client goes back to the pool. */
  private endBeforeReturn(
    statement: ts.ReturnStatement,
    client: string,
    bracket: BracketShape | undefined,
  ): TextEdit[] {
    const { eol, semi, unit } = this.layout;
    const { text } = this.file;
    const { commit } = this.words(client, bracket);
    const start = statement.getStart();
    if (ts.isBlock(statement.parent)) {
      const alone = text.slice(lineStart(text, start), start).trim() === '';
      if (!alone) return [{ start, end: start, text: semi === '' ? `${commit}; ` : `${commit} ` }];
      return [{ start, end: start, text: `${commit}${eol}${indentAt(text, start)}${unit}` }];
    }
    const outer = indentAt(text, statement.parent.getStart()) + unit;
    return [
      { start, end: start, text: `{${eol}${outer}${unit}${commit}${eol}${outer}${unit}` },
      { start: statement.end, end: statement.end, text: `${eol}${outer}}` },
    ];
  }

  private quoted(word: string): string {
    return this.layout.quote + word + this.layout.quote;
  }

  private poolText(scope: PoolScope): string {
    const from = scope.pool?.from;
    if (scope.pool === undefined || from === undefined) return scope.pool?.text ?? scope.handleNode.getText();
    return this.imports.use({ module: moduleName(this.file, from.module, this.checker), name: from.name });
  }

  /** A name for the client that nothing in the function uses. */
  private clientName(near: ts.Node): string {
    const scope = scopeOf(near);
    let taken = this.clientNames.get(scope);
    if (taken === undefined) {
      const names = new Set<string>();
      eachNode(scope, (n) => {
        if (ts.isIdentifier(n) && (isReference(n) || isBinding(n))) names.add(n.text);
      });
      taken = names;
      this.clientNames.set(scope, taken);
    }
    const name =
      ['client', 'dbClient', 'txClient', 'transactionClient'].find((n) => !taken.has(n)) ??
      `client${taken.size}`;
    taken.add(name);
    return name;
  }
}

function isBinding(id: ts.Identifier): boolean {
  const parent = id.parent;
  if (!ts.isVariableDeclaration(parent) && !ts.isParameter(parent) && !ts.isBindingElement(parent))
    return false;
  return parent.name === id;
}

/** `const order = rows[0]` → `order = rows[0]`; `const { rows } = x` → `({ rows } = x)`. */
function assignment(hoist: Hoist, layout: Layout): TextEdit[] {
  const { declaration } = hoist;
  const statement = declaration.parent.parent;
  const nameStart = declaration.name.getStart();
  const isPattern = !ts.isIdentifier(declaration.name);
  const open = isPattern ? (layout.semi === '' ? ';(' : '(') : '';
  const edits: TextEdit[] = [{ start: statement.getStart(), end: nameStart, text: open }];
  if (declaration.type !== undefined)
    edits.push({ start: declaration.name.end, end: declaration.type.end, text: '' });
  if (isPattern) edits.push({ start: declaration.end, end: declaration.end, text: ')' });
  return edits;
}

/** Wraps whose stretches overlap become one transaction. */
function groups(wraps: readonly Wrap[]): Wrap[][] {
  const result: Wrap[][] = [];
  for (const wrap of wraps) {
    const group = result.find((g) =>
      g.some((w) => w.scope.statements.some((s) => wrap.scope.statements.includes(s))),
    );
    if (group === undefined) result.push([wrap]);
    else group.push(wrap);
  }
  return result;
}
