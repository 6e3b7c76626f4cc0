/**
 * A value written out as source text for the call site: a wrapper's parameters become the arguments, its constants
 * their values. What depends on anything else of the wrapper is an obstacle.
 */

import { ts } from 'ts-morph';
import { isNodeGlobal } from './origins.js';
import type { Obstacle } from './reasons.js';
import { bare, contains, eachNode, isReference, quote } from './syntax.js';
import type { Env, Evaluator, Value } from './values.js';

/** Source text for the call site, with the site's own nodes that are in it. */
export interface Rendered {
  readonly text: string;
  readonly nodes: readonly ts.Expression[];
  readonly obstacles: readonly Obstacle[];
}

const MAX_DEPTH = 25;

/** `renames`: names of the site that are called otherwise at the place the text goes to. */
export function render(
  values: Evaluator,
  value: Value,
  renames: ReadonlyMap<ts.Symbol, string> = new Map(),
): Rendered {
  const run = new Rendering(values, renames);
  const text = run.expression(value);
  return { text, nodes: run.nodes, obstacles: [...run.obstacles, ...run.repeated()] };
}

/** One rendering: collects the site's nodes and what could not be written there. */
class Rendering {
  readonly nodes: ts.Expression[] = [];
  readonly obstacles: Obstacle[] = [];
  private depth = 0;

  constructor(
    private readonly values: Evaluator,
    private readonly renames: ReadonlyMap<ts.Symbol, string>,
  ) {}

  expression(value: Value): string {
    if (value.env === undefined) {
      this.nodes.push(value.node);
      return this.renamed(value.node);
    }
    if (++this.depth > MAX_DEPTH) {
      this.obstacle(value.node);
      return 'undefined';
    }
    const text = this.inlined(bare(value.node), value.env);
    this.depth--;
    return text;
  }

  private renamed(node: ts.Expression): string {
    const start = node.getStart();
    const changes: Change[] = [];
    eachNode(node, (n) => {
      if (this.renames.size === 0 || !ts.isIdentifier(n) || !isReference(n)) return;
      const symbol = this.values.symbolOf(n);
      const other = symbol === undefined ? undefined : this.renames.get(symbol);
      if (other === undefined) return;
      const text = ts.isShorthandPropertyAssignment(n.parent) ? `${n.text}: ${other}` : other;
      changes.push({ start: n.getStart() - start, end: n.getEnd() - start, text });
    });
    return spliced(node.getText(), changes);
  }

  /** An argument written out twice would be evaluated twice. */
  repeated(): Obstacle[] {
    const twice = this.nodes.filter((n, i) => this.nodes.indexOf(n) !== i && !isSimple(bare(n)));
    return twice.map((n) => ({ code: 'wrapper-builds-payload', what: `${quote(n)} is used more than once` }));
  }

  private obstacle(node: ts.Node): void {
    this.obstacles.push({ code: 'wrapper-builds-payload', what: quote(node) });
  }

  private inlined(node: ts.Expression, env: Env): string {
    const start = node.getStart();
    const changes: Change[] = [];
    const replace = (at: ts.Node, text: string): void => {
      changes.push({ start: at.getStart() - start, end: at.getEnd() - start, text });
    };
    const walk = (n: ts.Node): void => {
      if (ts.isAwaitExpression(n) || ts.isYieldExpression(n)) {
        this.obstacle(n);
        return;
      }
      if (n !== node && ts.isExpression(n) && bare(n) !== n && !ts.isParenthesizedExpression(n)) {
        replace(n, this.expression({ node: bare(n), env }));
        return;
      }
      if (ts.isBinaryExpression(n) && isDefaulting(n) && this.values.isAbsent({ node: n.left, env })) {
        replace(n, this.expression({ node: n.right, env }));
        return;
      }
      if (ts.isPropertyAccessExpression(n) && this.readProperty(n, env, replace)) return;
      if (n.kind === ts.SyntaxKind.ThisKeyword) {
        this.obstacle(n.parent);
        return;
      }
      if (ts.isShorthandPropertyAssignment(n)) {
        const text = this.reference(n.name, env, node);
        if (text !== undefined) replace(n, `${n.name.text}: ${text}`);
        return;
      }
      if (ts.isIdentifier(n) && isReference(n)) {
        const text = this.reference(n, env, node);
        if (text !== undefined) replace(n, n === node ? text : parenthesized(text, n));
        return;
      }
      ts.forEachChild(n, walk);
    };
    walk(node);
    const text = node.getText();
    return spliced(text, changes, flattening(text));
  }

  /** `options.priority` with a literal passed for `options`, `this.source` with a constant behind it. */
  private readProperty(
    n: ts.PropertyAccessExpression,
    env: Env,
    replace: (at: ts.Node, text: string) => void,
  ): boolean {
    const owner = bare(n.expression);
    if (owner.kind === ts.SyntaxKind.ThisKeyword) {
      const folded = this.values.fold({ node: n, env });
      if (folded.ok) replace(n, quoted(folded.text));
      return folded.ok;
    }
    const passed = ts.isIdentifier(owner) ? this.values.passed(owner, env) : undefined;
    if (passed === undefined) return false;
    const text = this.member(passed, n.name.text);
    if (text === undefined) return false;
    replace(n, parenthesized(text, n));
    return true;
  }

  /** `owner.name` as text: read out of a literal, else as a property read of what was passed. */
  private member(owner: Value | 'absent', name: string): string | undefined {
    if (owner === 'absent') return 'undefined';
    const e = bare(owner.node);
    if (ts.isObjectLiteralExpression(e)) {
      const found = this.values.property(owner, name);
      if (found === 'absent') return 'undefined';
      if (found !== undefined) return this.expression(found);
    }
    if (owner.env !== undefined) return undefined;
    const text = this.expression(owner);
    return `${/^[\w$.]+$/.test(text) ? text : `(${text})`}.${name}`;
  }

  /** The text for a name of the wrapper; undefined keeps the name as it is. */
  private reference(id: ts.Identifier, env: Env, within: ts.Node): string | undefined {
    const symbol = this.values.symbolOf(id);
    const declaration = symbol?.declarations?.[0];
    if (declaration !== undefined && contains(within, declaration)) return undefined;
    if (declaration === undefined || isGlobal(declaration)) {
      const known = declaration !== undefined || isNodeGlobal(id.text) || id.text === 'undefined';
      // A name that the wrapper's file imports means nothing in the file of the call.
      if (!known || this.values.isImported(id)) this.obstacle(id);
      return undefined;
    }
    if (!contains(env.fn, declaration)) {
      const folded = this.values.fold({ node: id, env });
      if (folded.ok) return quoted(folded.text);
    } else {
      const part = this.values.destructuredFrom(id, env);
      const text = part === undefined ? undefined : this.member(part.whole, part.name);
      if (text !== undefined) return text;
      const followed = part === undefined ? this.values.followForText(id, env) : undefined;
      if (followed === 'absent') return 'undefined';
      if (followed !== undefined) return this.expression(followed);
    }
    this.obstacle(id);
    return undefined;
  }
}

function isGlobal(declaration: ts.Node): boolean {
  return declaration.getSourceFile().isDeclarationFile;
}

function isDefaulting(n: ts.BinaryExpression): boolean {
  return (
    n.operatorToken.kind === ts.SyntaxKind.QuestionQuestionToken ||
    n.operatorToken.kind === ts.SyntaxKind.BarBarToken
  );
}

function isSimple(e: ts.Expression): boolean {
  if (ts.isIdentifier(e) || ts.isLiteralExpression(e) || e.kind === ts.SyntaxKind.ThisKeyword) return true;
  return ts.isPropertyAccessExpression(e) && isSimple(bare(e.expression));
}

/** Parentheses where the place binds tighter than the text. */
function parenthesized(text: string, place: ts.Node): string {
  const parent = place.parent;
  const loose =
    ts.isPropertyAssignment(parent) ||
    (ts.isCallExpression(parent) && parent.expression !== place) ||
    (ts.isNewExpression(parent) && parent.expression !== place) ||
    ts.isArrayLiteralExpression(parent) ||
    ts.isTemplateSpan(parent) ||
    ts.isSpreadAssignment(parent) ||
    ts.isParenthesizedExpression(parent);
  return loose || /^[\w$.'"]+$/.test(text) ? text : `(${text})`;
}

interface Change {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

/** `own` is applied to the pieces that stay. */
function spliced(
  text: string,
  changes: readonly Change[],
  own: (piece: string) => string = (piece) => piece,
): string {
  let result = '';
  let at = 0;
  for (const c of [...changes].sort((a, b) => a.start - b.start)) {
    result += own(text.slice(at, c.start)) + c.text;
    at = c.end;
  }
  return result + own(text.slice(at));
}

/** A wrapper's object literal on one line at the call; texts with line breaks inside strings or comments stay. */
function flattening(text: string): (piece: string) => string {
  if (!text.includes('\n') || /[`]|\/\/|\/\*/.test(text)) return (piece) => piece;
  return (piece) =>
    piece
      .replace(/\s*\r?\n\s*/g, ' ')
      .replace(/,\s*([}\])])/g, (_, close: string) => (close === '}' ? ' }' : close));
}

export function quoted(text: string): string {
  return `'${text
    .replace(/[\\']/g, '\\$&')
    .replace(/\n/g, '\\n')
    .replace(/\r/g, '\\r')
    .replace(/[\u2028\u2029]/g, (c) => `\\u${c.charCodeAt(0).toString(16)}`)}'`;
}
