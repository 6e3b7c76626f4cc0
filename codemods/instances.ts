/**
 * Which class of the repository's own an untyped value is an instance of, or which object literal it is: plain
 * JavaScript keeps its singletons in `any`. It follows initialisers, assignments and returns, and gives up when they
 * disagree.
 */

import { ts } from 'ts-morph';
import { isNothing, returnsOf, unaliased } from './origins.js';
import type { ProgramIndex } from './program-index.js';
import { bare, type Fn, isFn, unwrapped } from './syntax.js';

type Shape = ts.ClassLikeDeclaration | ts.ObjectLiteralExpression;

const MAX_DEPTH = 10;

export class Instances {
  constructor(
    private readonly checker: ts.TypeChecker,
    private readonly index: ProgramIndex,
    private readonly functionsOf: (call: ts.CallExpression) => readonly Fn[],
  ) {}

  /** The method's body that a call on `receiver` reaches. */
  method(receiver: ts.Expression, name: string): Fn | undefined {
    const shape = this.shapeOf(receiver, 0);
    return shape === undefined ? undefined : this.member(shape, name, 0);
  }

  /** A method of a class, or of what it extends. */
  memberOf(shape: ts.ClassLikeDeclaration, name: string): Fn | undefined {
    return this.member(shape, name, 0);
  }

  private member(shape: Shape, name: string, depth: number): Fn | undefined {
    const members: readonly (ts.ClassElement | ts.ObjectLiteralElementLike)[] = ts.isClassLike(shape)
      ? shape.members
      : shape.properties;
    const found = members.find(
      (m) => m.name !== undefined && ts.isIdentifier(m.name) && m.name.text === name,
    );
    if (found !== undefined && isFn(found)) return found.body === undefined ? undefined : found;
    if (found !== undefined && 'initializer' in found && found.initializer !== undefined) {
      const value = bare(found.initializer as ts.Expression);
      return isFn(value) ? value : undefined;
    }
    if (found !== undefined || !ts.isClassLike(shape) || depth > MAX_DEPTH) return undefined;
    const base = shape.heritageClauses?.find((c) => c.token === ts.SyntaxKind.ExtendsKeyword)?.types[0];
    const parent = base === undefined ? undefined : this.classNamed(base.expression);
    return parent === undefined ? undefined : this.member(parent, name, depth + 1);
  }

  private shapeOf(expression: ts.Expression, depth: number): Shape | undefined {
    const e = unwrapped(expression);
    if (depth > MAX_DEPTH) return undefined;
    if (ts.isObjectLiteralExpression(e)) return e;
    if (ts.isNewExpression(e)) return this.classNamed(e.expression);
    if (ts.isCallExpression(e)) {
      return agreed(this.functionsOf(e).flatMap((fn) => this.ofAll(returnsOf(fn), depth)));
    }
    const name = ts.isPropertyAccessExpression(e) ? e.name : e;
    const symbol = this.checker.getSymbolAtLocation(name);
    const resolved = unaliased(this.checker, symbol);
    if (resolved === undefined) return undefined;
    const declaration = resolved.valueDeclaration;
    const born = [...this.index.assignedTo(resolved)];
    if (declaration !== undefined && 'initializer' in declaration && declaration.initializer !== undefined) {
      born.push(declaration.initializer as ts.Expression);
    }
    return agreed(this.ofAll(born, depth));
  }

  private ofAll(values: readonly ts.Expression[], depth: number): (Shape | undefined)[] {
    return values.filter((v) => !isNothing(v)).map((v) => this.shapeOf(v, depth + 1));
  }

  private classNamed(e: ts.Expression): ts.ClassLikeDeclaration | undefined {
    const symbol = this.checker.getSymbolAtLocation(ts.isPropertyAccessExpression(e) ? e.name : e);
    const resolved = unaliased(this.checker, symbol);
    const declaration = resolved?.valueDeclaration;
    if (declaration !== undefined && ts.isClassLike(declaration)) return declaration;
    const type = this.checker.getTypeAtLocation(e).getSymbol()?.valueDeclaration;
    return type !== undefined && ts.isClassLike(type) ? type : undefined;
  }
}

function agreed(shapes: readonly (Shape | undefined)[]): Shape | undefined {
  const [first] = shapes;
  return shapes.every((s) => s === first) ? first : undefined;
}
