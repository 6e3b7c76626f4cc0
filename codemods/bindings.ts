/**
 * What a file binds in a dependency container: token to class, for Nest, inversify, tsyringe, typedi and awilix. Read
 * from the text of one file alone; pure. It refuses to know which of several bindings wins.
 */

import { ts } from 'ts-morph';
import { returnsOf } from './origins.js';
import { bare, eachNode, isFn, lineOf } from './syntax.js';

/** What stands behind a token. */
export type Bound =
  | { readonly kind: 'class'; readonly name: string }
  /** Another token. */
  | { readonly kind: 'token'; readonly name: string }
  /** Something that cannot be followed, in the words of the file. */
  | { readonly kind: 'other'; readonly text: string };

export interface Binding {
  /** As it is written: `EVENTS`, `'EVENTS'`, `TYPES.Events`, a class; for awilix the name. */
  readonly token: string;
  readonly bound: Bound;
  readonly line: number;
}

/** Texts of which a file holds one when it binds something. */
export const BINDING_TEXT =
  /\b(?:provide\s*:|useClass|useFactory|useExisting|useValue|useToken|asClass|asFunction|asValue|registerSingleton|registerInstance|registerType|toConstantValue|toDynamicValue|toService|Container\s*\.\s*set|\.(?:re)?bind\s*[<(]|@Service\s*\()/;

export function bindingsIn(file: ts.SourceFile): Binding[] {
  const found: Binding[] = [];
  eachNode(file, (node) => {
    const made = ts.isObjectLiteralExpression(node)
      ? provider(node)
      : ts.isCallExpression(node)
        ? registration(node)
        : ts.isClassDeclaration(node)
          ? service(node)
          : [];
    const line = lineOf(node);
    found.push(...made.map((b) => ({ ...b, line })));
  });
  return found;
}

/** A token as bindings and injections write it. */
export function tokenOf(e: ts.Expression): string | undefined {
  const token = bare(e);
  if (ts.isStringLiteralLike(token)) return `'${token.text}'`;
  if (ts.isArrowFunction(token) && !ts.isBlock(token.body)) return tokenOf(token.body);
  // forwardRef(() => X), Symbol.for('X') where it stands.
  if (ts.isCallExpression(token)) {
    const [argument] = token.arguments;
    if (argument === undefined) return undefined;
    return /^(?:forwardRef|delay)$/.test(token.expression.getText()) ? tokenOf(argument) : flat(token);
  }
  return ts.isIdentifier(token) || ts.isPropertyAccessExpression(token) ? flat(token) : undefined;
}

type Made = Omit<Binding, 'line'>;

/** `{ provide: EVENTS, useClass: RabbitEvents }`; tsyringe's registry says `token`. */
function provider(object: ts.ObjectLiteralExpression): Made[] {
  const key = property(object, 'provide') ?? property(object, 'token') ?? property(object, 'id');
  const token = key === undefined ? undefined : tokenOf(key);
  if (token === undefined) return [];
  return boundBy(object, property(object, 'id') !== undefined).map((bound) => ({ token, bound }));
}

/** `typed` for typedi, whose objects say `type`, `factory` and `value`. */
function boundBy(object: ts.ObjectLiteralExpression, typed: boolean): Bound[] {
  const read = (name: string): ts.Expression | undefined => property(object, name);
  const existing = read('useExisting') ?? read('useToken');
  if (existing !== undefined) return [tokenBound(existing)];
  const cls = read('useClass') ?? (typed ? read('type') : undefined);
  if (cls !== undefined) return classesOf(cls);
  const value = read('useValue') ?? (typed ? read('value') : undefined);
  if (value !== undefined) return made(value);
  const factory = read('useFactory') ?? (typed ? read('factory') : undefined);
  return factory === undefined ? [] : givenBy(factory);
}

/** `container.bind(T).to(C)`, `container.register(T, {…})`, `Container.set(T, new C())`, `register({ n: asClass(C) })`. */
function registration(call: ts.CallExpression): Made[] {
  const target = bare(call.expression);
  if (!ts.isPropertyAccessExpression(target)) return [];
  const method = target.name.text;
  const [first, second] = call.arguments;
  const chained = bare(target.expression);
  if (ts.isCallExpression(chained)) {
    const on = bare(chained.expression);
    const isBind = ts.isPropertyAccessExpression(on) && /^(?:re)?bind$/.test(on.name.text);
    const [subject] = chained.arguments;
    const token = isBind && subject !== undefined ? tokenOf(subject) : undefined;
    const bound = token === undefined ? undefined : inversify(method, first, token);
    if (token !== undefined && bound !== undefined) return bound.map((b) => ({ token, bound: b }));
  }
  if (method === 'register' && first !== undefined && ts.isObjectLiteralExpression(first))
    return awilix(first);
  const token = first === undefined ? undefined : tokenOf(first);
  if (token === undefined || second === undefined) return [];
  if (method === 'register')
    return (ts.isObjectLiteralExpression(second) ? boundBy(second, false) : resolver(second)).map(
      (bound) => ({
        token,
        bound,
      }),
    );
  if (method === 'registerSingleton') return classesOf(second).map((bound) => ({ token, bound }));
  if (method === 'registerType') return [{ token, bound: tokenBound(second) }];
  const isValue =
    method === 'registerInstance' || (method === 'set' && flat(target.expression) === 'Container');
  return isValue ? made(second).map((bound) => ({ token, bound })) : [];
}

function inversify(method: string, first: ts.Expression | undefined, token: string): Bound[] | undefined {
  if (method === 'toSelf') return [{ kind: 'class', name: token }];
  if (first === undefined) return undefined;
  if (method === 'to') return classesOf(first);
  if (method === 'toConstantValue') return made(first);
  if (method === 'toDynamicValue') return givenBy(first);
  return method === 'toService' ? [tokenBound(first)] : undefined;
}

/** `register({ events: asClass(RabbitEvents).singleton() })`: the token is the name. */
function awilix(object: ts.ObjectLiteralExpression): Made[] {
  return object.properties.flatMap((p) => {
    if (!ts.isPropertyAssignment(p) || ts.isComputedPropertyName(p.name)) return [];
    return resolver(p.initializer).map((bound) => ({ token: p.name.getText(), bound }));
  });
}

function resolver(e: ts.Expression): Bound[] {
  let call = bare(e);
  while (ts.isCallExpression(call)) {
    const on: ts.Expression = bare(call.expression);
    const [first] = call.arguments;
    if (ts.isIdentifier(on) && first !== undefined) {
      if (on.text === 'asClass') return classesOf(first);
      if (on.text === 'asFunction') return givenBy(first);
      return on.text === 'asValue' ? made(first) : on.text === 'aliasTo' ? [tokenBound(first)] : [];
    }
    if (!ts.isPropertyAccessExpression(on)) return [];
    call = bare(on.expression);
  }
  return [];
}

/** typedi: `@Service(EVENTS) class RabbitEvents`, `@Service({ id: EVENTS })`. */
function service(node: ts.ClassDeclaration): Made[] {
  const name = node.name?.text;
  if (name === undefined) return [];
  return (ts.getDecorators(node) ?? []).flatMap((decorator) => {
    const call = bare(decorator.expression);
    if (!ts.isCallExpression(call) || call.expression.getText() !== 'Service') return [];
    const [argument] = call.arguments;
    if (argument === undefined) return [];
    const key = ts.isObjectLiteralExpression(argument) ? property(argument, 'id') : argument;
    const token = key === undefined ? undefined : tokenOf(key);
    return token === undefined ? [] : [{ token, bound: { kind: 'class', name } }];
  });
}

// ── what is bound ──

function classesOf(e: ts.Expression): Bound[] {
  const c = bare(e);
  if (ts.isConditionalExpression(c)) return [...classesOf(c.whenTrue), ...classesOf(c.whenFalse)];
  return [ts.isIdentifier(c) ? { kind: 'class', name: c.text } : other(c)];
}

/** `new C(…)`; of a parameter with a type, that type. */
function made(e: ts.Expression): Bound[] {
  const value = bare(ts.isAwaitExpression(e) ? e.expression : e);
  if (ts.isConditionalExpression(value)) return [...made(value.whenTrue), ...made(value.whenFalse)];
  if (ts.isNewExpression(value)) return classesOf(value.expression);
  return [ts.isIdentifier(value) ? (parameterType(value) ?? other(value)) : other(value)];
}

function givenBy(factory: ts.Expression): Bound[] {
  const fn = bare(factory);
  if (!isFn(fn)) return [other(fn)];
  const returned = returnsOf(fn);
  return returned.length === 0 ? [other(fn)] : returned.flatMap(made);
}

/** `useFactory: (rabbit: RabbitEvents) => rabbit`: a token of its own, and a class where nothing binds it. */
function parameterType(id: ts.Identifier): Bound | undefined {
  for (let n: ts.Node = id; !ts.isSourceFile(n); n = n.parent) {
    if (!isFn(n)) continue;
    const parameter = n.parameters.find((p) => ts.isIdentifier(p.name) && p.name.text === id.text);
    const type = parameter?.type;
    if (type !== undefined && ts.isTypeReferenceNode(type) && ts.isIdentifier(type.typeName))
      return { kind: 'token', name: type.typeName.text };
  }
  return undefined;
}

function tokenBound(e: ts.Expression): Bound {
  const name = tokenOf(e);
  return name === undefined ? other(e) : { kind: 'token', name };
}

function other(e: ts.Node): Bound {
  return { kind: 'other', text: flat(e).slice(0, 60) };
}

function property(object: ts.ObjectLiteralExpression, name: string): ts.Expression | undefined {
  for (const p of object.properties) {
    if (ts.isPropertyAssignment(p) && p.name.getText() === name) return p.initializer;
    if (ts.isShorthandPropertyAssignment(p) && p.name.text === name) return p.name;
    // useFactory() { return … }
    if (ts.isMethodDeclaration(p) && p.name.getText() === name) return methodValue(p);
  }
  return undefined;
}

/** A method in the place of a function: what follows asks only for its parameters and returns. */
function methodValue(method: ts.MethodDeclaration): ts.Expression {
  return method as unknown as ts.Expression;
}

function flat(node: ts.Node): string {
  return node.getText().replace(/\s+/g, '');
}
