/**
 * rascal: `broker.publish(publication, message, overrides)`. The publication's name stands for an exchange and a
 * routing key of rascal's configuration, so the kind is that name, unless the call overrides the routing key.
 */

import { ts } from 'ts-morph';
import type { Obstacle } from '../reasons.js';
import type { Callee } from '../resolve.js';
import { bare, eachNode, isFn, quote, scopeOf } from '../syntax.js';
import type { Value } from '../values.js';
import { argumentsOf, type BrokerCall, type BrokerTools } from './broker-call.js';

export const name = 'rascal';
export const summary = 'broker.publish of rascal, by publication';

export function match(call: ts.CallExpression, callee: Callee, tools: BrokerTools): BrokerCall | undefined {
  if (callee.kind !== 'package' || callee.role.pkg !== 'rascal' || callee.role.what !== 'broker')
    return undefined;
  if (callee.method !== 'publish' && callee.method !== 'forward') return undefined;
  const parts = argumentsOf(call, ['publication', 'content', 'overrides', 'callback'] as const, tools.env);
  const last = call.arguments.at(-1);
  const callback = last !== undefined && isFn(bare(last)) ? last : undefined;
  const overrides = parts.overrides?.node === callback ? undefined : parts.overrides;
  const overridden = overridesOf(overrides, tools);
  const obstacles: Obstacle[] = [...overridden.obstacles];
  if (callee.method === 'forward') obstacles.push({ code: 'payload-not-json', what: quote(call) });
  return {
    idiom: `rascal broker.${callee.method}`,
    exchange: undefined,
    key: overridden.key ?? parts.publication,
    content: parts.content,
    form: 'text',
    options: overridden.options,
    callback,
    addressed: false,
    obstacles,
    notes: [],
  };
}

/** `publication.on('error', …)` on what a publish gave: the handlers say what became of the message. */
export function eventsOf(call: ts.CallExpression): string | undefined {
  let e: ts.Node = call;
  while (ts.isAwaitExpression(e.parent) || ts.isParenthesizedExpression(e.parent)) e = e.parent;
  if (isListening(e)) return quote(e.parent);
  const declaration = e.parent;
  if (!ts.isVariableDeclaration(declaration) || !ts.isIdentifier(declaration.name)) return undefined;
  const name = declaration.name.text;
  const uses: ts.Identifier[] = [];
  eachNode(scopeOf(call), (n) => {
    if (ts.isIdentifier(n) && n.text === name && n.parent !== declaration) uses.push(n);
  });
  const [first] = uses;
  return first !== undefined && uses.every(isListening) ? quote(first.parent) : undefined;
}

function isListening(e: ts.Node): boolean {
  const access = e.parent;
  return (
    ts.isPropertyAccessExpression(access) &&
    access.expression === e &&
    /^(?:on|once|addListener)$/.test(access.name.text)
  );
}

/** A text is a routing key; an object may hold `routingKey` and `options`, and nothing else that we know to map. */
function overridesOf(
  given: Value | undefined,
  { values }: BrokerTools,
): { key?: Value; options?: Value; obstacles: Obstacle[] } {
  if (given === undefined || values.isAbsent(given)) return { obstacles: [] };
  const made = values.deref(given);
  const object = made === 'absent' ? undefined : bare(made.node);
  if (object === undefined || !ts.isObjectLiteralExpression(object)) {
    return values.fold(given).ok || values.isText(given)
      ? { key: given, obstacles: [] }
      : { obstacles: [{ code: 'unmappable-option', what: `overrides ${quote(given.node)}` }] };
  }
  const obstacles = object.properties.flatMap((p): Obstacle[] => {
    const key = p.name?.getText();
    return key === 'routingKey' || key === 'options'
      ? []
      : [{ code: 'unmappable-option', what: `overrides ${quote(p)}` }];
  });
  const read = (name: string): Value | undefined => {
    const found = values.property(given, name);
    return found === 'absent' ? undefined : found;
  };
  const key = read('routingKey');
  const options = read('options');
  return {
    ...(key === undefined ? {} : { key }),
    ...(options === undefined ? {} : { options }),
    obstacles,
  };
}
