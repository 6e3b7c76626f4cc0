/**
 * Indexes over the program, each built when first asked for: what is assigned to a variable, who calls a function,
 * which classes implement an interface.
 */

import { ts } from 'ts-morph';
import { CallNames } from './call-names.js';
import type { Analysis } from './program.js';
import { eachNode, type Fn } from './syntax.js';

export class ProgramIndex {
  private readonly checker: ts.TypeChecker;
  private readonly assignments = new Map<ts.SourceFile, Map<ts.Symbol, ts.Expression[]>>();
  private heirs: Map<ts.Symbol, ts.ClassLikeDeclaration[]> | undefined;
  private names: CallNames | undefined;
  private ownNames: CallNames | undefined;
  private readonly targets = new Map<ts.Node, ts.Node | undefined>();

  constructor(private readonly analysis: Analysis) {
    this.checker = analysis.checker;
  }

  /** What is assigned to a variable or property anywhere in the file that declares it. */
  assignedTo(symbol: ts.Symbol): readonly ts.Expression[] {
    const file = symbol.declarations?.[0]?.getSourceFile();
    if (file === undefined) return [];
    let index = this.assignments.get(file);
    if (index === undefined) {
      index = new Map();
      this.assignments.set(file, index);
      this.indexAssignments(file, index);
    }
    return index.get(symbol) ?? [];
  }

  private indexAssignments(file: ts.SourceFile, index: Map<ts.Symbol, ts.Expression[]>): void {
    eachNode(file, (node) => {
      if (!ts.isBinaryExpression(node) || node.operatorToken.kind !== ts.SyntaxKind.EqualsToken) return;
      const target = ts.isPropertyAccessExpression(node.left) ? node.left.name : node.left;
      const symbol = this.checker.getSymbolAtLocation(target);
      if (symbol === undefined) return;
      const list = index.get(symbol);
      if (list === undefined) index.set(symbol, [node.right]);
      else list.push(node.right);
    });
  }

  /** Whether a variable is ever assigned after its declaration. */
  isReassigned(symbol: ts.Symbol): boolean {
    return this.assignedTo(symbol).length > 0;
  }

  /** Calls (and `new`s, for constructors) of a function from the program's root files. */
  callsOf(fn: Fn): readonly ts.CallExpression[] {
    // A `new` has arguments like a call; only those are asked for.
    return this.callNames.of(fn).filter((call) => this.targetOf(call) === fn) as ts.CallExpression[];
  }

  /** The calls in the program's root files, by name. */
  get callNames(): CallNames {
    this.names ??= new CallNames(this.analysis.roots, this.analysis.own);
    return this.names;
  }

  /** The same in every file of the repository's own that the program holds. */
  get ownCallNames(): CallNames {
    this.ownNames ??= new CallNames(this.analysis.own, this.analysis.own);
    return this.ownNames;
  }

  private targetOf(call: ts.CallExpression | ts.NewExpression): ts.Node | undefined {
    if (!this.targets.has(call)) this.targets.set(call, this.checker.getResolvedSignature(call)?.declaration);
    return this.targets.get(call);
  }

  /** Classes that extend or implement a class or interface, directly. */
  heirsOf(symbol: ts.Symbol): readonly ts.ClassLikeDeclaration[] {
    if (this.heirs === undefined) {
      this.heirs = new Map();
      for (const file of this.analysis.own) this.indexHeirs(file, this.heirs);
    }
    return this.heirs.get(symbol) ?? [];
  }

  private indexHeirs(file: ts.SourceFile, index: Map<ts.Symbol, ts.ClassLikeDeclaration[]>): void {
    eachNode(file, (node) => {
      if (!ts.isClassLike(node)) return;
      for (const clause of node.heritageClauses ?? []) {
        for (const heir of clause.types) {
          const symbol = this.checker.getTypeAtLocation(heir).getSymbol();
          if (symbol !== undefined) index.set(symbol, [...(index.get(symbol) ?? []), node]);
        }
      }
    });
  }
}
