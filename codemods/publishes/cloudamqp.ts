/**
 * @cloudamqp/amqp-client: `channel.basicPublish(exchange, routingKey, data, properties)`, and `publish(body, options)`
 * of its queue and exchange objects, whose name is that of the call that made them.
 */

import { ts } from 'ts-morph';
import type { Obstacle } from '../reasons.js';
import type { Callee } from '../resolve.js';
import { bare, quote, unwrapped } from '../syntax.js';
import type { Value } from '../values.js';
import { argumentsOf, type BrokerCall, type BrokerTools } from './broker-call.js';

export const name = 'cloudamqp';
export const summary = 'basicPublish, queue.publish and exchange.publish of @cloudamqp/amqp-client';

export function match(call: ts.CallExpression, callee: Callee, tools: BrokerTools): BrokerCall | undefined {
  if (callee.kind !== 'package' || callee.role.pkg !== '@cloudamqp/amqp-client') return undefined;
  const { what } = callee.role;
  if (what === 'channel' && callee.method === 'basicPublish') return basicPublish(call, tools);
  if (callee.method !== 'publish' || (what !== 'queue' && what !== 'exchange')) return undefined;
  const parts = argumentsOf(call, ['content', 'options'] as const, tools.env);
  const named = nameOfReceiver(call, tools);
  const routing =
    parts.options === undefined ? undefined : tools.values.property(parts.options, 'routingKey');
  const obstacles: Obstacle[] =
    named === undefined && what === 'queue' ? [{ code: 'dynamic-kind', what: quote(call.expression) }] : [];
  const key = what === 'queue' ? named : routing === 'absent' ? undefined : routing;
  return {
    ...base(`@cloudamqp/amqp-client ${what}.publish`, [...obstacles]),
    exchange: what === 'exchange' ? named : undefined,
    key,
    content: parts.content,
    options: parts.options,
    addressed: named !== undefined,
  };
}

function basicPublish(call: ts.CallExpression, tools: BrokerTools): BrokerCall {
  const names = ['exchange', 'key', 'content', 'options', 'mandatory', 'immediate'] as const;
  const parts = argumentsOf(call, names, tools.env);
  const asked = [parts.mandatory, parts.immediate].filter(
    (v) => v !== undefined && !tools.values.isAbsent(v) && bare(v.node).kind !== ts.SyntaxKind.FalseKeyword,
  );
  return {
    ...base(
      '@cloudamqp/amqp-client channel.basicPublish',
      asked.length === 0 ? [] : [{ code: 'unmappable-option', what: 'mandatory or immediate' }],
    ),
    exchange: parts.exchange,
    key: parts.key,
    content: parts.content,
    options: parts.options,
    addressed: true,
  };
}

function base(
  idiom: string,
  obstacles: readonly Obstacle[],
): Pick<BrokerCall, 'idiom' | 'form' | 'callback' | 'obstacles' | 'notes'> {
  return { idiom, form: 'text', callback: undefined, obstacles, notes: [] };
}

/** `const q = await channel.queue('orders')`: the first argument of the call that made the object. */
function nameOfReceiver(call: ts.CallExpression, { values, env }: BrokerTools): Value | undefined {
  const target = bare(call.expression);
  if (!ts.isPropertyAccessExpression(target)) return undefined;
  const made = values.deref({ node: target.expression, env });
  if (made === 'absent') return undefined;
  const maker = unwrapped(made.node);
  const [first] = ts.isCallExpression(maker) ? maker.arguments : [];
  return first === undefined ? undefined : { node: first, env: made.env };
}
