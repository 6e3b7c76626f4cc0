/**
 * Can these expressions be evaluated earlier, at another place of the same function, and give the same? Values made
 * after that place are either plain enough to come along or an obstacle. It moves nothing itself.
 */

import { ts } from 'ts-morph';
import type { Effects } from './effects.js';
import { isConst, isNodeGlobal, localSymbol } from './origins.js';
import { BROKERS, isPure } from './packages.js';
import type { Obstacle } from './reasons.js';
import type { Callee, Resolver } from './resolve.js';
import { contains, eachNode, eachOwnNode, isFn, isReference, lineOf, quote } from './syntax.js';
import { idiomOf } from './transactions/idioms.js';
import type { Evaluator } from './values.js';

export interface Availability {
  readonly obstacles: readonly Obstacle[];
  /** Declarations that have to move in front of the enqueue, in their order. */
  readonly moved: readonly ts.VariableStatement[];
  /** Whether something called between the two places gets hold of a value the arguments read. */
  readonly shared: boolean;
}

export interface Move {
  readonly nodes: readonly ts.Expression[];
  /** The statement in front of which, or the block at whose end, they would be evaluated. */
  readonly target: ts.Statement;
  /** Names that mean something else there and are written otherwise. */
  readonly renamed: ReadonlySet<ts.Symbol>;
  /** Statements that run between the target and the old place. */
  readonly between: readonly ts.Statement[];
  /** The statement that is replaced. */
  readonly from: ts.Statement;
}

export class Availabilities {
  private readonly checker: ts.TypeChecker;

  constructor(
    private readonly resolver: Resolver,
    private readonly values: Evaluator,
    private readonly effects: Effects,
  ) {
    this.checker = resolver.analysis.checker;
  }

  check(move: Move): Availability {
    const run = new Check(move, this.checker, this.values, this);
    for (const node of move.nodes) run.expression(node);
    return { obstacles: run.obstacles, moved: run.inOrder(), shared: run.shared };
  }

  /** Whether a handle means the same at another place of its function: nothing there hides its name. */
  isVisible(handle: ts.Expression, at: ts.Node): boolean {
    let root = handle;
    while (ts.isPropertyAccessExpression(root)) root = root.expression;
    if (root.kind === ts.SyntaxKind.ThisKeyword) return thisOwner(handle) === thisOwner(at);
    const there = this.checker.getSymbolsInScope(at, ts.SymbolFlags.Value | ts.SymbolFlags.Alias);
    return !ts.isIdentifier(root) || there.includes(this.checker.getSymbolAtLocation(root) as ts.Symbol);
  }

  /** Calls in the arguments that the enqueue would leave out and that do something. */
  lostCalls(call: ts.CallExpression, kept: readonly ts.Expression[]): ts.Node[] {
    const lost: ts.Node[] = [];
    for (const argument of call.arguments) {
      eachOwnNode(argument, (n) => {
        if (!ts.isCallExpression(n) && !ts.isAwaitExpression(n)) return;
        if (kept.some((k) => contains(k, n) || contains(n, k)) || lost.some((l) => contains(l, n))) return;
        if (!this.isPlain(n) && !BROKERS.includes(this.resolver.roleOf(n)?.pkg ?? '')) lost.push(n);
      });
    }
    return lost;
  }

  /** Plain enough to be evaluated a few statements earlier: no await, and nothing called has an effect. */
  isPlain(node: ts.Node): boolean {
    let plain = true;
    eachNode(node, (n) => {
      if (ts.isAwaitExpression(n) || ts.isYieldExpression(n)) plain = false;
      if (ts.isPrefixUnaryExpression(n) || ts.isPostfixUnaryExpression(n)) {
        if (n.operator === ts.SyntaxKind.PlusPlusToken || n.operator === ts.SyntaxKind.MinusMinusToken)
          plain = false;
      }
      if (ts.isBinaryExpression(n) && isAssignment(n)) plain = false;
      if (ts.isCallExpression(n) && !this.isPlainCall(n)) plain = false;
      if (ts.isTaggedTemplateExpression(n) && this.effects.of(n).length > 0) plain = false;
    });
    return plain;
  }

  private isPlainCall(call: ts.CallExpression): boolean {
    const callee = this.resolver.calleeOf(call);
    if (callee.kind === 'own') return this.effects.ofCall(call).length === 0 && !callee.fns.some(isAsyncFn);
    if (callee.kind === 'package')
      return (
        isPure(callee.role.pkg) ||
        isGlobalCall(call) ||
        this.isMethodOfPlainValue(call) ||
        this.onlyBuilds(call, callee)
      );
    return callee.kind === 'builtin' || this.isMethodOfPlainValue(call);
  }

  /** `eq(orders.id, id)`, `repository.create({ … })`: a client or ORM that builds something and sends nothing. */
  private onlyBuilds(call: ts.CallExpression, callee: Extract<Callee, { kind: 'package' }>): boolean {
    return (
      idiomOf(callee.role.pkg) !== undefined &&
      this.effects.transactionWord(call) === undefined &&
      !this.effects.writesThrough(callee.role, callee.method, call.arguments[0])
    );
  }

  /** `rows.map(toItem)` on an untyped query result: a method on data, not on a service. */
  private isMethodOfPlainValue(call: ts.CallExpression): boolean {
    const target = call.expression;
    return ts.isPropertyAccessExpression(target) && DATA_METHODS.has(target.name.text);
  }
}

/** `Buffer.from(…)`, `structuredClone(…)`: globals that @types/node declares. */
function isGlobalCall(call: ts.CallExpression): boolean {
  const target = call.expression;
  const root = ts.isPropertyAccessExpression(target) ? target.expression : target;
  return ts.isIdentifier(root) && isNodeGlobal(root.text) && !/^(?:set|clear|queue)/.test(root.text);
}

const DATA_METHODS = new Set([
  'map',
  'filter',
  'slice',
  'join',
  'concat',
  'toISOString',
  'toString',
  'toJSON',
  'toFixed',
  'trim',
  'toLowerCase',
  'toUpperCase',
  'split',
  'replace',
  'includes',
  'at',
  'find',
  'reduce',
  'flatMap',
  'keys',
  'values',
  'entries',
  'getTime',
]);

class Check {
  readonly obstacles: Obstacle[] = [];
  shared = false;
  private readonly moved = new Set<ts.VariableStatement>();
  private readonly seen = new Set<ts.Symbol>();

  constructor(
    private readonly move: Move,
    private readonly checker: ts.TypeChecker,
    private readonly values: Evaluator,
    private readonly owner: Availabilities,
  ) {}

  inOrder(): ts.VariableStatement[] {
    return [...this.moved].sort((a, b) => a.pos - b.pos);
  }

  expression(node: ts.Expression): void {
    eachNode(node, (n) => {
      if (n.kind === ts.SyntaxKind.ThisKeyword && thisOwner(n) !== thisOwner(this.move.target)) {
        this.obstacle('this (another one where the commit is)');
      }
      if (ts.isAwaitExpression(n)) this.obstacle(quote(n));
      if (ts.isCallExpression(n) && !this.owner.isPlain(n)) this.obstacle(quote(n));
    });
    this.names(node);
  }

  private names(node: ts.Node): void {
    eachNode(node, (n) => {
      if (!ts.isIdentifier(n) || !isReference(n)) return;
      const symbol = localSymbol(this.checker, n);
      if (symbol === undefined || this.seen.has(symbol) || this.move.renamed.has(symbol)) return;
      const declaration = symbol.valueDeclaration;
      if (declaration === undefined || contains(node, declaration)) return;
      this.seen.add(symbol);
      this.name(n, symbol, declaration);
    });
  }

  private name(id: ts.Identifier, symbol: ts.Symbol, declaration: ts.Declaration): void {
    const here = this.move.between.find((s) => contains(s, declaration));
    if (here !== undefined) {
      this.bring(id, declaration, here);
      return;
    }
    if (!this.visible(symbol, id.text)) {
      this.obstacle(`${id.text} (line ${lineOf(declaration)})`);
      return;
    }
    for (const statement of this.move.between) this.touched(symbol, id, statement);
  }

  /** A value made in between: a plain const may come along, anything else stays and stops the rewrite. */
  private bring(id: ts.Identifier, declaration: ts.Declaration, statement: ts.Statement): void {
    const variable = variableOf(declaration);
    const plain =
      ts.isVariableStatement(statement) &&
      variable !== undefined &&
      variable.parent.parent === statement &&
      statement.declarationList.declarations.length === 1 &&
      isConst(variable) &&
      variable.initializer !== undefined &&
      this.owner.isPlain(variable.initializer);
    if (!plain || variable.initializer === undefined || !this.staysVisible(statement, variable)) {
      this.obstacle(`${id.text} (line ${lineOf(declaration)})`);
      return;
    }
    this.moved.add(statement);
    this.names(variable.initializer);
  }

  /** Whether everything else that reads the moved names still can: from the list of the target outwards. */
  private staysVisible(statement: ts.VariableStatement, variable: ts.VariableDeclaration): boolean {
    if (statement.parent === this.move.target.parent) return true;
    const names = new Set(boundNames(variable.name).map((n) => this.checker.getSymbolAtLocation(n)));
    let only = true;
    eachNode(variable.getSourceFile(), (n) => {
      if (!ts.isIdentifier(n) || !names.has(this.values.symbolOf(n)) || contains(statement, n)) return;
      if (!this.move.nodes.some((kept) => contains(kept, n))) only = false;
    });
    return only;
  }

  /** The name means the same at the target: nothing there hides it, and it is declared above. */
  private visible(symbol: ts.Symbol, name: string): boolean {
    const flags = ts.SymbolFlags.Value | ts.SymbolFlags.Alias;
    const there = this.checker.getSymbolsInScope(this.move.target, flags).find((s) => s.name === name);
    if (there !== symbol) return false;
    const declaration = symbol.valueDeclaration;
    const variable = declaration === undefined ? undefined : variableOf(declaration);
    // Inside its own initialiser a name is in scope but has no value yet.
    if (variable !== undefined && contains(variable, this.move.target)) return false;
    if (declaration === undefined || !ts.isVariableDeclaration(declaration)) return true;
    const inFunction = declaration.getSourceFile() === this.move.target.getSourceFile();
    return (
      !inFunction || declaration.pos < this.move.target.pos || !sharesFunction(declaration, this.move.target)
    );
  }

  /** Assigned in between, or handed to a call that might change it. */
  private touched(symbol: ts.Symbol, id: ts.Identifier, statement: ts.Statement): void {
    eachNode(statement, (n) => {
      if (!ts.isIdentifier(n) || n.text !== id.text || this.values.symbolOf(n) !== symbol) return;
      let top: ts.Node = n;
      while (ts.isPropertyAccessExpression(top.parent) || ts.isElementAccessExpression(top.parent))
        top = top.parent;
      const parent = top.parent;
      const written =
        (ts.isBinaryExpression(parent) && isAssignment(parent) && contains(parent.left, n)) ||
        ts.isDeleteExpression(parent) ||
        (isIncrement(parent) && parent.operand === top);
      if (written || changesIt(n, top)) this.obstacle(`${id.text} (changed at line ${lineOf(n)})`);
      if (ts.isCallExpression(parent) && !(parent.expression === top && isOfData(top))) this.shared = true;
    });
  }

  private obstacle(what: string): void {
    this.obstacles.push({ code: 'payload-made-after-commit', what });
  }
}

/** `seen.push(id)`, `Object.assign(order, { … })`: the platform's own ways to change a value. */
function changesIt(id: ts.Identifier, top: ts.Node): boolean {
  const call = top.parent;
  if (!ts.isCallExpression(call)) return false;
  if (call.expression === top) return ts.isPropertyAccessExpression(top) && MUTATORS.has(top.name.text);
  const isFirst =
    call.arguments[0] === top || (call.arguments[0] !== undefined && contains(call.arguments[0], id));
  return isFirst && /^Object\.(?:assign|definePropert(?:y|ies))$/.test(call.expression.getText());
}

function isOfData(access: ts.Node): boolean {
  return ts.isPropertyAccessExpression(access) && DATA_METHODS.has(access.name.text);
}

const MUTATORS = new Set(
  'push pop shift unshift splice sort reverse fill copyWithin set add delete clear'.split(' '),
);

/** The function or class that decides what `this` is. */
function thisOwner(node: ts.Node): ts.Node {
  let n = node.parent;
  while (!ts.isSourceFile(n) && (ts.isArrowFunction(n) || !(isFn(n) || ts.isClassLike(n)))) n = n.parent;
  return n;
}

/** Every name that a declaration binds. */
export function boundNames(name: ts.BindingName): ts.Identifier[] {
  if (ts.isIdentifier(name)) return [name];
  return name.elements.flatMap((e) => (ts.isOmittedExpression(e) ? [] : boundNames(e.name)));
}

/** The variable declaration around a name or binding element. */
export function variableOf(declaration: ts.Node): ts.VariableDeclaration | undefined {
  let n = declaration;
  while (ts.isBindingElement(n) || ts.isObjectBindingPattern(n) || ts.isArrayBindingPattern(n)) n = n.parent;
  return ts.isVariableDeclaration(n) ? n : undefined;
}

export function isAssignment(e: ts.BinaryExpression): boolean {
  const kind = e.operatorToken.kind;
  return kind >= ts.SyntaxKind.FirstAssignment && kind <= ts.SyntaxKind.LastAssignment;
}

function isIncrement(node: ts.Node): node is ts.PrefixUnaryExpression | ts.PostfixUnaryExpression {
  if (!ts.isPrefixUnaryExpression(node) && !ts.isPostfixUnaryExpression(node)) return false;
  return node.operator === ts.SyntaxKind.PlusPlusToken || node.operator === ts.SyntaxKind.MinusMinusToken;
}

function sharesFunction(a: ts.Node, b: ts.Node): boolean {
  let n: ts.Node = a;
  while (!ts.isSourceFile(n) && !isFn(n)) n = n.parent;
  return contains(n, b) && !ts.isSourceFile(n);
}

function isAsyncFn(fn: ts.Node): boolean {
  return isFn(fn) && (fn.modifiers?.some((m) => m.kind === ts.SyntaxKind.AsyncKeyword) ?? false);
}
