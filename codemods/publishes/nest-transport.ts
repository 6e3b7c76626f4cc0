/**
 * Which transport a Nest client has: from `@Client({ transport })`, `ClientProxyFactory.create({ transport })`, or the
 * registration under the token that `@Inject` names. Where the token leads nowhere, a repository that registers one
 * transport and no other answers for it.
 */

import { ts } from 'ts-morph';
import type { Resolver } from '../resolve.js';
import { bare, eachNode, unwrapped } from '../syntax.js';
import type { Evaluator } from '../values.js';
import type { BrokerTools } from './broker-call.js';

export type Transport = 'rmq' | 'other' | 'unknown';

/** The number of Transport.RMQ, for those who wrote it so. */
const RMQ_NUMBER = '5';

export function transportOf(call: ts.CallExpression, tools: BrokerTools): Transport {
  const target = bare(call.expression);
  if (!ts.isPropertyAccessExpression(target)) return 'unknown';
  const registry = registryOf(tools.resolver, tools.values);
  const declaration = declarationOf(target.expression, tools);
  if (declaration !== undefined) {
    const own = agreed(transportsIn(declaration));
    if (own !== 'unknown') return own;
    const token = tokenOf(declaration, tools.values);
    const registered = token === undefined ? undefined : registry.byToken.get(token);
    if (registered !== undefined && registered.length > 0) return agreed(registered);
  }
  return agreed(registry.all);
}

function declarationOf(receiver: ts.Expression, tools: BrokerTools): ts.Declaration | undefined {
  const e = unwrapped(receiver);
  const name = ts.isPropertyAccessExpression(e) ? e.name : e;
  return tools.values.symbolOf(name)?.valueDeclaration;
}

interface Registry {
  readonly byToken: ReadonlyMap<string, readonly Transport[]>;
  readonly all: readonly Transport[];
}

const registries = new WeakMap<Resolver, Registry>();

/** Object literals that name a token (`name` or `provide`) and, somewhere inside, a `transport`. */
function registryOf(resolver: Resolver, values: Evaluator): Registry {
  const known = registries.get(resolver);
  if (known !== undefined) return known;
  const byToken = new Map<string, Transport[]>();
  const all: Transport[] = [];
  for (const file of resolver.analysis.own) {
    if (resolver.analysis.isTest(file) || !file.text.includes('transport')) continue;
    if (!file.text.includes('@nestjs/microservices')) continue;
    eachNode(file, (node) => {
      if (!ts.isObjectLiteralExpression(node)) return;
      if (node.properties.some(isTransport) && !isServer(node)) all.push(...transportsIn(node));
      const property = node.properties.find(
        (p) => p.name !== undefined && /^(?:name|provide)$/.test(p.name.getText()),
      );
      if (property === undefined || !ts.isPropertyAssignment(property)) return;
      const token = tokenText(property.initializer, values);
      const transports = transportsIn(node);
      if (token !== undefined && transports.length > 0)
        byToken.set(token, [...(byToken.get(token) ?? []), ...transports]);
    });
  }
  const made = { byToken, all };
  registries.set(resolver, made);
  return made;
}

function isTransport(p: ts.ObjectLiteralElementLike): p is ts.PropertyAssignment {
  return ts.isPropertyAssignment(p) && p.name.getText() === 'transport';
}

/** What a service listens on says nothing about its clients. */
function isServer(node: ts.ObjectLiteralExpression): boolean {
  const call = node.parent;
  return (
    ts.isCallExpression(call) && /(?:createMicroservice|connectMicroservice)$/.test(call.expression.getText())
  );
}

function transportsIn(node: ts.Node): Transport[] {
  const found: Transport[] = [];
  eachNode(node, (n) => {
    if (!ts.isPropertyAssignment(n) || n.name.getText() !== 'transport') return;
    const text = bare(n.initializer).getText();
    if (/\.RMQ$/.test(text) || text === RMQ_NUMBER) found.push('rmq');
    else found.push(/\.[A-Z]+$/.test(text) ? 'other' : 'unknown');
  });
  return found;
}

/** The token of `@Inject(TOKEN)`. */
function tokenOf(declaration: ts.Declaration, values: Evaluator): string | undefined {
  if (!ts.canHaveDecorators(declaration)) return undefined;
  for (const decorator of ts.getDecorators(declaration) ?? []) {
    const call = decorator.expression;
    if (!ts.isCallExpression(call) || call.expression.getText() !== 'Inject') continue;
    const [token] = call.arguments;
    return token === undefined ? undefined : tokenText(token, values);
  }
  return undefined;
}

/** A text, or for a symbol or class its declaration. */
export function tokenText(token: ts.Expression, values: Evaluator): string | undefined {
  const folded = values.fold({ node: token, env: undefined });
  if (folded.ok) return `text ${folded.text}`;
  const e = bare(token);
  const symbol = values.symbolOf(ts.isPropertyAccessExpression(e) ? e.name : e);
  const declaration = symbol?.declarations?.[0];
  return declaration === undefined
    ? undefined
    : `at ${declaration.getSourceFile().fileName}:${declaration.pos}`;
}

function agreed(transports: readonly Transport[]): Transport {
  const [first] = transports;
  return first !== undefined && transports.every((t) => t === first) ? first : 'unknown';
}
