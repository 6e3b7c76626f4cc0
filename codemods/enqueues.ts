/**
 * Calls that enqueue already: `enqueue` and `enqueueMany` of unbroker/enqueue, kinds of the registry, and the SQL
 * function. A registry that was made once has to stay the same when the publishes it was made from are gone.
 */

import { ts } from 'ts-morph';
import { importedName, specifierOf } from './origins.js';
import type { Analysis } from './program.js';
import { bare, eachNode } from './syntax.js';
import type { Evaluator } from './values.js';

export interface EnqueueCall {
  readonly node: ts.Node;
  readonly kind: string;
  /** Undefined: the job has no payload. */
  readonly payload: ts.Expression | undefined;
}

/** Texts of which a file holds one when it enqueues. */
export const ENQUEUE_TEXT = /['"]unbroker(?:\/enqueue)?['"]|unbroker\.enqueue\(/;

const MODULES = new Set(['unbroker', 'unbroker/enqueue']);
const SQL = /^select unbroker\.enqueue\(\$1, \$2::jsonb/i;

export function enqueueCalls(analysis: Analysis, values: Evaluator): EnqueueCall[] {
  const found: EnqueueCall[] = [];
  for (const file of analysis.roots) {
    if (analysis.isTest(file) || !ENQUEUE_TEXT.test(file.text)) continue;
    const reader = new Reader(analysis.checker, values);
    eachNode(file, (node) => {
      if (ts.isCallExpression(node)) found.push(...reader.read(node));
    });
  }
  return found;
}

class Reader {
  constructor(
    private readonly checker: ts.TypeChecker,
    private readonly values: Evaluator,
  ) {}

  read(call: ts.CallExpression): EnqueueCall[] {
    const target = bare(call.expression);
    const name = ts.isIdentifier(target) ? this.imported(target) : undefined;
    const [, second, third] = call.arguments;
    if (name === 'enqueue' && second !== undefined) return this.job(call, second, third);
    if (name === 'enqueueMany' && second !== undefined) return this.jobsIn(second);
    return this.sql(call);
  }

  /** `enqueue` for `import { enqueue as put } from 'unbroker/enqueue'`. */
  private imported(id: ts.Identifier): string | undefined {
    const declaration = this.checker.getSymbolAtLocation(id)?.declarations?.[0];
    if (declaration === undefined || !MODULES.has(specifierOf(declaration) ?? '')) return undefined;
    return importedName(declaration);
  }

  private job(node: ts.Node, kind: ts.Expression, payload: ts.Expression | undefined): EnqueueCall[] {
    const name = this.kindOf(kind);
    return name === undefined ? [] : [{ node, kind: name, payload }];
  }

  /** `xs.map((x) => ({ kind: 'k', payload: x }))`, `[kinds.k.job(x)]`. */
  private jobsIn(jobs: ts.Expression): EnqueueCall[] {
    const found: EnqueueCall[] = [];
    eachNode(jobs, (n) => {
      if (ts.isObjectLiteralExpression(n)) {
        const kind = initializerOf(n, 'kind');
        if (kind !== undefined) found.push(...this.job(n, kind, initializerOf(n, 'payload')));
      }
      if (!ts.isCallExpression(n)) return;
      const method = bare(n.expression);
      if (ts.isPropertyAccessExpression(method) && method.name.text === 'job')
        found.push(...this.job(n, method.expression, n.arguments[0]));
    });
    return found;
  }

  private sql(call: ts.CallExpression): EnqueueCall[] {
    const [text, list] = call.arguments;
    if (text === undefined || !ts.isStringLiteralLike(text) || !SQL.test(text.text)) return [];
    if (list === undefined || !ts.isArrayLiteralExpression(list)) return [];
    const [kind, payload] = list.elements;
    if (kind === undefined || payload === undefined) return [];
    const stringified =
      ts.isCallExpression(payload) && payload.expression.getText() === 'JSON.stringify'
        ? payload.arguments[0]
        : undefined;
    return this.job(call, kind, stringified);
  }

  /** A constant text, or a kind of the registry: `kinds['order.placed']`, whatever `kinds` is called here. */
  private kindOf(e: ts.Expression): string | undefined {
    const key = bare(e);
    if (ts.isElementAccessExpression(key) || ts.isPropertyAccessExpression(key)) {
      const owner = bare(key.expression);
      const symbol = ts.isIdentifier(owner) ? this.checker.getSymbolAtLocation(owner) : undefined;
      if (importedName(symbol?.declarations?.[0]) === 'kinds') {
        if (ts.isPropertyAccessExpression(key)) return key.name.text;
        return ts.isStringLiteralLike(key.argumentExpression) ? key.argumentExpression.text : undefined;
      }
    }
    const folded = this.values.fold({ node: key, env: undefined });
    return folded.ok ? folded.text : undefined;
  }
}

function initializerOf(object: ts.ObjectLiteralExpression, name: string): ts.Expression | undefined {
  for (const p of object.properties) {
    if (ts.isPropertyAssignment(p) && p.name.getText() === name) return p.initializer;
    if (ts.isShorthandPropertyAssignment(p) && p.name.text === name) return p.name;
  }
  return undefined;
}
