/**
 * @golevelup/nestjs-rabbitmq: `amqpConnection.publish(exchange, routingKey, message, options)`. The message is a
 * value that the library makes JSON of, unless it is a buffer. `amqpConnection.request` waits for an answer and is
 * no publish.
 */

import type { ts } from 'ts-morph';
import type { Callee } from '../resolve.js';
import { argumentsOf, type BrokerCall, type BrokerTools } from './broker-call.js';

export const name = 'golevelup';
export const summary = 'AmqpConnection.publish of @golevelup/nestjs-rabbitmq';

export function match(call: ts.CallExpression, callee: Callee, tools: BrokerTools): BrokerCall | undefined {
  if (callee.kind !== 'package' || callee.role.pkg !== '@golevelup/nestjs-rabbitmq') return undefined;
  if (callee.role.what !== 'connection' || callee.method !== 'publish') return undefined;
  const parts = argumentsOf(call, ['exchange', 'key', 'content', 'options'] as const, tools.env);
  return {
    idiom: '@golevelup/nestjs-rabbitmq AmqpConnection.publish',
    exchange: parts.exchange,
    key: parts.key,
    content: parts.content,
    form: 'value',
    options: parts.options,
    callback: undefined,
    addressed: true,
    obstacles: [],
    notes: [],
  };
}
