/**
 * The method that opens a transaction on an object which holds the pool: new, or one that an earlier run wrote there, with what
 * declares it, through the objects that hold that object. Where it cannot be called or be named there is a reason.
 */

import { ts } from 'ts-morph';
import type { Family } from '../callers.js';
import type { HandleType } from '../handle-types.js';
import { isWritten } from '../opener-text.js';
import type { Resolver } from '../resolve.js';
import { bare, eachNode, type Fn } from '../syntax.js';
import type { Addition, Opener } from '../thread-shapes.js';
import { ANY, type DownForm, rootTypeOf } from './deep-types.js';

/** One function on the way, and the calls in it that lead on, all to the same function. */
export interface Step {
  readonly family: Family;
  readonly fn: Fn;
  readonly nexts: readonly ts.CallExpression[];
}

/** Why it is left to people. */
export interface Refusal {
  readonly why: string;
}

const METHODS = ['inTransaction', 'withTransaction', 'runInTransaction'];

export const refuse = (why: string): Refusal => ({ why });

export function isRefusal<T extends object>(found: T | Refusal): found is Refusal {
  return 'why' in found;
}

export class DeepOpeners {
  private readonly names = new Map<ts.Node, string>();

  constructor(private readonly resolver: Resolver) {}

  private get checker(): ts.TypeChecker {
    return this.resolver.analysis.checker;
  }

  /** The method of the first class on the way, and those behind it that it calls. */
  of(
    path: readonly Step[],
    receiver: ts.Expression,
    root: ts.PropertyAccessExpression,
    what: string,
    form: DownForm,
  ): { readonly name: string; readonly additions: readonly Addition[] } | Refusal {
    const [first] = path;
    const owner = first === undefined ? undefined : classOf(first.fn);
    if (first === undefined || owner === undefined || first.fn.parent !== owner)
      return refuse(`${receiver.getText()} is no object of a class`);
    const onClass = this.openTo(first, owner, receiver);
    if (onClass !== undefined) return onClass;
    const at = leaving(path.flatMap((p) => p.nexts[0] ?? []));
    const inside = path.slice(0, at === undefined ? path.length : at.index + 1);
    if (!inside.every((p) => classOf(p.fn) === owner)) return refuse('the way there crosses classes');
    if (form.noOpener !== undefined) return refuse(form.noOpener);
    const rest =
      at === undefined ? undefined : this.of(path.slice(at.index + 1), at.receiver, root, what, form);
    if (rest !== undefined && isRefusal(rest)) return rest;
    const isScript = /\.[cm]?jsx?$/.test(first.fn.getSourceFile().fileName);
    const handle = form.handle(rootTypeOf(root, this.resolver.analysis)) ?? (isScript ? ANY : undefined);
    if (handle === undefined) return refuse(`the type of ${root.getText()} cannot be written`);
    const interfaces = first.family.declarations.filter((d) => ts.isInterfaceDeclaration(d.parent));
    const holders = interfaces.map((d) => d.parent as ts.InterfaceDeclaration);
    const run =
      rest !== undefined && at !== undefined
        ? `${at.receiver.getText()}.${rest.name}(work)`
        : form.run?.(root.getText(), what);
    const opens = { handle, run, pool: root.getText() };
    const there = writtenIn([owner, ...holders], this.heirsOf(owner), opens);
    if (there !== undefined) return { name: there, additions: rest?.additions ?? [] };
    const name = this.nameFor(owner, holders);
    if (name === undefined) return refuse('its class has such a method already');
    const opener: Opener = { name, ...opens };
    const files = [first.fn.getSourceFile(), ...interfaces.map((d) => d.getSourceFile())];
    const unwritable = files.find((f) => !canWrite(handle, f, this.checker));
    if (unwritable !== undefined)
      return refuse(
        `the type of ${root.getText()} cannot be written in ${this.resolver.analysis.pathOf(unwritable)}`,
      );
    return {
      name,
      additions: [
        { what: 'method', beside: first.fn as ts.MethodDeclaration, opener },
        ...interfaces.map(
          (d): Addition => ({ what: 'member', beside: d as ts.Node as ts.TypeElement, opener }),
        ),
        ...(rest?.additions ?? []),
      ],
    };
  }

  /** Why a method of this class, declared by these interfaces, could not be called on the receiver. */
  private openTo(step: Step, owner: ts.ClassLikeDeclaration, receiver: ts.Expression): Refusal | undefined {
    const { fn, family } = step;
    if (!ts.isMethodDeclaration(fn) || ts.getCombinedModifierFlags(fn) & ts.ModifierFlags.Static)
      return refuse(`${family.name} is no method of an instance`);
    if (family.doubles.length > 0) return refuse(`a test has its own ${family.name}`);
    const bases = family.declarations.filter((d) => d.parent !== owner);
    if (!bases.every((d) => ts.isInterfaceDeclaration(d.parent)))
      return refuse(`a base class declares ${family.name}`);
    const literal = this.literalOf(bases.map((d) => d.parent));
    if (literal !== undefined) return refuse(`an object is one of its interface at ${literal}`);
    const type = this.checker.getTypeAtLocation(receiver);
    const known = new Set<ts.Node>([owner, ...bases.map((d) => d.parent)]);
    const declared = type.getSymbol()?.declarations ?? [];
    const isAny = (type.flags & ts.TypeFlags.Any) !== 0;
    return isAny || declared.some((d) => known.has(d))
      ? undefined
      : refuse(`${receiver.getText()} is not declared as ${owner.name?.text ?? 'its class'}`);
  }

  /** Objects that are written out for an interface would lack its new member. */
  private literalOf(interfaces: readonly ts.Node[]): string | undefined {
    if (interfaces.length === 0) return undefined;
    const names = interfaces.map((i) => (i as ts.InterfaceDeclaration).name.text);
    let found: string | undefined;
    for (const file of this.resolver.analysis.own) {
      if (!names.some((n) => file.text.includes(n))) continue;
      eachNode(file, (n) => {
        if (found !== undefined || !ts.isObjectLiteralExpression(n)) return;
        const declared = this.checker.getContextualType(n)?.getSymbol()?.declarations ?? [];
        if (declared.some((d) => interfaces.includes(d))) found = this.resolver.analysis.pathOf(file);
      });
    }
    return found;
  }

  /** The same for every call of a class; free in it, in what declares it and in its heirs. */
  private nameFor(owner: ts.ClassLikeDeclaration, interfaces: readonly ts.Node[]): string | undefined {
    const known = this.names.get(owner);
    if (known !== undefined) return known;
    const taken = new Set<string>();
    for (const node of [owner, ...this.heirsOf(owner), ...interfaces]) {
      for (const property of this.checker.getTypeAtLocation(node).getProperties()) taken.add(property.name);
    }
    const name = METHODS.find((m) => !taken.has(m));
    if (name !== undefined) this.names.set(owner, name);
    return name;
  }

  private heirsOf(owner: ts.ClassLikeDeclaration): readonly ts.ClassLikeDeclaration[] {
    const symbol = owner.name === undefined ? undefined : this.checker.getSymbolAtLocation(owner.name);
    return symbol === undefined ? [] : this.resolver.heirsOf(symbol);
  }
}

/** The method that an earlier run wrote: into the class, and into all that declare it. */
function writtenIn(
  holders: readonly Holder[],
  heirs: readonly ts.ClassLikeDeclaration[],
  opens: Omit<Opener, 'name'>,
): string | undefined {
  const has = (holder: Holder, test: (m: ts.ClassElement | ts.TypeElement) => boolean): boolean =>
    holder.members.some(test);
  return METHODS.find(
    (name) =>
      holders.every((holder) => has(holder, (m) => isWritten(m, { name, ...opens }))) &&
      !heirs.some((heir) => has(heir, (m) => m.name?.getText() === name)),
  );
}

type Holder = ts.ClassLikeDeclaration | ts.InterfaceDeclaration;

/** The first call on something other than `this`. */
export function leaving(
  calls: readonly ts.CallExpression[],
): { readonly index: number; readonly receiver: ts.Expression } | undefined {
  for (const [index, call] of calls.entries()) {
    const target = bare(call.expression);
    if (!ts.isPropertyAccessExpression(target)) continue;
    if (target.expression.kind !== ts.SyntaxKind.ThisKeyword) return { index, receiver: target.expression };
  }
  return undefined;
}

export function classOf(node: ts.Node): ts.ClassLikeDeclaration | undefined {
  let n = node.parent;
  while (!ts.isSourceFile(n)) {
    if (ts.isClassLike(n)) return n;
    n = n.parent;
  }
  return undefined;
}

/** Whether a type can be named in a file: it is there, a package gives it, or its own file does. */
export function canWrite(type: HandleType, file: ts.SourceFile, checker: ts.TypeChecker): boolean {
  const { need } = type;
  if (!/\.[cm]?tsx?$/.test(file.fileName) || need === undefined || 'module' in need) return true;
  if (need.file === file) return true;
  const exports = checker.getSymbolAtLocation(need.file)?.exports;
  return need.name !== '' && exports?.has(ts.escapeLeadingUnderscores(need.name)) === true;
}
