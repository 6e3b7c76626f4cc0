/**
 * Which class runs behind an injected value: the token at the constructor, and every binding of it in the repository.
 * One class is an answer; several, or one that cannot be followed, are candidates for a person to choose from.
 */

import { ts } from 'ts-morph';
import { BINDING_TEXT, type Binding, type Bound, bindingsIn, tokenOf } from './bindings.js';
import type { Sources } from './files.js';
import { specifierOf } from './origins.js';
import { type Analysis, parse } from './program.js';
import type { ProgramIndex } from './program-index.js';
import { bare, unwrapped } from './syntax.js';

export interface Injected {
  /** The classes that are bound, when each can be followed into the repository. */
  readonly classes: readonly ts.ClassDeclaration[];
  /** Where: `RabbitEvents at src/app.module.ts:8`. */
  readonly places: readonly string[];
  readonly provable: boolean;
  /** Whether a class is bound that is none of the repository's. */
  readonly unknown: boolean;
}

interface Placed extends Binding {
  readonly path: string;
}

const CONTAINERS = new Set(['@nestjs/common', 'inversify', 'tsyringe', 'typedi']);
const INJECT = /^(?:Inject|inject|InjectRepository)$/;
const MAX_REDIRECTS = 5;

export class Injections {
  private byToken: ReadonlyMap<string, readonly Placed[]> | undefined;
  private awilix: boolean | undefined;
  private classes: ReadonlyMap<string, readonly ts.ClassDeclaration[]> | undefined;

  constructor(
    private readonly analysis: Analysis,
    private readonly sources: Sources,
    private readonly index: ProgramIndex,
  ) {}

  /** Undefined: the value is not injected, or nothing binds its token. */
  behind(receiver: ts.Expression): Injected | undefined {
    const token = this.tokenAt(unwrapped(receiver), 0);
    const bindings = token === undefined ? [] : this.bindingsOf(token, 0);
    if (bindings.length === 0) return undefined;
    const found = bindings.map((b) => (b.bound.kind === 'class' ? this.classNamed(b.bound.name) : undefined));
    const classes = [...new Set(found.filter((c) => c !== undefined))];
    return {
      classes,
      places: [...new Set(bindings.map((b) => `${said(b.bound)} at ${b.path}:${b.line}`))],
      provable: found.every((c) => c !== undefined),
      unknown: bindings.some((b, i) => b.bound.kind === 'class' && found[i] === undefined),
    };
  }

  private tokenAt(e: ts.Expression, depth: number): string | undefined {
    const { checker } = this.analysis;
    if (depth > MAX_REDIRECTS) return undefined;
    const symbol = checker.getSymbolAtLocation(ts.isPropertyAccessExpression(e) ? e.name : e);
    const declaration = symbol?.valueDeclaration;
    if (symbol === undefined || declaration === undefined) return undefined;
    if (ts.isParameter(declaration)) return this.ofParameter(declaration);
    if (ts.isBindingElement(declaration)) return this.byName(declaration);
    if (!ts.isPropertyDeclaration(declaration)) return undefined;
    const decorated = decoratedToken(declaration);
    if (decorated !== undefined) return decorated;
    const [assigned, ...more] = this.index.assignedTo(symbol);
    if (assigned === undefined || more.length > 0) return undefined;
    return this.tokenAt(unwrapped(assigned), depth + 1);
  }

  private ofParameter(parameter: ts.ParameterDeclaration): string | undefined {
    if (!ts.isConstructorDeclaration(parameter.parent)) return undefined;
    const decorated = decoratedToken(parameter);
    if (decorated !== undefined) return decorated;
    const type = parameter.type;
    if (type !== undefined && ts.isTypeReferenceNode(type)) {
      const declaration = this.analysis.checker.getTypeFromTypeNode(type).getSymbol()?.valueDeclaration;
      // A class is its own token; an interface is gone when the program runs.
      if (declaration !== undefined && ts.isClassDeclaration(declaration)) return type.typeName.getText();
    }
    return ts.isIdentifier(parameter.name) ? this.awilixName(parameter.name.text) : undefined;
  }

  /** awilix: `constructor({ events })`. */
  private byName(element: ts.BindingElement): string | undefined {
    const parameter = element.parent.parent;
    if (!ts.isParameter(parameter) || !ts.isConstructorDeclaration(parameter.parent)) return undefined;
    return this.awilixName((element.propertyName ?? element.name).getText());
  }

  /** A name is a token only for awilix, where the repository uses it. */
  private awilixName(name: string): string | undefined {
    return this.usesAwilix() ? name : undefined;
  }

  private usesAwilix(): boolean {
    this.awilix ??= this.hasAwilix();
    return this.awilix;
  }

  private hasAwilix(): boolean {
    for (const file of this.sources.files.values())
      if (/['"]awilix['"]/.test(file.text) && BINDING_TEXT.test(file.text)) return true;
    return false;
  }

  private bindingsOf(token: string, depth: number): Placed[] {
    const direct = this.bindings().get(token) ?? [];
    return direct.flatMap((binding) => {
      const { bound } = binding;
      if (bound.kind !== 'token') return [binding];
      const further =
        depth < MAX_REDIRECTS && bound.name !== token ? this.bindingsOf(bound.name, depth + 1) : [];
      if (further.length > 0) return further;
      // Nothing binds it: a class stands for itself.
      return [{ ...binding, bound: { kind: 'class', name: bound.name } as const }];
    });
  }

  private bindings(): ReadonlyMap<string, readonly Placed[]> {
    if (this.byToken !== undefined) return this.byToken;
    const found = new Map<string, Placed[]>();
    for (const [path, { text }] of this.sources.files) {
      if (this.sources.isTest(path) || !BINDING_TEXT.test(text)) continue;
      const file = parse(path, text);
      for (const binding of file === undefined ? [] : bindingsIn(file)) {
        const list = found.get(binding.token) ?? [];
        found.set(binding.token, [...list, { ...binding, path }]);
      }
    }
    this.byToken = found;
    return found;
  }

  /** The one class of a name among those that the program holds; two of a name are none. */
  private classNamed(name: string): ts.ClassDeclaration | undefined {
    if (this.classes === undefined) {
      const all = new Map<string, ts.ClassDeclaration[]>();
      for (const file of this.analysis.own) {
        if (this.analysis.isTest(file)) continue;
        for (const statement of file.statements) {
          if (!ts.isClassDeclaration(statement) || statement.name === undefined) continue;
          all.set(statement.name.text, [...(all.get(statement.name.text) ?? []), statement]);
        }
      }
      this.classes = all;
    }
    const [only, ...more] = this.classes.get(name) ?? [];
    return more.length === 0 ? only : undefined;
  }
}

/** `@Inject(EVENTS)` on a parameter or property, from a container that is known. */
function decoratedToken(node: ts.ParameterDeclaration | ts.PropertyDeclaration): string | undefined {
  for (const decorator of ts.getDecorators(node) ?? []) {
    const call = bare(decorator.expression);
    if (!ts.isCallExpression(call) || !ts.isIdentifier(call.expression)) continue;
    const [argument] = call.arguments;
    if (argument === undefined || !INJECT.test(call.expression.text)) continue;
    if (importedFrom(call.expression)) return tokenOf(argument);
  }
  return undefined;
}

function importedFrom(id: ts.Identifier): boolean {
  for (const statement of id.getSourceFile().statements) {
    if (!ts.isImportDeclaration(statement)) continue;
    const named = statement.importClause?.namedBindings;
    if (named === undefined || !ts.isNamedImports(named)) continue;
    const element = named.elements.find((e) => e.name.text === id.text);
    if (element !== undefined) return CONTAINERS.has(specifierOf(element) ?? '');
  }
  return false;
}

function said(bound: Bound): string {
  return bound.kind === 'other' ? bound.text : bound.name;
}
