/**
 * amqplib's `channel.publish(exchange, routingKey, content, options)` and `channel.sendToQueue(queue, content,
 * options)`, and the same two methods of amqp-connection-manager's channels, whose content may be a plain value when
 * they were made with `json: true`.
 */

import { ts } from 'ts-morph';
import type { Callee, Resolver } from '../resolve.js';
import { argumentsOf, type BrokerCall, type BrokerTools, type ContentForm } from './broker-call.js';

export const name = 'amqplib';
export const summary = 'channel.publish and channel.sendToQueue of amqplib and amqp-connection-manager';

const MANAGER = 'amqp-connection-manager';
const PUBLISH = ['exchange', 'key', 'content', 'options', 'callback'] as const;
const SEND_TO_QUEUE = ['key', 'content', 'options', 'callback'] as const;

/** Undefined when the call is no send on a channel. */
export function match(call: ts.CallExpression, callee: Callee, tools: BrokerTools): BrokerCall | undefined {
  if (callee.kind !== 'package' || callee.role.what !== 'channel') return undefined;
  const { pkg } = callee.role;
  if (pkg !== 'amqplib' && pkg !== MANAGER) return undefined;
  const toExchange = callee.method === 'publish';
  if (!toExchange && callee.method !== 'sendToQueue') return undefined;
  const parts: ReturnType<typeof argumentsOf<(typeof PUBLISH)[number]>> = toExchange
    ? argumentsOf(call, PUBLISH, tools.env)
    : argumentsOf(call, SEND_TO_QUEUE, tools.env);
  return {
    idiom: `${pkg} channel.${callee.method}`,
    exchange: parts.exchange,
    key: parts.key,
    content: parts.content,
    form: pkg === MANAGER ? managerForm(tools) : 'bytes',
    options: parts.options,
    callback: parts.callback?.node,
    addressed: true,
    obstacles: [],
    notes: [],
  };
}

/** Asked for every send of the program, and the same answer for all of them. */
const forms = new WeakMap<Resolver, ContentForm>();

/** `createChannel({ json: true })` everywhere: values; nowhere: buffers. Where both are made, buffers, to be sure. */
function managerForm({ resolver }: BrokerTools): ContentForm {
  const known = forms.get(resolver);
  if (known !== undefined) return known;
  const found = new Set<boolean>();
  for (const call of resolver.callNames.named(['createChannel'])) {
    if (resolver.analysis.isTest(call.getSourceFile())) continue;
    const callee = resolver.calleeOf(call);
    const made =
      callee.kind === 'package' && callee.role.pkg === MANAGER && callee.method === 'createChannel';
    if (made) found.add(takesValues(call));
  }
  const form = found.has(true) && !found.has(false) ? 'value' : 'bytes';
  forms.set(resolver, form);
  return form;
}

function takesValues(call: ts.CallExpression): boolean {
  const [options] = call.arguments;
  const json =
    options !== undefined && ts.isObjectLiteralExpression(options)
      ? options.properties.find((p) => p.name?.getText() === 'json')
      : undefined;
  return (
    json !== undefined && ts.isPropertyAssignment(json) && json.initializer.kind === ts.SyntaxKind.TrueKeyword
  );
}
