/**
 * A publish as the payload of a `relay.amqp` job: exchange, routing key, body and properties as they are, so that the
 * worker repeats the publish and consumers may stay on the broker. It refuses what a relay could not repeat.
 */

import { ts } from 'ts-morph';
import type { Obstacle } from '../reasons.js';
import type { Resolver } from '../resolve.js';
import { bare, quote } from '../syntax.js';
import type { Evaluator, Value } from '../values.js';
import type { BrokerCall } from './broker-call.js';
import { entriesOf } from './options.js';
import { contentOf } from './payload.js';

export const RELAY_KIND = 'relay.amqp';

/** Properties that the job carries under their own names. */
const CARRIED = new Set([
  ...['contentType', 'contentEncoding', 'correlationId', 'expiration', 'messageId'],
  ...['type', 'appId', 'deliveryMode', 'priority', 'timestamp'],
]);
/** The relay always publishes with a confirm and mandatory. */
const IMPLIED = new Set(['mandatory', 'timeout', 'confirm', 'routingKey']);

export interface RelayPayload {
  /** Source text of the payload. */
  readonly text: string;
  readonly plain: boolean;
  readonly obstacles: readonly Obstacle[];
}

/** `write` gives a value's text at the call site. */
export function relayPayload(
  resolver: Resolver,
  values: Evaluator,
  call: BrokerCall,
  write: (value: Value) => string,
): RelayPayload {
  const obstacles: Obstacle[] = [];
  if (!call.addressed) obstacles.push({ code: 'address-unknown', what: call.idiom });
  const body = bodyOf(resolver, values, call, write);
  const options = optionsOf(values, call.options, write, obstacles);
  const fields = [
    `exchange: ${call.exchange === undefined ? "''" : write(call.exchange)}`,
    `routingKey: ${call.key === undefined ? "''" : write(call.key)}`,
    body.text,
    ...(options.properties.length === 0 ? [] : [`properties: { ${options.properties.join(', ')} }`]),
    ...(options.headers === undefined ? [] : [`headers: ${options.headers}`]),
  ];
  return { text: `{ ${fields.join(', ')} }`, plain: body.plain && options.plain, obstacles };
}

/** `body` for JSON, `base64` for bytes that are something else. */
function bodyOf(
  resolver: Resolver,
  values: Evaluator,
  call: BrokerCall,
  write: (value: Value) => string,
): { text: string; plain: boolean } {
  if (call.content === undefined) return { text: "text: ''", plain: true };
  const content = contentOf(resolver, values, call.content, call.form);
  if (!content.ok) {
    const made = call.form === 'text' && !values.isBytes(call.content) ? 'text' : 'base64';
    const text = write(call.content);
    return {
      text: made === 'text' ? `text: ${text}` : `base64: Buffer.from(${text}).toString('base64')`,
      plain: true,
    };
  }
  if (content.payload === 'absent') return { text: "text: ''", plain: true };
  return { text: `body: ${write(content.payload)}`, plain: values.isPlainJson(content.payload) };
}

function optionsOf(
  values: Evaluator,
  given: Value | undefined,
  write: (value: Value) => string,
  obstacles: Obstacle[],
): { properties: string[]; headers: string | undefined; plain: boolean } {
  const result = { properties: [] as string[], headers: undefined as string | undefined, plain: true };
  if (given === undefined) return result;
  const entries = entriesOf(values, given);
  if (entries === undefined)
    obstacles.push({ code: 'unmappable-option', what: `object ${quote(given.node)}` });
  for (const [option, value] of entries ?? []) {
    if (values.isAbsent(value) || IMPLIED.has(option)) continue;
    if (option === 'headers') {
      result.headers = write(value);
      result.plain &&= values.isPlainJson(value);
    } else if (option === 'persistent') {
      if (bare(value.node).kind === ts.SyntaxKind.FalseKeyword) result.properties.push('deliveryMode: 1');
    } else if (option === 'replyTo') obstacles.push({ code: 'rpc', what: `replyTo: ${quote(value.node)}` });
    else if (!CARRIED.has(option)) obstacles.push({ code: 'unmappable-option', what: option });
    else if (option === 'expiration' && !values.isText(value))
      result.properties.push(`expiration: String(${write(value)})`);
    else result.properties.push(`${option}: ${write(value)}`);
  }
  return result;
}
