/**
 * Does a type leave room for anything but plain JSON? A message was made with JSON.stringify, which turns a Date into
 * text and drops functions; enqueue refuses both, since a handler would not get what the caller passed. Where the
 * type cannot rule them out (a row is `any`), the payload is copied through JSON, as the publish did.
 */

import { ts } from 'ts-morph';

const MAX_DEPTH = 8;

export function isPlainJson(checker: ts.TypeChecker, type: ts.Type, depth = 0): boolean {
  const { TypeFlags } = ts;
  if (depth > MAX_DEPTH) return false;
  if (type.flags & (TypeFlags.StringLike | TypeFlags.NumberLike | TypeFlags.BooleanLike | TypeFlags.Null))
    return true;
  // As a property's value undefined is left out by both; alone and in arrays the callers below see it.
  if (type.flags & TypeFlags.Undefined) return depth > 0;
  if (type.isUnionOrIntersection()) return type.types.every((t) => isPlainJson(checker, t, depth));
  if (!(type.flags & TypeFlags.Object)) return false;
  if (checker.isArrayType(type) || checker.isTupleType(type)) {
    return checker
      .getTypeArguments(type as ts.TypeReference)
      .every((t) => !mayBeUndefined(t) && isPlainJson(checker, t, depth + 1));
  }
  return isPlainObject(checker, type, depth);
}

function isPlainObject(checker: ts.TypeChecker, type: ts.Type, depth: number): boolean {
  const signatures = [ts.SignatureKind.Call, ts.SignatureKind.Construct].flatMap((k) =>
    checker.getSignaturesOfType(type, k),
  );
  if (signatures.length > 0) return false;
  const declaration = type.symbol?.declarations?.[0];
  // Date, Map, Buffer and their like: objects of the platform, not data.
  const isPlatform =
    declaration?.getSourceFile().isDeclarationFile && (type.symbol.flags & ts.SymbolFlags.Interface) !== 0;
  if (isPlatform && checker.getPropertiesOfType(type).some(isMethod)) return false;
  const index = checker.getIndexInfosOfType(type);
  if (index.some((info) => !isPlainJson(checker, info.type, depth + 1))) return false;
  return checker.getPropertiesOfType(type).every((property) => {
    if (isMethod(property)) return property.name !== 'toJSON' && isOnPrototype(property);
    return isPlainJson(checker, checker.getTypeOfSymbol(property), depth + 1);
  });
}

function isMethod(property: ts.Symbol): boolean {
  return (property.flags & ts.SymbolFlags.Method) !== 0;
}

/** Methods of a class are not the object's own; a method of an object literal or interface may be. */
function isOnPrototype(property: ts.Symbol): boolean {
  const declaration = property.declarations?.[0];
  return declaration !== undefined && ts.isClassLike(declaration.parent);
}

function mayBeUndefined(type: ts.Type): boolean {
  if (type.flags & ts.TypeFlags.Undefined) return true;
  return type.isUnion() && type.types.some((t) => t.flags & ts.TypeFlags.Undefined);
}
