/**
 * amqplib's `channel.publish(exchange, routingKey, content, options)` and `channel.sendToQueue(queue, content,
 * options)`: which argument is what. It refuses to follow the arguments; that is the work of values.ts.
 */

import { ts } from 'ts-morph';
import { BROKER_SENDS, classOf } from '../packages.js';
import type { Callee } from '../resolve.js';

export const name = 'amqplib';
export const summary = 'channel.publish and channel.sendToQueue of amqplib, its confirm channels included';

/** The parts of one message as they stand in the call that hands it to the broker. */
export interface BrokerCall {
  /** `amqplib channel.publish`. */
  readonly idiom: string;
  readonly exchange: ts.Expression | undefined;
  readonly key: ts.Expression | undefined;
  readonly content: ts.Expression | undefined;
  readonly options: ts.Expression | undefined;
  readonly callback: ts.Expression | undefined;
}

const ARGUMENTS: Readonly<Record<string, readonly (keyof Omit<BrokerCall, 'idiom'>)[]>> = {
  publish: ['exchange', 'key', 'content', 'options', 'callback'],
  sendToQueue: ['key', 'content', 'options', 'callback'],
};

/** Undefined when the call is no send on an amqplib channel. */
export function match(call: ts.CallExpression, callee: Callee): BrokerCall | undefined {
  if (callee.kind !== 'package' || callee.role.pkg !== 'amqplib') return undefined;
  if (callee.role.what !== 'channel') return undefined;
  const order = ARGUMENTS[callee.method];
  if (order === undefined || call.arguments.some(ts.isSpreadElement)) return undefined;
  const part = (which: keyof Omit<BrokerCall, 'idiom'>): ts.Expression | undefined =>
    call.arguments[order.indexOf(which)];
  return {
    idiom: `amqplib channel.${callee.method}`,
    exchange: order.includes('exchange') ? part('exchange') : undefined,
    key: part('key'),
    content: part('content'),
    options: part('options'),
    callback: part('callback'),
  };
}

/** A send of any broker library, rewritten or not: where wrapper discovery starts. */
export function isBrokerSend(callee: Callee): boolean {
  if (callee.kind !== 'package' || classOf(callee.role.pkg) !== 'broker') return false;
  if (callee.role.pkg === 'amqplib') return callee.role.what === 'channel' && callee.method in ARGUMENTS;
  return BROKER_SENDS[callee.role.pkg]?.includes(callee.method) ?? false;
}
