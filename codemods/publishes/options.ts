/**
 * amqplib's publish options on one side, enqueue options on the other. Data first: what each option becomes. It
 * refuses to drop an option that changes what the message does.
 */

import { ts } from 'ts-morph';
import type { Obstacle } from '../reasons.js';
import { bare, quote } from '../syntax.js';
import type { Evaluator, Value } from '../values.js';

type Fate = 'drop' | 'priority' | 'dedupeKey' | 'header' | 'headers' | 'rpc' | 'refuse';

/** How the message travels is dropped; what it means is kept; what only a broker can do is refused. */
const FATES: Readonly<Record<string, Fate>> = {
  persistent: 'drop',
  deliveryMode: 'drop',
  contentType: 'drop',
  contentEncoding: 'drop',
  timestamp: 'drop',
  priority: 'priority',
  messageId: 'dedupeKey',
  correlationId: 'header',
  // The kind and the table's own source take their place.
  type: 'drop',
  appId: 'drop',
  headers: 'headers',
  replyTo: 'rpc',
  expiration: 'refuse',
  CC: 'refuse',
  BCC: 'refuse',
  mandatory: 'refuse',
  immediate: 'refuse',
  // amqp-connection-manager's wait for a confirm, @cloudamqp/amqp-client's confirm and address.
  timeout: 'drop',
  confirm: 'drop',
  routingKey: 'drop',
  userId: 'refuse',
};

/** The enqueue options as expressions still to be written out. */
export interface JobOptions {
  readonly priority?: Value;
  readonly dedupeKey?: Value;
  readonly delayMs?: Value;
  readonly headers: readonly { readonly name: string; readonly value: Value }[];
}

export interface MappedOptions {
  readonly options: JobOptions;
  readonly obstacles: readonly Obstacle[];
}

const NONE: MappedOptions = { options: { headers: [] }, obstacles: [] };

export function mapOptions(values: Evaluator, given: Value | undefined): MappedOptions {
  if (given === undefined) return NONE;
  const entries = entriesOf(values, given);
  if (entries === undefined) return refused(quote(given.node));
  const obstacles: Obstacle[] = [];
  const headers: { name: string; value: Value }[] = [];
  const single: { priority?: Value; dedupeKey?: Value; delayMs?: Value } = {};
  for (const [option, value] of entries) {
    if (values.isAbsent(value) || isFalse(value)) continue;
    const fate = FATES[option] ?? 'refuse';
    if (fate === 'refuse') obstacles.push({ code: 'unmappable-option', what: option });
    else if (fate === 'rpc') obstacles.push({ code: 'rpc', what: `${option}: ${quote(value.node)}` });
    else if (fate === 'header') headers.push({ name: option, value });
    else if (fate === 'headers') obstacles.push(...mapHeaders(values, value, headers, single));
    else if (fate !== 'drop') single[fate] = value;
  }
  return { options: { ...single, headers }, obstacles };
}

function mapHeaders(
  values: Evaluator,
  given: Value,
  headers: { name: string; value: Value }[],
  single: { delayMs?: Value },
): Obstacle[] {
  const entries = entriesOf(values, given);
  if (entries === undefined) {
    // A variable may carry x-delay or x-match; passing it on unread would turn a delay into a header nobody obeys.
    return [{ code: 'unmappable-option', what: `headers: ${quote(given.node)}` }];
  }
  for (const [name, value] of entries) {
    if (values.isAbsent(value)) continue;
    if (name === 'x-delay' && values.isText(value)) {
      return [{ code: 'unmappable-option', what: `x-delay as text, ${quote(value.node)}` }];
    }
    if (name === 'x-delay') single.delayMs = value;
    else headers.push({ name, value });
  }
  return [];
}

/** The properties of an object whose making is visible; undefined when it is not. Later ones win. */
export function entriesOf(values: Evaluator, given: Value): Map<string, Value> | undefined {
  const made = values.deref(given);
  if (made === 'absent' || bare(made.node).kind === ts.SyntaxKind.NullKeyword) return new Map();
  const object = bare(made.node);
  if (!ts.isObjectLiteralExpression(object)) return undefined;
  const entries = new Map<string, Value>();
  for (const p of object.properties) {
    if (ts.isSpreadAssignment(p)) {
      const inner = entriesOf(values, { node: p.expression, env: made.env });
      if (inner === undefined) return undefined;
      for (const [key, value] of inner) entries.set(key, value);
    } else if (ts.isPropertyAssignment(p) && !ts.isComputedPropertyName(p.name)) {
      entries.set(p.name.text, { node: p.initializer, env: made.env });
    } else if (ts.isShorthandPropertyAssignment(p)) entries.set(p.name.text, { node: p.name, env: made.env });
    else return undefined;
  }
  return entries;
}

function isFalse(value: Value): boolean {
  return bare(value.node).kind === ts.SyntaxKind.FalseKeyword;
}

function refused(what: string): MappedOptions {
  return { options: { headers: [] }, obstacles: [{ code: 'unmappable-option', what: `object ${what}` }] };
}
