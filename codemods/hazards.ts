/**
 * Where two statements of one function stand to each other: is the second reached whenever, and only when, the first
 * was? What lies between? How is the result of a call used? Answers are obstacles and lists of statements; it
 * refuses to know SQL, brokers and edits.
 */

import { ts } from 'ts-morph';
import type { Obstacle } from './reasons.js';
import { bare, eachOwnNode, isFn, lineOf, quote, type Scope } from './syntax.js';

/** A statement and the list it stands in, from the inside out. */
interface Step {
  readonly list: StatementList;
  readonly statement: ts.Statement;
}

type StatementList = ts.Block | ts.SourceFile | ts.CaseOrDefaultClause | ts.ModuleBlock;

export interface Relation {
  /** False: the first never leads to the second (a return in between, another branch). */
  readonly reachable: boolean;
  readonly obstacles: readonly Obstacle[];
  /** Statements that run after the first and before the second, finally blocks included. */
  readonly between: readonly ts.Statement[];
}

export function isStatementList(node: ts.Node): node is StatementList {
  return (
    ts.isBlock(node) || ts.isSourceFile(node) || ts.isCaseOrDefaultClause(node) || ts.isModuleBlock(node)
  );
}

/** The statement that holds a node, directly in a list. */
export function statementOf(node: ts.Node): ts.Statement | undefined {
  let n = node;
  while (!ts.isSourceFile(n)) {
    if (ts.isStatement(n) && isStatementList(n.parent)) return n;
    n = n.parent;
  }
  return undefined;
}

export function stepsOf(statement: ts.Statement, scope: Scope): Step[] {
  const steps: Step[] = [];
  for (let n: ts.Node = statement; n !== scope && !ts.isSourceFile(n); n = n.parent) {
    if (ts.isStatement(n) && isStatementList(n.parent)) steps.push({ list: n.parent, statement: n });
  }
  return steps;
}

/** How `second` follows `first`, both statements of `scope`, `first` standing earlier in the text. */
export function follows(first: ts.Statement, second: ts.Statement, scope: Scope): Relation {
  const up = stepsOf(first, scope);
  const down = stepsOf(second, scope);
  const common = up.find((a) => down.some((b) => b.list === a.list));
  const entry = down.find((b) => b.list === common?.list);
  if (common === undefined || entry === undefined) return unreachable();
  const inner = down.slice(0, down.indexOf(entry));
  if (common.statement === entry.statement) return branched(inner.at(-1), entry.statement);
  if (common.list.statements.indexOf(entry.statement) < common.list.statements.indexOf(common.statement))
    return unreachable();
  const leaving = leave(first, common, up.slice(0, up.indexOf(common)));
  if (leaving === undefined) return unreachable();
  const from = common.list.statements.indexOf(common.statement) + 1;
  const level = common.list.statements.slice(from, common.list.statements.indexOf(entry.statement));
  const entering = enter(second, entry, inner);
  const between = [...leaving.between, ...level, ...entering.between];
  const exits = between
    .filter(mayExit)
    .map((s): Obstacle => ({ code: 'conditional-path', what: `line ${lineOf(s)}, ${quote(s)}` }));
  if (level.some(alwaysExits)) return unreachable();
  return { reachable: true, obstacles: [...leaving.obstacles, ...exits, ...entering.obstacles], between };
}

function unreachable(): Relation {
  return { reachable: false, obstacles: [], between: [] };
}

/** Both in one statement: `try { first } catch { second }`, `if (x) { first } else { second }`. */
function branched(innermost: Step | undefined, at: ts.Statement): Relation {
  const block = innermost?.list;
  if (block !== undefined && ts.isCatchClause(block.parent)) {
    return {
      reachable: true,
      obstacles: [{ code: 'publishes-on-failure', what: `the catch at line ${lineOf(block.parent)}` }],
      between: [],
    };
  }
  if (block !== undefined && ts.isTryStatement(block.parent) && block.parent.finallyBlock === block) {
    return {
      reachable: true,
      obstacles: [{ code: 'finally-block', what: `line ${lineOf(block)}` }],
      between: [],
    };
  }
  return ts.isIfStatement(at) || ts.isSwitchStatement(at)
    ? unreachable()
    : {
        reachable: true,
        obstacles: [{ code: 'conditional-path', what: `line ${lineOf(at)}` }],
        between: [],
      };
}

/** From the first statement outwards to the common list. Undefined: every way out of here ends the function. */
function leave(
  first: ts.Statement,
  common: Step,
  steps: readonly Step[],
): { obstacles: Obstacle[]; between: ts.Statement[] } | undefined {
  const between: ts.Statement[] = [];
  const obstacles: Obstacle[] = [];
  for (const { list, statement } of steps) {
    const rest = list.statements.slice(list.statements.indexOf(statement) + 1);
    if (rest.some(alwaysExits)) return undefined;
    between.push(...rest);
    if (ts.isTryStatement(list.parent) && list.parent.tryBlock === list) {
      between.push(...(list.parent.finallyBlock?.statements ?? []));
    }
  }
  for (const { around, child } of ancestors(first, common.statement)) {
    if (ts.isTryStatement(around) && around.tryBlock === child) {
      const handler = around.catchClause?.block;
      if (handler === undefined || blockExits(handler)) continue;
      obstacles.push({ code: 'path-without-write', what: `after the catch at line ${lineOf(handler)}` });
    } else if (!isStatementList(around)) {
      obstacles.push({ code: 'path-without-write', what: `line ${lineOf(around)}, ${quote(around)}` });
    }
  }
  return { obstacles, between };
}

/** Inwards from the common list to the second statement. */
function enter(
  second: ts.Statement,
  common: Step,
  steps: readonly Step[],
): { obstacles: Obstacle[]; between: ts.Statement[] } {
  const before = [...steps]
    .reverse()
    .flatMap(({ list, statement }) => list.statements.slice(0, list.statements.indexOf(statement)));
  return { obstacles: enclosures(second, common.statement), between: before };
}

/** What it means for `node` to stand where it stands inside `outer`, from the inside out. */
export function enclosures(node: ts.Node, outer: ts.Node): Obstacle[] {
  return ancestors(node, outer).flatMap(({ around, child }) => enclosure(around, child) ?? []);
}

function enclosure(around: ts.Node, child: ts.Node): Obstacle | undefined {
  if (ts.isTryStatement(around)) {
    if (around.finallyBlock === child) return { code: 'finally-block', what: `line ${lineOf(child)}` };
    if (around.catchClause === undefined || around.catchClause === child) return undefined;
    return { code: 'catch-swallows', what: `the catch at line ${lineOf(around.catchClause)}` };
  }
  if (ts.isCatchClause(around))
    return { code: 'publishes-on-failure', what: `the catch at line ${lineOf(around)}` };
  if (ts.isIterationStatement(around, false)) return { code: 'loop', what: `line ${lineOf(around)}` };
  if (ts.isIfStatement(around)) return { code: 'conditional-path', what: `if (${quote(around.expression)})` };
  if (ts.isCaseOrDefaultClause(around))
    return { code: 'conditional-path', what: `a switch case at line ${lineOf(around)}` };
  if (ts.isConditionalExpression(around)) return { code: 'conditional-path', what: quote(around.condition) };
  if (ts.isBinaryExpression(around) && isShortCircuit(around))
    return { code: 'conditional-path', what: quote(around.left) };
  return undefined;
}

function isShortCircuit(e: ts.BinaryExpression): boolean {
  const k = e.operatorToken.kind;
  return (
    k === ts.SyntaxKind.AmpersandAmpersandToken ||
    k === ts.SyntaxKind.BarBarToken ||
    k === ts.SyntaxKind.QuestionQuestionToken
  );
}

/** The nodes around `node` up to and including `outer`, each with the child that leads back to it. */
function ancestors(node: ts.Node, outer: ts.Node): { around: ts.Node; child: ts.Node }[] {
  const found: { around: ts.Node; child: ts.Node }[] = [];
  for (let child = node; child !== outer && !ts.isSourceFile(child); child = child.parent) {
    found.push({ around: child.parent, child });
  }
  return found;
}

/** A way out in the middle: a return or throw, a break that leaves the statement, a yield that nobody may come back to. */
export function mayExit(statement: ts.Statement): boolean {
  let exits = false;
  eachOwnNode(statement, (n) => {
    if (ts.isReturnStatement(n) || ts.isThrowStatement(n) || ts.isYieldExpression(n)) exits = true;
    if ((ts.isBreakStatement(n) || ts.isContinueStatement(n)) && !insideLoop(n, statement)) exits = true;
  });
  return exits;
}

function insideLoop(node: ts.Node, within: ts.Node): boolean {
  for (let n = node; n !== within; n = n.parent) {
    if (ts.isIterationStatement(n.parent, false) || ts.isSwitchStatement(n.parent)) return true;
  }
  return false;
}

/** Nothing after this statement runs. */
export function alwaysExits(statement: ts.Statement): boolean {
  if (ts.isReturnStatement(statement) || ts.isThrowStatement(statement)) return true;
  if (ts.isBreakStatement(statement) || ts.isContinueStatement(statement)) return true;
  if (ts.isBlock(statement)) return blockExits(statement);
  if (ts.isIfStatement(statement)) {
    return (
      statement.elseStatement !== undefined &&
      alwaysExits(statement.thenStatement) &&
      alwaysExits(statement.elseStatement)
    );
  }
  return false;
}

export function blockExits(block: ts.Block): boolean {
  return block.statements.some(alwaysExits);
}

export interface Use {
  /** The statement to replace; undefined when the call is part of something larger. */
  readonly statement: ts.Statement | undefined;
  readonly awaited: boolean;
  readonly obstacle: Obstacle | undefined;
}

/** How the result of a publishing call is used. */
export function useOf(call: ts.CallExpression): Use {
  let node: ts.Node = call;
  let awaited = false;
  for (;;) {
    const parent: ts.Node = node.parent;
    if (ts.isAwaitExpression(parent)) awaited = true;
    else if (ts.isExpressionStatement(parent)) return { statement: parent, awaited, obstacle: undefined };
    else if (isSubscription(node, parent)) {
      // Over the property access of `.subscribe()` to its call.
      node = ts.isPropertyAccessExpression(parent) ? parent.parent : parent;
      continue;
    } else if (
      !ts.isParenthesizedExpression(parent) &&
      !ts.isVoidExpression(parent) &&
      !ts.isNonNullExpression(parent)
    ) {
      return { statement: undefined, awaited, obstacle: misuse(node, parent) };
    }
    node = parent;
  }
}

/**
 * What only waits for an Observable of a publish: `lastValueFrom(x)`, `firstValueFrom(x)`, `x.toPromise()`,
 * `x.subscribe()`.
 */
function isSubscription(node: ts.Node, parent: ts.Node): boolean {
  if (ts.isCallExpression(parent) && ts.isIdentifier(parent.expression)) {
    const waits = /^(?:lastValueFrom|firstValueFrom)$/.test(parent.expression.text);
    return waits && parent.arguments.length === 1 && parent.arguments[0] === node;
  }
  if (!ts.isPropertyAccessExpression(parent) || parent.expression !== node) return false;
  if (!ts.isCallExpression(parent.parent) || parent.parent.expression !== parent) return false;
  return /^(?:subscribe|toPromise)$/.test(parent.name.text) && parent.parent.arguments.length === 0;
}

function misuse(node: ts.Node, parent: ts.Node): Obstacle {
  if (ts.isPropertyAccessExpression(parent) && ts.isCallExpression(parent.parent)) {
    const method = parent.name.text;
    if (method === 'catch') return { code: 'catch-swallows', what: `.catch at line ${lineOf(parent.name)}` };
    if (method === 'then' || method === 'finally') return { code: 'then-chain', what: `.${method}` };
  }
  const all = combinator(node);
  if (all !== undefined) return { code: 'promise-all-on-one-client', what: all };
  const branch = enclosure(parent, node);
  if (branch !== undefined && ts.isExpressionStatement(parent.parent)) return branch;
  return { code: 'result-used', what: quote(ts.isArrowFunction(parent) ? node : parent) };
}

/** `Promise.all([...])` and its kin around a node. */
export function combinator(node: ts.Node): string | undefined {
  for (let n = node.parent; !ts.isStatement(n) && !ts.isSourceFile(n); n = n.parent) {
    if (!ts.isCallExpression(n)) continue;
    const text = n.expression.getText();
    if (/^Promise\.(?:all|allSettled|race|any)$/.test(text)) return text;
  }
  return undefined;
}

/** Why code in this nested function does not run where it stands. */
export function callbackObstacle(fn: Scope): Obstacle | undefined {
  if (ts.isSourceFile(fn) || !isFn(fn) || !ts.isCallExpression(fn.parent)) return undefined;
  const all = combinator(fn);
  if (all !== undefined) return { code: 'promise-all-on-one-client', what: all };
  const target = bare(fn.parent.expression);
  const method = ts.isPropertyAccessExpression(target) ? target.name.text : '';
  if (method === 'forEach' || method === 'map')
    return { code: 'loop', what: `.${method} at line ${lineOf(fn)}` };
  if (method === 'then' || method === 'finally') return { code: 'then-chain', what: `.${method}` };
  if (method === 'catch') return { code: 'publishes-on-failure', what: `.catch at line ${lineOf(fn)}` };
  return { code: 'in-callback', what: quote(fn.parent.expression) };
}
