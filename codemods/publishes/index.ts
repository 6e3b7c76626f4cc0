/** The broker libraries that are read, one file each. */

import type { ts } from 'ts-morph';
import { BROKER_SENDERS, BROKER_SENDS } from '../packages.js';
import type { Callee } from '../resolve.js';
import * as amqplib from './amqplib.js';
import type { BrokerCall, BrokerTools } from './broker-call.js';
import * as cloudamqp from './cloudamqp.js';
import * as golevelup from './golevelup.js';
import * as nest from './nest.js';
import * as rascal from './rascal.js';

const LIBRARIES = [amqplib, golevelup, nest, rascal, cloudamqp];

export function matchBroker(
  call: ts.CallExpression,
  callee: Callee,
  tools: BrokerTools,
): BrokerCall | undefined {
  for (const library of LIBRARIES) {
    const found = library.match(call, callee, tools);
    if (found !== undefined) return found;
  }
  return undefined;
}

/**
 * What a call hands to the outside through a broker library: a message to RabbitMQ (where wrapper discovery starts),
 * or, by a Nest client of Kafka or Redis, something that is none of ours.
 */
export function sendOf(
  call: ts.CallExpression,
  callee: Callee,
  tools: BrokerTools,
): 'broker' | 'transport' | undefined {
  if (callee.kind !== 'package') return undefined;
  const { pkg, what } = callee.role;
  if (!BROKER_SENDERS[pkg]?.includes(what) || !BROKER_SENDS[pkg]?.includes(callee.method)) return undefined;
  return nest.isForeign(call, callee, tools) ? 'transport' : 'broker';
}
