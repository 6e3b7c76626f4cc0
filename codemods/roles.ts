/**
 * Which package's value an expression is: `amqplib`'s channel, `pg`'s pool. Types are asked first; where they are
 * `any` (no installed packages, plain JavaScript) the value is traced through imports, annotations, initialisers,
 * assignments and arguments. It refuses to conclude anything from the name of a method or variable.
 */

import { ts } from 'ts-morph';
import {
  declaredIn,
  importedName,
  isAnyKeyword,
  isFallback,
  isNothing,
  isNothingType,
  isOpaque,
  packageOfImport,
  requiredModule,
  returnsOf,
  unaliased,
} from './origins.js';
import { packageOfSpecifier, tableOf } from './packages.js';
import type { ProgramIndex } from './program-index.js';
import {
  agreed,
  elementType,
  importedType,
  member,
  part,
  pickedFrom,
  type Role,
  TAKES_ONE,
} from './role-types.js';
import { eachNode, type Fn, isFn, unwrapped } from './syntax.js';

const MAX_DEPTH = 25;

export class Roles {
  private readonly roles = new Map<ts.Expression, Role | undefined>();

  constructor(
    private readonly checker: ts.TypeChecker,
    private readonly index: ProgramIndex,
    /** The repository's own functions that a call reaches. */
    private readonly functionsOf: (call: ts.CallExpression) => readonly Fn[],
  ) {}

  roleOf(expression: ts.Expression, seen: ReadonlySet<ts.Node> = new Set()): Role | undefined {
    const e = unwrapped(expression);
    if (seen.has(e) || seen.size > MAX_DEPTH) return undefined;
    if (this.roles.has(e)) return this.roles.get(e);
    const type = this.checker.getTypeAtLocation(e);
    const role =
      this.roleOfType(type) ?? (this.saysNothing(type) ? this.traced(e, new Set([...seen, e])) : undefined);
    if (seen.size === 0) this.roles.set(e, role);
    return role;
  }

  /**
   * `any`, also when it is promised (an async function that gives back a package's value without its types) or when it
   * is part of something that is `any`.
   */
  private saysNothing(type: ts.Type): boolean {
    return [type, this.checker.getAwaitedType(type), pickedFrom(type, this.checker)].some(
      (t) => t !== undefined && isOpaque(t),
    );
  }

  roleOfType(given: ts.Type, depth = 0): Role | undefined {
    const type = this.checker.getAwaitedType(given) ?? given;
    if (depth > 5) return undefined;
    const whole = pickedFrom(type, this.checker);
    if (whole !== undefined) return part(this.roleOfType(whole, depth + 1));
    if (type.isUnion()) {
      const parts = type.types.filter(
        (t) => !(t.flags & (ts.TypeFlags.Undefined | ts.TypeFlags.Null | ts.TypeFlags.Void)),
      );
      const roles = parts.map((t) => this.roleOfType(t, depth + 1));
      return agreed(roles) ?? agreed(roles.map(part));
    }
    if (type.isIntersection())
      return type.types.map((t) => this.roleOfType(t, depth + 1)).find((r) => r !== undefined);
    if (type.flags & ts.TypeFlags.TypeParameter) {
      const bound = this.checker.getBaseConstraintOfType(type);
      return bound === undefined || bound === type ? undefined : this.roleOfType(bound, depth + 1);
    }
    const symbol = type.getSymbol();
    const declaration = symbol?.declarations?.[0];
    if (symbol === undefined || declaration === undefined) return undefined;
    const pkg = declaredIn(declaration);
    if (pkg !== undefined) return { pkg, what: tableOf(pkg).types[symbol.name] ?? 'other' };
    if (!type.isClassOrInterface()) return undefined;
    const inherited = this.checker
      .getBaseTypes(type)
      .map((base) => this.roleOfType(base, depth + 1))
      .find((r) => r !== undefined && r.what !== 'other');
    return inherited ?? this.untypedBase(declaration);
  }

  /** `class Db extends PrismaClient` where PrismaClient is `any`: what `new PrismaClient()` would be. */
  private untypedBase(declaration: ts.Declaration): Role | undefined {
    if (!ts.isClassLike(declaration)) return undefined;
    const base = declaration.heritageClauses?.find((c) => c.token === ts.SyntaxKind.ExtendsKeyword)?.types[0];
    if (base === undefined || !isOpaque(this.checker.getTypeAtLocation(base.expression))) return undefined;
    const made = this.traced(base.expression, new Set([declaration, base.expression]));
    if (made === undefined) return undefined;
    const { news, members } = tableOf(made.pkg);
    const what = news[made.what] ?? members?.[made.what];
    return what === undefined ? undefined : { pkg: made.pkg, what };
  }

  private traced(e: ts.Expression, seen: ReadonlySet<ts.Node>): Role | undefined {
    if (ts.isIdentifier(e)) return this.tracedSymbol(this.checker.getSymbolAtLocation(e), seen);
    if (ts.isCallExpression(e)) return this.tracedCall(e, seen);
    if (ts.isTaggedTemplateExpression(e)) {
      const tag = this.roleOf(e.tag, seen);
      return tag && { pkg: tag.pkg, what: tableOf(tag.pkg).calls[tag.what] ?? 'other' };
    }
    if (ts.isNewExpression(e)) {
      const made = this.roleOf(e.expression, seen);
      return made && { pkg: made.pkg, what: tableOf(made.pkg).news[made.what] ?? 'other' };
    }
    if (ts.isElementAccessExpression(e)) return this.elementOf(e.expression, seen);
    if (ts.isPropertyAccessExpression(e)) {
      const owner = this.roleOf(e.expression, seen);
      if (owner !== undefined) return member(owner, e.name.text);
      const symbol = this.checker.getSymbolAtLocation(e.name);
      return symbol === undefined ? this.assignedOnThis(e, seen) : this.tracedSymbol(symbol, seen);
    }
    if (ts.isBinaryExpression(e) && isFallback(e.operatorToken.kind)) {
      return agreed([e.left, e.right].filter((x) => !isNothing(x)).map((x) => this.roleOf(x, seen)));
    }
    if (ts.isConditionalExpression(e)) {
      return agreed([e.whenTrue, e.whenFalse].filter((x) => !isNothing(x)).map((x) => this.roleOf(x, seen)));
    }
    return undefined;
  }

  /** `this.broker = await create()` in a function of the class that the checker does not count as its own. */
  private assignedOnThis(e: ts.PropertyAccessExpression, seen: ReadonlySet<ts.Node>): Role | undefined {
    if (e.expression.kind !== ts.SyntaxKind.ThisKeyword) return undefined;
    let holder: ts.Node = e;
    while (!ts.isSourceFile(holder) && !ts.isClassLike(holder)) holder = holder.parent;
    const values: ts.Expression[] = [];
    if (!ts.isSourceFile(holder))
      eachNode(holder, (n) => {
        if (!ts.isBinaryExpression(n) || n.operatorToken.kind !== ts.SyntaxKind.EqualsToken) return;
        const left = n.left;
        if (!ts.isPropertyAccessExpression(left) || left.name.text !== e.name.text) return;
        if (left.expression.kind === ts.SyntaxKind.ThisKeyword && !isNothing(n.right)) values.push(n.right);
      });
    return agreed(values.map((value) => this.roleOf(value, seen)));
  }

  private tracedCall(call: ts.CallExpression, seen: ReadonlySet<ts.Node>): Role | undefined {
    const required = requiredModule(call);
    if (required !== undefined) {
      const pkg = packageOfSpecifier(required);
      return pkg === undefined ? undefined : { pkg, what: 'module' };
    }
    const made = this.roleOf(call.expression, seen);
    if (made !== undefined) return { pkg: made.pkg, what: tableOf(made.pkg).calls[made.what] ?? 'other' };
    const target = unwrapped(call.expression);
    if (ts.isPropertyAccessExpression(target) && TAKES_ONE.has(target.name.text)) {
      const element = this.elementOf(target.expression, seen);
      if (element !== undefined) return element;
    }
    const fns = this.functionsOf(call);
    if (fns.length > 0) return agreed(fns.map((fn) => this.returned(fn, seen)));
    // A function type or an interface's method: what it says that it gives back.
    const type = this.checker.getResolvedSignature(call)?.declaration?.type;
    return type === undefined || !ts.isTypeNode(type) || seen.has(type)
      ? undefined
      : this.annotated(type, new Set([...seen, type]));
  }

  /** One of a list or map: `channels[0]`, `channels.get(name)`, by the annotation of what holds them or its first content. */
  private elementOf(holder: ts.Expression, seen: ReadonlySet<ts.Node>): Role | undefined {
    const e = unwrapped(holder);
    const symbol = this.checker.getSymbolAtLocation(ts.isPropertyAccessExpression(e) ? e.name : e);
    const declaration = symbol?.declarations?.[0];
    if (declaration === undefined || seen.has(declaration)) return undefined;
    const inner = new Set([...seen, declaration]);
    const type = 'type' in declaration ? (declaration.type as ts.TypeNode | undefined) : undefined;
    const element = type === undefined ? undefined : elementType(type);
    if (element !== undefined) return this.annotated(element, inner);
    if (!('initializer' in declaration) || declaration.initializer === undefined) return undefined;
    const made = unwrapped(declaration.initializer as ts.Expression);
    if (ts.isNewExpression(made) && made.typeArguments !== undefined) {
      const last = made.typeArguments.at(-1);
      return last === undefined ? undefined : this.annotated(last, inner);
    }
    return ts.isArrayLiteralExpression(made)
      ? agreed(made.elements.map((x) => this.roleOf(x, inner)))
      : undefined;
  }

  /** What a function of the repository's own gives back. */
  private returned(fn: Fn, seen: ReadonlySet<ts.Node>): Role | undefined {
    if (seen.has(fn)) return undefined;
    const inner = new Set([...seen, fn]);
    if (fn.type !== undefined) return this.annotated(fn.type, inner);
    return agreed(
      returnsOf(fn)
        .filter((x) => !isNothing(x))
        .map((x) => this.roleOf(x, inner)),
    );
  }

  private tracedSymbol(symbol: ts.Symbol | undefined, seen: ReadonlySet<ts.Node>): Role | undefined {
    const declaration = symbol?.declarations?.[0];
    if (symbol === undefined || declaration === undefined || seen.has(declaration)) return undefined;
    const inner = new Set([...seen, declaration]);
    if (symbol.flags & ts.SymbolFlags.Alias) return this.tracedImport(symbol, declaration, inner);
    if (ts.isBindingElement(declaration)) return this.tracedBinding(declaration, inner);
    const typed =
      ts.isVariableDeclaration(declaration) ||
      ts.isParameter(declaration) ||
      ts.isPropertyDeclaration(declaration) ||
      ts.isPropertySignature(declaration) ||
      ts.isGetAccessorDeclaration(declaration);
    const type = typed ? (declaration.type ?? ts.getJSDocType(declaration)) : undefined;
    if (type !== undefined) {
      const role = this.annotated(type, inner);
      // JSDoc is often vaguer than the code: `@param {object} db`.
      const isFirm = typed && type === declaration.type && !isAnyKeyword(type);
      if (role !== undefined || isFirm) return role;
    }
    if (ts.isGetAccessorDeclaration(declaration)) return this.returned(declaration, seen);
    const born: ts.Expression[] = [...this.index.assignedTo(symbol)];
    if ('initializer' in declaration && declaration.initializer !== undefined) {
      born.push(declaration.initializer as ts.Expression);
    }
    if (ts.isPropertyAssignment(declaration)) born.push(declaration.initializer);
    if (ts.isShorthandPropertyAssignment(declaration)) {
      return this.tracedSymbol(this.checker.getShorthandAssignmentValueSymbol(declaration), inner);
    }
    if (ts.isParameter(declaration)) born.push(...this.passedTo(declaration));
    const fromCallback = ts.isParameter(declaration) ? this.callbackRole(declaration, inner) : undefined;
    return fromCallback ?? agreed(born.filter((x) => !isNothing(x)).map((x) => this.roleOf(x, inner)));
  }

  private tracedImport(
    symbol: ts.Symbol,
    declaration: ts.Node,
    seen: ReadonlySet<ts.Node>,
  ): Role | undefined {
    const pkg = packageOfImport(declaration);
    const target = this.checker.getAliasedSymbol(symbol);
    const resolved = target.declarations?.[0];
    if (resolved !== undefined && declaredIn(resolved) === undefined) {
      if (ts.isExportAssignment(resolved)) return this.roleOf(resolved.expression, seen);
      return this.tracedSymbol(target, seen);
    }
    if (pkg === undefined) return undefined;
    const name = importedName(declaration);
    return name === undefined ? { pkg, what: 'module' } : member({ pkg, what: 'module' }, name);
  }

  /** `const { Pool } = require('pg')`, `const { channel } = broker`. */
  private tracedBinding(element: ts.BindingElement, seen: ReadonlySet<ts.Node>): Role | undefined {
    const pattern = element.parent;
    const holder = pattern.parent;
    if (!ts.isObjectBindingPattern(pattern) || element.dotDotDotToken !== undefined) return undefined;
    const key = element.propertyName ?? element.name;
    if (!ts.isIdentifier(key) || !ts.isVariableDeclaration(holder) || holder.initializer === undefined)
      return undefined;
    const owner = this.roleOf(holder.initializer, seen);
    if (owner !== undefined) return member(owner, key.text);
    const property = this.checker.getTypeAtLocation(holder.initializer).getProperty(key.text);
    return this.tracedSymbol(property, seen);
  }

  private annotated(node: ts.TypeNode, seen: ReadonlySet<ts.Node>): Role | undefined {
    const typed = this.roleOfType(this.checker.getTypeFromTypeNode(node));
    if (typed !== undefined) return typed;
    if (ts.isUnionTypeNode(node)) {
      return agreed(node.types.filter((t) => !isNothingType(t)).map((t) => this.annotated(t, seen)));
    }
    // `typeof db`
    if (ts.isTypeQueryNode(node)) return this.tracedEntity(node.exprName, seen);
    if (ts.isImportTypeNode(node)) return importedType(node);
    if (!ts.isTypeReferenceNode(node)) return undefined;
    const name = node.typeName;
    const [first] = node.typeArguments ?? [];
    if (ts.isIdentifier(name) && first !== undefined) {
      if (name.text === 'Promise' || name.text === 'Awaited') return this.annotated(first, seen);
      if (name.text === 'Pick' || name.text === 'Omit') return part(this.annotated(first, seen));
      if (name.text === 'ReturnType') return this.annotatedResult(first, seen);
    }
    return this.named(node) ?? this.annotatedAlias(name, seen);
  }

  /** `type Db = typeof db`: what the alias of the repository's own stands for. */
  private annotatedAlias(name: ts.EntityName, seen: ReadonlySet<ts.Node>): Role | undefined {
    const symbol = this.checker.getSymbolAtLocation(name);
    const target = unaliased(this.checker, symbol);
    const alias = target?.declarations?.[0];
    if (alias === undefined || !ts.isTypeAliasDeclaration(alias) || seen.has(alias)) return undefined;
    return this.annotated(alias.type, new Set([...seen, alias]));
  }

  private tracedEntity(name: ts.EntityName, seen: ReadonlySet<ts.Node>): Role | undefined {
    return this.tracedSymbol(this.checker.getSymbolAtLocation(name), seen);
  }

  /** `ReturnType<typeof drizzle>`, `ReturnType<typeof connect>`. */
  private annotatedResult(node: ts.TypeNode, seen: ReadonlySet<ts.Node>): Role | undefined {
    if (!ts.isTypeQueryNode(node)) return undefined;
    const symbol = this.checker.getSymbolAtLocation(node.exprName);
    const target = unaliased(this.checker, symbol);
    const declared = target?.declarations?.[0];
    const fn = declared !== undefined && ts.isVariableDeclaration(declared) ? declared.initializer : declared;
    if (fn !== undefined && isFn(fn)) return this.returned(fn, seen);
    const made = this.tracedSymbol(symbol, seen);
    return made && { pkg: made.pkg, what: tableOf(made.pkg).calls[made.what] ?? 'other' };
  }

  /** Where an import of the repository's own leads into a package: a client that Prisma wrote beside the sources. */
  private packageBehind(imported: ts.Symbol | undefined): string | undefined {
    if (imported === undefined || !(imported.flags & ts.SymbolFlags.Alias)) return undefined;
    const declaration = this.checker.getAliasedSymbol(imported).declarations?.[0];
    return declaration === undefined ? undefined : declaredIn(declaration);
  }

  /** By the import that a type's name leads to. */
  named(node: ts.TypeNode): Role | undefined {
    if (!ts.isTypeReferenceNode(node)) return undefined;
    const name = node.typeName;
    const last = ts.isIdentifier(name) ? name : name.right;
    const base = ts.isIdentifier(name) ? undefined : name.left;
    const imported = this.checker.getSymbolAtLocation(
      base !== undefined && ts.isIdentifier(base) ? base : last,
    );
    const declaration = imported?.declarations?.[0];
    const pkg = packageOfImport(declaration) ?? this.packageBehind(imported);
    if (pkg === undefined) return undefined;
    const original = base === undefined ? importedName(declaration) : undefined;
    return { pkg, what: tableOf(pkg).types[original ?? last.text] ?? 'other' };
  }

  /**
   * `pool.connect((error, client) => …)`: the second parameter is what the awaited call would give.
   * `knex.transaction((trx) => …)`: the first parameter is the transaction.
   */
  private callbackRole(parameter: ts.ParameterDeclaration, seen: ReadonlySet<ts.Node>): Role | undefined {
    const fn = parameter.parent;
    if (!isFn(fn) || !ts.isCallExpression(fn.parent)) return undefined;
    const position = fn.parameters.indexOf(parameter);
    if (position > 1) return undefined;
    const made = this.roleOf(fn.parent.expression, seen) ?? this.openerOf(fn.parent, seen);
    const table = made && tableOf(made.pkg);
    const what = made && (position === 0 ? table?.callbacks?.[made.what] : table?.calls[made.what]);
    return made !== undefined && what !== undefined ? { pkg: made.pkg, what } : undefined;
  }

  /** The path of a method on a value with a type: `db.transaction`, when the method itself has none. */
  private openerOf(call: ts.CallExpression, seen: ReadonlySet<ts.Node>): Role | undefined {
    const target = call.expression;
    if (!ts.isPropertyAccessExpression(target)) return undefined;
    const owner = this.roleOf(target.expression, seen);
    return owner && member(owner, target.name.text);
  }

  private passedTo(parameter: ts.ParameterDeclaration): ts.Expression[] {
    const fn = parameter.parent;
    if (!isFn(fn)) return [];
    const position = fn.parameters.indexOf(parameter);
    return this.index.callsOf(fn).flatMap((call) => call.arguments[position] ?? []);
  }
}
