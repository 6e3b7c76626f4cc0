/**
 * @nestjs/microservices: `client.emit(pattern, data)` of a client whose transport is RabbitMQ. The transport is read
 * where the client is registered under its injection token; a client of Kafka, Redis or TCP is no publisher here, and
 * one that cannot be told is refused. `client.send` waits for an answer.
 */

import { ts } from 'ts-morph';
import type { Obstacle } from '../reasons.js';
import type { Callee } from '../resolve.js';
import { bare, quote } from '../syntax.js';
import type { Value } from '../values.js';
import { argumentsOf, type BrokerCall, type BrokerTools } from './broker-call.js';
import { transportOf } from './nest-transport.js';

export const name = 'nest';
export const summary = 'ClientProxy.emit of @nestjs/microservices with the RabbitMQ transport';

const PACKAGE = '@nestjs/microservices';
const MAX_CHAIN = 10;

export function match(call: ts.CallExpression, callee: Callee, tools: BrokerTools): BrokerCall | undefined {
  if (callee.kind !== 'package' || callee.role.pkg !== PACKAGE) return undefined;
  if (callee.role.what !== 'client' && callee.role.what !== 'rmq-client') return undefined;
  if (callee.method !== 'emit' && callee.method !== 'send') return undefined;
  const parts = argumentsOf(call, ['key', 'content'] as const, tools.env);
  const record = parts.content === undefined ? undefined : recordOf(parts.content, tools);
  const obstacles: Obstacle[] = [];
  if (callee.method === 'send') obstacles.push({ code: 'rpc', what: quote(call) });
  const transport = callee.role.what === 'rmq-client' ? 'rmq' : transportOf(call, tools);
  if (transport !== 'rmq') obstacles.push({ code: 'transport-unproven', what: quote(call.expression) });
  return {
    idiom: `${PACKAGE} client.${callee.method}`,
    exchange: undefined,
    key: parts.key,
    content: record?.data ?? parts.content,
    form: 'value',
    options: record?.options,
    callback: undefined,
    addressed: false,
    obstacles,
    notes: ['wraps the data as { pattern, data }; the job holds the data alone'],
  };
}

/** A client that certainly speaks to something else than RabbitMQ. */
export function isForeign(call: ts.CallExpression, callee: Callee, tools: BrokerTools): boolean {
  if (callee.kind !== 'package' || callee.role.pkg !== PACKAGE || callee.role.what !== 'client') return false;
  return transportOf(call, tools) === 'other';
}

/** `new RmqRecord(data, options)` and `new RmqRecordBuilder(data).setOptions(…).build()`: the data and the options. */
function recordOf(content: Value, tools: BrokerTools): { data?: Value; options?: Value } | undefined {
  const made = tools.values.deref(content);
  if (made === 'absent') return undefined;
  const found: { data?: Value; options?: Value } = {};
  let e = bare(made.node);
  for (let i = 0; i < MAX_CHAIN && ts.isCallExpression(e); i++) {
    const target = bare(e.expression);
    if (!ts.isPropertyAccessExpression(target)) return undefined;
    const [argument] = e.arguments;
    if (target.name.text === 'setOptions' && argument !== undefined)
      found.options ??= { node: argument, env: made.env };
    if (target.name.text === 'setData' && argument !== undefined)
      found.data ??= { node: argument, env: made.env };
    e = bare(target.expression);
  }
  if (!ts.isNewExpression(e)) return undefined;
  if (tools.resolver.roleOf(e.expression)?.pkg !== PACKAGE) return undefined;
  const [data, options] = e.arguments ?? [];
  if (data !== undefined) found.data ??= { node: data, env: made.env };
  if (options !== undefined) found.options ??= { node: options, env: made.env };
  return found;
}
