/**
 * Names that a publisher computes from a message: that of its class, in snake case say. Only what is certain from the text
 * is said; nothing of the repository is run.
 */

import { ts } from 'ts-morph';
import { importedName, importedPackage, unaliased } from './origins.js';
import { bare } from './syntax.js';

/** `X` of `X.constructor.name`. */
export function namedByClass(e: ts.Expression): ts.Expression | undefined {
  if (!ts.isPropertyAccessExpression(e) || e.name.text !== 'name') return undefined;
  const owner = bare(e.expression);
  return ts.isPropertyAccessExpression(owner) && owner.name.text === 'constructor'
    ? owner.expression
    : undefined;
}

/** The name of the class that a `new` makes an instance of; undefined when the class says otherwise. */
export function classNameOf(made: ts.NewExpression, checker: ts.TypeChecker): string | undefined {
  const symbol = checker.getSymbolAtLocation(bare(made.expression));
  const target = unaliased(checker, symbol);
  const declaration = target?.valueDeclaration;
  if (declaration === undefined || !ts.isClassDeclaration(declaration)) return undefined;
  // A base class may have a static `name` of its own, and one that is made by a call may be anything.
  const isPlain = (c: ts.ClassDeclaration): boolean =>
    !c.members.some((m) => m.name?.getText() === 'name' && isStatic(m)) &&
    !c.heritageClauses?.some((h) => h.types.some((t) => !ts.isIdentifier(t.expression)));
  const statics = checker.getTypeOfSymbol(target as ts.Symbol).getProperty('name')?.declarations ?? [];
  const isOwn = statics.some((d) => ts.isClassElement(d));
  return isPlain(declaration) && !isOwn ? declaration.name?.text : undefined;
}

function isStatic(member: ts.ClassElement): boolean {
  return (ts.getCombinedModifierFlags(member) & ts.ModifierFlags.Static) !== 0;
}

const CASES: Readonly<Record<string, (words: readonly string[]) => string>> = {
  snakeCase: (words) => words.join('_').toLowerCase(),
  kebabCase: (words) => words.join('-').toLowerCase(),
};
const SINGLE = new Map([
  ['lodash.snakecase', 'snakeCase'],
  ['lodash.kebabcase', 'kebabCase'],
]);

/** What a call of lodash or change-case makes of a name; undefined for any other call. */
export function casedBy(
  call: ts.CallExpression,
  checker: ts.TypeChecker,
): ((text: string) => string | undefined) | undefined {
  const target = bare(call.expression);
  const root = ts.isPropertyAccessExpression(target) ? target.expression : target;
  const pkg = importedPackage(checker, root);
  if (pkg === undefined || call.arguments.length !== 1) return undefined;
  const name = ts.isPropertyAccessExpression(target)
    ? target.name.text
    : (importedName(checker.getSymbolAtLocation(root)?.declarations?.[0]) ?? '');
  const written = SINGLE.get(pkg) ?? (/^(?:lodash|lodash-es|change-case)$/.test(pkg) ? name : '');
  const join = CASES[written];
  // Digits and other letters are cut differently by each of them.
  return join === undefined
    ? undefined
    : (text) =>
        /^[A-Za-z]+$/.test(text) ? join(text.match(/[A-Z]+(?![a-z])|[A-Z]?[a-z]+/g) ?? []) : undefined;
}
