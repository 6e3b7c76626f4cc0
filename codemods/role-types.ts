/**
 * What types and members say of a role where nothing has to be traced: a part of a type, an element of a list, a property of a
 * package's value, and what several roles have in common. Pure; no program is searched.
 */

import { ts } from 'ts-morph';
import { declaredIn, isLibrary, memberOf, unaliased } from './origins.js';
import { packageOfSpecifier, tableOf } from './packages.js';

/** A value of a package: `amqplib`'s `channel`, `pg`'s `pool`, or `other` for what the tables do not name. */
export interface Role {
  readonly pkg: string;
  readonly what: string;
}

/** `Pool` of `Pick<Pool, 'query'>`, and of `type Db = Pick<Pool, 'query'>`. */
export function pickedFrom(
  { aliasSymbol, aliasTypeArguments }: ts.Type,
  checker: ts.TypeChecker,
): ts.Type | undefined {
  const alias = aliasSymbol?.declarations?.[0];
  if (alias === undefined || !ts.isTypeAliasDeclaration(alias)) return undefined;
  let declaration: ts.TypeAliasDeclaration = alias;
  if (isPick(declaration)) return aliasTypeArguments?.[0];
  // A package's own alias is what its name says: Prisma's `TransactionClient` is an `Omit`, too.
  for (let depth = 0; depth < MAX_ALIASES && declaredIn(declaration) === undefined; depth++) {
    const { type, typeParameters } = declaration;
    if (!ts.isTypeReferenceNode(type)) return undefined;
    const [whole] = type.typeArguments ?? [];
    const next: ts.Declaration | undefined = unaliased(checker, checker.getSymbolAtLocation(type.typeName))
      ?.declarations?.[0];
    if (next === undefined || !ts.isTypeAliasDeclaration(next)) return undefined;
    if (isPick(next) && whole !== undefined) {
      const own = typeParameters?.findIndex((p) => p.name.text === whole.getText()) ?? -1;
      return own < 0 ? checker.getTypeFromTypeNode(whole) : aliasTypeArguments?.[own];
    }
    declaration = next;
  }
  return undefined;
}

const MAX_ALIASES = 5;

/** The platform's own `Pick` and `Omit`. */
function isPick({ name, parent }: ts.TypeAliasDeclaration): boolean {
  return (name.text === 'Pick' || name.text === 'Omit') && isLibrary(parent);
}

export function part(whole: Role | undefined): Role | undefined {
  const what = whole === undefined ? undefined : tableOf(whole.pkg).parts?.[whole.what];
  return whole === undefined || what === undefined ? undefined : { pkg: whole.pkg, what };
}

/** `import('pg').Pool`. */
export function importedType({ argument, qualifier }: ts.ImportTypeNode): Role | undefined {
  if (!ts.isLiteralTypeNode(argument) || !ts.isStringLiteral(argument.literal)) return undefined;
  const pkg = packageOfSpecifier(argument.literal.text);
  if (pkg === undefined || qualifier === undefined) return undefined;
  const name = ts.isIdentifier(qualifier) ? qualifier : qualifier.right;
  return { pkg, what: tableOf(pkg).types[name.text] ?? 'other' };
}

/** A property of a package's value, under its own role where the table has one. */
export function member(owner: Role, name: string): Role {
  const path = memberOf(owner.what, name);
  const { members, foreign } = tableOf(owner.pkg);
  return foreign?.[path] ?? { pkg: owner.pkg, what: members?.[path] ?? path };
}

/** Methods of lists and maps that give one element. */
export const TAKES_ONE = new Set(['get', 'at', 'find', 'pop', 'shift']);

/** `T` of `T[]`, `Array<T>`, `Record<string, T>` and `Map<string, T>`. */
export function elementType(type: ts.TypeNode): ts.TypeNode | undefined {
  if (ts.isArrayTypeNode(type)) return type.elementType;
  if (ts.isTypeOperatorNode(type)) return elementType(type.type);
  if (ts.isTypeLiteralNode(type)) return type.members.find(ts.isIndexSignatureDeclaration)?.type;
  if (!ts.isTypeReferenceNode(type) || !/^(?:Readonly)?(?:Array|Map|Record)$/.test(type.typeName.getText()))
    return undefined;
  return type.typeArguments?.at(-1);
}

export function agreed(roles: readonly (Role | undefined)[]): Role | undefined {
  const [first] = roles;
  if (first === undefined) return undefined;
  return roles.every((r) => r !== undefined && r.pkg === first.pkg && r.what === first.what)
    ? first
    : undefined;
}
