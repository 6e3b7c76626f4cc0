/**
 * The type of a message as JSON: what JSON.stringify makes of a value of that type, written out as source text. Names
 * that the repository exports stay names and are imported; everything else is spelled out. It refuses to guess: what
 * it cannot say is `unknown`.
 */

import { ts } from 'ts-morph';
import { isPlainJson } from './json-types.js';
import { declaredIn, isLibrary, unaliased } from './origins.js';
import { bare } from './syntax.js';
import type { Env, Evaluator, Value } from './values.js';

/** Gives the local name of a type that the repository exports; undefined when the file written cannot import it. */
export type NameOfType = (file: ts.SourceFile, name: string) => string | undefined;

const MAX_DEPTH = 8;
const MAX_PROPERTIES = 60;
const MAX_TEXT = 4_000;
export const UNKNOWN = 'unknown';

interface Property {
  readonly text: string;
  readonly optional: boolean;
}

export class PayloadTypes {
  private readonly open: ts.Type[] = [];

  constructor(
    private readonly checker: ts.TypeChecker,
    private readonly values: Evaluator,
    private readonly nameOf: NameOfType,
  ) {}

  /** The JSON type of a payload; `null` for a message without one. */
  textOf(payload: Value | null): string {
    if (payload === null) return 'null';
    const whole = this.value(payload);
    if (whole === 'undefined') return 'null';
    // A message that is undefined was never sent.
    const text = withoutUndefined(whole);
    return text.length > MAX_TEXT ? UNKNOWN : text;
  }

  /** Through a wrapper: its parameters are what was passed. */
  private value(value: Value): string {
    const e = copied(bare(value.node));
    const { env } = value;
    if (env === undefined) return this.type(this.typeAt(e), 0);
    const made = this.values.deref({ node: e, env });
    if (made === 'absent') return 'undefined';
    if (made.node !== e) return this.value(made);
    if (!ts.isObjectLiteralExpression(e)) return this.type(this.typeUnder(e, env), 0);
    const properties = this.literal(e, env);
    return properties === undefined ? UNKNOWN : object(properties, []);
  }

  private literal(e: ts.ObjectLiteralExpression, env: Env): Map<string, Property> | undefined {
    const all = new Map<string, Property>();
    for (const p of e.properties) {
      if (ts.isSpreadAssignment(p)) {
        const spread = this.values.deref({ node: p.expression, env });
        if (spread === 'absent') continue;
        const inner =
          ts.isObjectLiteralExpression(spread.node) && spread.env !== undefined
            ? this.literal(spread.node, spread.env)
            : this.spread(this.typeAt(spread.node));
        if (inner === undefined) return undefined;
        for (const [name, property] of inner) all.set(name, property);
      } else if (p.name === undefined || ts.isComputedPropertyName(p.name)) return undefined;
      else if (ts.isPropertyAssignment(p) || ts.isShorthandPropertyAssignment(p)) {
        const node = ts.isPropertyAssignment(p) ? p.initializer : p.name;
        const text = this.value({ node, env });
        all.delete(p.name.text);
        if (text !== 'undefined')
          all.set(p.name.text, { text: withoutUndefined(text), optional: text !== withoutUndefined(text) });
      }
    }
    return all;
  }

  /** Of what may be undefined each property may be missing. */
  private spread(type: ts.Type): Map<string, Property> | undefined {
    const present = this.checker.getNonNullableType(type);
    const all = this.propertiesOf(present, 0);
    if (present === type || all === undefined) return all;
    return new Map([...all].map(([name, { text }]) => [name, { text, optional: true }]));
  }

  /** `order.id` of a parameter without a type: the property of what was passed. */
  private typeUnder(e: ts.Expression, env: Env): ts.Type {
    const type = this.typeAt(e);
    if (!(type.flags & ts.TypeFlags.Any) || !ts.isPropertyAccessExpression(e)) return type;
    const owner = this.values.deref({ node: e.expression, env });
    if (owner === 'absent' || owner.node === bare(e.expression)) return type;
    const property = this.checker.getTypeAtLocation(owner.node).getProperty(e.name.text);
    return property === undefined ? type : this.checker.getTypeOfSymbol(property);
  }

  private typeAt(e: ts.Expression): ts.Type {
    const type = this.checker.getTypeAtLocation(e);
    const fresh = ts.isLiteralExpression(e) || ts.isTemplateExpression(e) || ts.isPrefixUnaryExpression(e);
    const isFlag = e.kind === ts.SyntaxKind.TrueKeyword || e.kind === ts.SyntaxKind.FalseKeyword;
    return fresh || isFlag ? this.checker.getBaseTypeOfLiteralType(type) : type;
  }

  private type(type: ts.Type, depth: number): string {
    const { TypeFlags } = ts;
    const is = (flags: ts.TypeFlags): boolean => (type.flags & flags) !== 0;
    if (depth > MAX_DEPTH || this.open.includes(type)) return UNKNOWN;
    if (is(TypeFlags.EnumLike)) return this.enumeration(type);
    if (type.isStringLiteral()) return quoted(type.value);
    if (type.isNumberLiteral()) return String(type.value);
    if (is(TypeFlags.StringLike)) return 'string';
    if (is(TypeFlags.NumberLike)) return 'number';
    if (is(TypeFlags.BooleanLiteral)) return this.checker.typeToString(type);
    if (is(TypeFlags.BooleanLike)) return 'boolean';
    if (is(TypeFlags.Null)) return 'null';
    if (is(TypeFlags.Undefined | TypeFlags.Void)) return 'undefined';
    if (is(TypeFlags.TypeParameter)) {
      const bound = this.checker.getBaseConstraintOfType(type);
      return bound === undefined || bound === type ? UNKNOWN : this.type(bound, depth + 1);
    }
    this.open.push(type);
    const text = this.named(type, depth) ?? this.structure(type, depth);
    this.open.pop();
    return text;
  }

  private structure(type: ts.Type, depth: number): string {
    if (type.isUnion())
      return union(
        type.types.map((t) => this.type(t, depth)),
        isFunction,
      );
    // A branded text or number is a text or number.
    const [primitive] = type.isIntersection()
      ? type.types.filter((t) => (t.flags & (ts.TypeFlags.StringLike | ts.TypeFlags.NumberLike)) !== 0)
      : [];
    if (primitive !== undefined) return this.type(primitive, depth + 1);
    if (!type.isIntersection() && !(type.flags & ts.TypeFlags.Object)) return UNKNOWN;
    if (this.checker.isArrayType(type) || this.checker.isTupleType(type)) return this.list(type, depth);
    const stringified = this.stringified(type);
    if (stringified !== undefined) return this.type(stringified, depth + 1);
    if (this.signatures(type).length > 0) return FUNCTION;
    const properties = this.propertiesOf(type, depth);
    if (properties === undefined) return UNKNOWN;
    const index = this.checker
      .getIndexInfosOfType(type)
      .map((info) => `[key: string]: ${this.type(info.type, depth + 1)}`);
    return object(properties, index.slice(0, 1));
  }

  private list(type: ts.Type, depth: number): string {
    const elements = this.checker
      .getTypeArguments(type as ts.TypeReference)
      .map((t) => nullable(this.type(t, depth + 1)));
    const target = (type as ts.TupleTypeReference).target;
    const isTuple = this.checker.isTupleType(type);
    const fixed = isTuple && !target.hasRestElement && target.minLength === elements.length;
    const isReadonly = isTuple ? target.readonly : type.symbol.name === 'ReadonlyArray';
    const lead = isReadonly ? 'readonly ' : '';
    if (fixed) return `${lead}[${elements.join(', ')}]`;
    const element = union(elements);
    return `${lead}${/^[\w$.]+$/.test(element) || (element.startsWith('{') && !element.includes('|')) ? element : `(${element})`}[]`;
  }

  /** Undefined for what has no properties to speak of: `any`, an empty constraint, too many. */
  private propertiesOf(type: ts.Type, depth: number): Map<string, Property> | undefined {
    if (!(type.flags & ts.TypeFlags.Object) && !type.isIntersection()) return undefined;
    const all = new Map<string, Property>();
    const listed = this.checker.getPropertiesOfType(type);
    if (listed.length > MAX_PROPERTIES || isPlatform(type)) return undefined;
    for (const property of listed) {
      if (!isData(property)) continue;
      const text = this.type(this.checker.getTypeOfSymbol(property), depth + 1);
      const present = withoutUndefined(text);
      if (present === 'undefined' || isFunction(text)) continue;
      const optional = present !== text || (property.flags & ts.SymbolFlags.Optional) !== 0;
      all.set(property.name, { text: present, optional });
    }
    return all;
  }

  /** What `toJSON` gives: a Date is a text, a Buffer an object. */
  private stringified(type: ts.Type): ts.Type | undefined {
    const method = type.getProperty('toJSON');
    if (method === undefined) return undefined;
    const [signature] = this.checker.getTypeOfSymbol(method).getCallSignatures();
    return signature === undefined ? undefined : this.checker.getReturnTypeOfSignature(signature);
  }

  private signatures(type: ts.Type): readonly ts.Signature[] {
    return [ts.SignatureKind.Call, ts.SignatureKind.Construct].flatMap((k) =>
      this.checker.getSignaturesOfType(type, k),
    );
  }

  private enumeration(type: ts.Type): string {
    const declaration = type.symbol?.declarations?.[0];
    const holder =
      declaration !== undefined && ts.isEnumMember(declaration) ? declaration.parent : declaration;
    const name =
      holder !== undefined && ts.isEnumDeclaration(holder) ? this.exported(holder, holder.name) : undefined;
    if (name !== undefined) return name;
    return type.flags & ts.TypeFlags.StringLike ||
      (type.isUnion() && type.types.every((t) => t.isStringLiteral()))
      ? 'string'
      : 'number';
  }

  /** The name of an interface or alias that the repository exports, when JSON leaves it as it is. */
  private named(type: ts.Type, depth: number): string | undefined {
    const alias = type.aliasSymbol;
    const symbol = alias ?? type.getSymbol();
    const declaration = symbol?.declarations?.find(
      (d) => ts.isInterfaceDeclaration(d) || ts.isTypeAliasDeclaration(d),
    ) as ts.InterfaceDeclaration | ts.TypeAliasDeclaration | undefined;
    if (declaration === undefined || declaredIn(declaration) !== undefined || isLibrary(declaration))
      return undefined;
    if (!isPlainJson(this.checker, type)) return undefined;
    const name = this.exported(declaration, declaration.name);
    if (name === undefined) return undefined;
    const given =
      alias === undefined
        ? this.checker.getTypeArguments(type as ts.TypeReference)
        : (type.aliasTypeArguments ?? []);
    const wanted = given.slice(0, declaration.typeParameters?.length ?? 0);
    const written = wanted.map((t) => this.type(t, depth + 1));
    return written.length === 0 ? name : `${name}<${written.join(', ')}>`;
  }

  private exported(declaration: ts.Declaration, id: ts.Identifier): string | undefined {
    const file = declaration.getSourceFile();
    const module = this.checker.getSymbolAtLocation(file);
    const symbol = this.checker.getSymbolAtLocation(id);
    const found =
      module === undefined
        ? undefined
        : this.checker.getExportsOfModule(module).find((e) => {
            const target = unaliased(this.checker, e);
            return target === symbol && e.name !== 'default';
          });
    return found === undefined ? undefined : this.nameOf(file, found.name);
  }
}

/** A property whose value is a function is no data; JSON leaves it out. */
const FUNCTION = '() => never';
const isFunction = (text: string): boolean => text === FUNCTION;

/** `JSON.parse(JSON.stringify(x))` → `x`: the copy of a rewrite has the type of what it copies. */
function copied(e: ts.Expression): ts.Expression {
  const outer = argumentOf(e, 'JSON.parse');
  const inner = outer === undefined ? undefined : argumentOf(outer, 'JSON.stringify');
  return inner ?? e;
}

function argumentOf(e: ts.Expression, callee: string): ts.Expression | undefined {
  if (!ts.isCallExpression(e) || e.expression.getText() !== callee || e.arguments.length !== 1)
    return undefined;
  const [argument] = e.arguments;
  return argument === undefined ? undefined : bare(argument);
}

/** JSON has what is an object's own and enumerable; a rewrite's types know it without what is private. */
function isData(property: ts.Symbol): boolean {
  const declaration = property.declarations?.[0];
  if (property.flags & ts.SymbolFlags.Method || property.name.startsWith('__@')) return false;
  if (declaration === undefined) return true;
  if (ts.isGetAccessorDeclaration(declaration) && ts.isClassLike(declaration.parent)) return false;
  const hidden = ts.ModifierFlags.Private | ts.ModifierFlags.Protected;
  return (
    (ts.getCombinedModifierFlags(declaration) & hidden) === 0 &&
    !/^#|^__#/.test(property.escapedName as string)
  );
}

/** Map, Set, Error: objects of the platform, of which JSON keeps nothing that a type could say. */
function isPlatform(type: ts.Type): boolean {
  const declaration = type.symbol?.declarations?.[0];
  return (
    declaration?.getSourceFile().isDeclarationFile === true &&
    isLibrary(declaration) &&
    (type.symbol.flags & ts.SymbolFlags.Interface) !== 0
  );
}

function object(properties: ReadonlyMap<string, Property>, index: readonly string[]): string {
  const listed = [...properties].map(([name, { text, optional }]) => {
    const key = /^[A-Za-z_$][\w$]*$/.test(name) ? name : quoted(name);
    return optional ? `${key}?: ${union([text, 'undefined'])}` : `${key}: ${text}`;
  });
  const all = [...index, ...listed];
  return all.length === 0 ? 'Record<string, never>' : `{ ${all.join('; ')} }`;
}

/** Members sorted by their text, so that the order of the checker's own numbering does not show. */
export function union(texts: readonly string[], without: (text: string) => boolean = () => false): string {
  const members = new Set(texts.filter((t) => !without(t)));
  if (members.has(UNKNOWN)) return UNKNOWN;
  if (members.has('true') && members.has('false')) {
    members.delete('true');
    members.delete('false');
    members.add('boolean');
  }
  const last = (text: string): number => (text === 'undefined' ? 2 : text === 'null' ? 1 : 0);
  const sorted = [...members].sort((a, b) => last(a) - last(b) || (a < b ? -1 : 1));
  return sorted.length === 0 ? 'undefined' : sorted.join(' | ');
}

function withoutUndefined(text: string): string {
  return text.replace(/ \| undefined$/, '');
}

/** In an array JSON writes undefined, and functions, as null. */
function nullable(text: string): string {
  if (text === 'undefined' || isFunction(text)) return 'null';
  return text.endsWith(' | undefined') ? union([withoutUndefined(text), 'null']) : text;
}

function quoted(text: string): string {
  return `'${JSON.stringify(text).slice(1, -1).replaceAll('\\"', '"').replaceAll("'", "\\'")}'`;
}
