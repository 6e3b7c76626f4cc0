/**
 * What an expression means at a call: constants are folded, wrapper parameters are replaced by the arguments that
 * were passed, and the result is written out as source text for the call site. It refuses to run anything and to
 * guess: what depends on more than arguments and constants is an obstacle.
 */

import { ts } from 'ts-morph';
import { casedBy, classNameOf, namedByClass } from './computed-names.js';
import { isPlainJson } from './json-types.js';
import { isConst, localSymbol, unaliased } from './origins.js';
import type { Resolver } from './resolve.js';
import { bare, contains, type Fn, quote } from './syntax.js';

/** A call of a wrapper: what its parameters stand for. */
export interface Env {
  readonly fn: Fn;
  readonly args: readonly (Value | undefined)[];
  readonly receiver: Value | undefined;
}

/** An expression and the call it is evaluated under; without env it stands at the call site itself. */
export interface Value {
  readonly node: ts.Expression;
  readonly env: Env | undefined;
}

export type Folded =
  | { readonly ok: true; readonly text: string }
  | { readonly ok: false; readonly what: string };

const MAX_DEPTH = 25;

export class Evaluator {
  private readonly checker: ts.TypeChecker;

  constructor(private readonly resolver: Resolver) {
    this.checker = resolver.analysis.checker;
  }

  /** The env of a call of `fn`; undefined when the arguments are spread. */
  enter(fn: Fn, call: ts.CallExpression, outer: Env | undefined): Env | undefined {
    if (
      call.arguments.some(ts.isSpreadElement) ||
      fn.parameters.some((p) => p.dotDotDotToken !== undefined)
    ) {
      return undefined;
    }
    const target = bare(call.expression);
    return {
      fn,
      args: call.arguments.map((node) => ({ node, env: outer })),
      receiver: ts.isPropertyAccessExpression(target) ? { node: target.expression, env: outer } : undefined,
    };
  }

  // ── following names ──

  /** What a name stands for: an argument, a default, a constant's initialiser. Undefined when it is none of these. */
  private named(id: ts.Identifier, env: Env | undefined): Value | 'absent' | undefined {
    const symbol = this.symbolOf(id);
    const declaration = symbol?.valueDeclaration;
    if (symbol === undefined || declaration === undefined)
      return id.text === 'undefined' ? 'absent' : undefined;
    if (ts.isParameter(declaration)) return this.parameter(declaration, env);
    if (ts.isBindingElement(declaration)) return this.destructured(declaration, env);
    if (
      !ts.isVariableDeclaration(declaration) ||
      !isConst(declaration) ||
      declaration.initializer === undefined
    ) {
      return undefined;
    }
    return { node: declaration.initializer, env: this.envFor(declaration, env) };
  }

  private parameter(
    declaration: ts.ParameterDeclaration,
    env: Env | undefined,
  ): Value | 'absent' | undefined {
    const index = env?.fn.parameters.indexOf(declaration) ?? -1;
    if (env === undefined || index < 0) return undefined;
    const given = env.args[index];
    if (given !== undefined && !this.isAbsent(given)) return given;
    return declaration.initializer === undefined ? 'absent' : { node: declaration.initializer, env };
  }

  /** `({ type, data }) => …` and `const { data } = event`, one level deep. */
  private destructured(element: ts.BindingElement, env: Env | undefined): Value | 'absent' | undefined {
    const pattern = element.parent;
    const key = element.propertyName ?? element.name;
    if (!ts.isObjectBindingPattern(pattern) || element.dotDotDotToken !== undefined || !ts.isIdentifier(key))
      return undefined;
    const holder = pattern.parent;
    let whole: Value | 'absent' | undefined;
    if (ts.isParameter(holder)) whole = this.parameter(holder, env);
    else if (ts.isVariableDeclaration(holder) && isConst(holder) && holder.initializer !== undefined) {
      whole = { node: holder.initializer, env: this.envFor(holder, env) };
    }
    if (whole === undefined || whole === 'absent') return whole;
    const found = this.property(whole, key.text);
    return found === 'absent' && element.initializer !== undefined
      ? { node: element.initializer, env }
      : found;
  }

  private envFor(declaration: ts.Node, env: Env | undefined): Env | undefined {
    return env !== undefined && contains(env.fn, declaration) ? env : undefined;
  }

  symbolOf(id: ts.Node): ts.Symbol | undefined {
    return unaliased(this.checker, localSymbol(this.checker, id));
  }

  /** Follows names and property reads to the expression that makes the value. */
  deref(value: Value): Value | 'absent' {
    let v = value;
    for (let i = 0; i < MAX_DEPTH; i++) {
      const e = bare(v.node);
      let next: Value | 'absent' | undefined;
      if (ts.isIdentifier(e)) next = this.named(e, v.env);
      else if (ts.isPropertyAccessExpression(e))
        next = this.property({ node: e.expression, env: v.env }, e.name.text);
      if (next === 'absent') return next;
      if (next === undefined) return { node: e, env: v.env };
      v = next;
    }
    return v;
  }

  isAbsent(value: Value): boolean {
    return this.deref(value) === 'absent';
  }

  /** A property of a value whose making is visible; `absent` when it certainly has no such property. */
  property(owner: Value, name: string): Value | 'absent' | undefined {
    const made = this.deref(owner);
    if (made === 'absent') return 'absent';
    const e = made.node;
    if (ts.isObjectLiteralExpression(e)) return this.literalProperty(e, name, made.env);
    if (e.kind === ts.SyntaxKind.ThisKeyword) return this.ownProperty(e, name, made.env);
    if (ts.isNewExpression(e)) return this.declaredProperty(this.checker.getTypeAtLocation(e), name);
    return undefined;
  }

  private literalProperty(
    object: ts.ObjectLiteralExpression,
    name: string,
    env: Env | undefined,
  ): Value | 'absent' | undefined {
    for (const p of [...object.properties].reverse()) {
      if (ts.isSpreadAssignment(p)) {
        const spread = this.property({ node: p.expression, env }, name);
        if (spread !== 'absent') return spread;
      } else if (p.name !== undefined && ts.isComputedPropertyName(p.name)) return undefined;
      else if (p.name?.text === name) {
        if (ts.isPropertyAssignment(p)) return { node: p.initializer, env };
        return ts.isShorthandPropertyAssignment(p) ? { node: p.name, env } : undefined;
      }
    }
    return 'absent';
  }

  /** `this.exchange`: the initialiser of a property that nothing assigns; the receiver's class may override it. */
  private ownProperty(self: ts.Node, name: string, env: Env | undefined): Value | undefined {
    const receiver = env?.receiver;
    if (receiver !== undefined && bare(receiver.node).kind !== ts.SyntaxKind.SuperKeyword) {
      const node = bare(receiver.node);
      if (node.kind === ts.SyntaxKind.ThisKeyword && receiver.env !== undefined) {
        return this.ownProperty(node, name, receiver.env);
      }
      return this.declaredProperty(this.checker.getTypeAtLocation(node), name);
    }
    return this.declaredProperty(this.checker.getTypeAtLocation(self), name);
  }

  private declaredProperty(type: ts.Type, name: string): Value | undefined {
    const symbol = type.getProperty(name);
    const declaration = symbol?.valueDeclaration;
    if (symbol === undefined || declaration === undefined || !ts.isPropertyDeclaration(declaration))
      return undefined;
    if (declaration.initializer === undefined || this.resolver.isReassigned(symbol)) return undefined;
    return { node: declaration.initializer, env: undefined };
  }

  // ── constants ──

  fold(value: Value, depth = 0): Folded {
    const e = bare(value.node);
    const fail: Folded = { ok: false, what: quote(e) };
    if (depth > MAX_DEPTH) return fail;
    if (ts.isStringLiteralLike(e) || ts.isNumericLiteral(e)) return { ok: true, text: e.text };
    if (ts.isTemplateExpression(e)) return this.foldTemplate(e, value.env, depth, fail);
    if (ts.isBinaryExpression(e) && e.operatorToken.kind === ts.SyntaxKind.PlusToken) {
      const left = this.fold({ node: e.left, env: value.env }, depth + 1);
      const right = this.fold({ node: e.right, env: value.env }, depth + 1);
      return left.ok && right.ok ? { ok: true, text: left.text + right.text } : fail;
    }
    const computed = this.foldComputed(e, value.env, depth);
    if (computed !== undefined) return computed;
    if (ts.isPropertyAccessExpression(e) || ts.isElementAccessExpression(e)) {
      const constant = this.checker.getConstantValue(e);
      if (constant !== undefined) return { ok: true, text: String(constant) };
    }
    if (ts.isIdentifier(e) || ts.isPropertyAccessExpression(e)) {
      const made = this.deref(value);
      if (made !== 'absent' && bare(made.node) !== e) {
        const folded = this.fold(made, depth + 1);
        // Quote what stands at the call when that is where the value became unknown.
        return folded.ok || made.env === undefined ? folded : fail;
      }
    }
    return this.literalType(e) ?? fail;
  }

  /** `message.constructor.name`, `snakeCase(…)`, `….toLowerCase()`. */
  private foldComputed(e: ts.Expression, env: Env | undefined, depth: number): Folded | undefined {
    const named = namedByClass(e);
    if (named !== undefined) {
      const made = this.deref({ node: named, env });
      const text =
        made !== 'absent' && ts.isNewExpression(made.node) ? classNameOf(made.node, this.checker) : undefined;
      return text === undefined ? undefined : { ok: true, text };
    }
    if (!ts.isCallExpression(e)) return undefined;
    const target = bare(e.expression);
    const [argument] = e.arguments;
    const lower = ts.isPropertyAccessExpression(target) && target.name.text === 'toLowerCase';
    const cased = lower && argument === undefined ? (t: string) => t.toLowerCase() : casedBy(e, this.checker);
    const node = lower && ts.isPropertyAccessExpression(target) ? target.expression : argument;
    if (cased === undefined || node === undefined) return undefined;
    const inner = this.fold({ node, env }, depth + 1);
    const text = inner.ok ? cased(inner.text) : undefined;
    return text === undefined ? undefined : { ok: true, text };
  }

  private foldTemplate(e: ts.TemplateExpression, env: Env | undefined, depth: number, fail: Folded): Folded {
    let text = e.head.text;
    for (const span of e.templateSpans) {
      const part = this.fold({ node: span.expression, env }, depth + 1);
      if (!part.ok) return fail;
      text += part.text + span.literal.text;
    }
    return { ok: true, text };
  }

  /** A type that has one text. A cast is a claim, not a proof, so casts do not count. */
  private literalType(e: ts.Expression): Folded | undefined {
    if (e.parent !== undefined && (ts.isAsExpression(e.parent) || ts.isTypeAssertionExpression(e.parent)))
      return undefined;
    const type = this.checker.getTypeAtLocation(e);
    return type.isStringLiteral() ? { ok: true, text: type.value } : undefined;
  }

  /** Whether the value is certain to be a text. */
  isText(value: Value): boolean {
    const made = this.deref(value);
    return (
      made !== 'absent' && (this.checker.getTypeAtLocation(made.node).flags & ts.TypeFlags.StringLike) !== 0
    );
  }

  /** Whether the value is, or may be, raw bytes. */
  isBytes(value: Value): boolean {
    const e = bare(value.node);
    if (ts.isCallExpression(e) && /^Buffer\.(?:from|alloc|concat)$/.test(e.expression.getText())) return true;
    const name = this.checker.getTypeAtLocation(e).getSymbol()?.name;
    return name === 'Buffer' || name === 'Uint8Array';
  }

  /** Whether the value is certain to be an object or array, not a text. */
  isStructure(value: Value): boolean {
    const e = bare(value.node);
    if (ts.isObjectLiteralExpression(e) || ts.isArrayLiteralExpression(e)) return true;
    const type = this.checker.getTypeAtLocation(e);
    const parts = type.isUnion() ? type.types : [type];
    return parts.every((t) => (t.flags & ts.TypeFlags.Object) !== 0);
  }

  /** Whether the value is certain to be plain JSON: by its type, or by how a wrapper puts it together. */
  isPlainJson(value: Value): boolean {
    const e = bare(value.node);
    const { env } = value;
    if (env === undefined) return isPlainJson(this.checker, this.checker.getTypeAtLocation(e));
    if (ts.isIdentifier(e)) {
      const passed = this.named(e, env);
      if (passed === 'absent') return true;
      if (passed !== undefined && passed.node !== e) return this.isPlainJson(passed);
    }
    if (!ts.isObjectLiteralExpression(e)) return isPlainJson(this.checker, this.checker.getTypeAtLocation(e));
    return e.properties.every((p) => {
      if (ts.isPropertyAssignment(p)) return this.isPlainJson({ node: p.initializer, env });
      if (ts.isShorthandPropertyAssignment(p)) return this.isPlainJson({ node: p.name, env });
      return ts.isSpreadAssignment(p) && this.isPlainJson({ node: p.expression, env });
    });
  }

  // ── for rendering.ts ──

  isImported(id: ts.Node): boolean {
    return ((localSymbol(this.checker, id)?.flags ?? 0) & ts.SymbolFlags.Alias) !== 0;
  }

  followForText(id: ts.Identifier, env: Env): Value | 'absent' | undefined {
    return this.named(id, env);
  }

  /** The argument that a parameter's name stands for, followed outwards through wrappers but no further. */
  passed(id: ts.Identifier, env: Env): Value | 'absent' | undefined {
    const declaration = this.symbolOf(id)?.valueDeclaration;
    if (declaration === undefined || !ts.isParameter(declaration)) return undefined;
    const value = this.parameter(declaration, env);
    if (value === undefined || value === 'absent' || value.env === undefined) return value;
    const e = bare(value.node);
    return ts.isIdentifier(e) && value.env !== env ? (this.passed(e, value.env) ?? value) : value;
  }

  /** For a name out of `({ type, data }) => …`: the argument and the property. */
  destructuredFrom(id: ts.Identifier, env: Env): { whole: Value | 'absent'; name: string } | undefined {
    const element = this.symbolOf(id)?.valueDeclaration;
    if (element === undefined || !ts.isBindingElement(element) || !ts.isParameter(element.parent.parent))
      return undefined;
    const key = element.propertyName ?? element.name;
    if (!ts.isIdentifier(key) || element.initializer !== undefined || element.dotDotDotToken !== undefined)
      return undefined;
    const whole = this.parameter(element.parent.parent, env);
    return whole === undefined ? undefined : { whole, name: key.text };
  }
}
