/**
 * What every broker library's file answers: which argument of a sending call is what. It refuses to follow the
 * arguments; that is the work of values.ts.
 */

import type { ts } from 'ts-morph';
import type { Obstacle } from '../reasons.js';
import type { Resolver } from '../resolve.js';
import type { Env, Evaluator, Value } from '../values.js';

/** How the content becomes bytes: `bytes` is a buffer already, `text` may be a text, `value` goes through JSON. */
export type ContentForm = 'bytes' | 'text' | 'value';

/** The parts of one message as they stand in the call that hands it to the broker. */
export interface BrokerCall {
  /** `amqplib channel.publish`. */
  readonly idiom: string;
  /** Undefined: the default exchange, or one that the library keeps in its own configuration. */
  readonly exchange: Value | undefined;
  readonly key: Value | undefined;
  readonly content: Value | undefined;
  readonly form: ContentForm;
  readonly options: Value | undefined;
  readonly callback: ts.Expression | undefined;
  /** Exchange and routing key are the message's whole address, so a relay could repeat the publish. */
  readonly addressed: boolean;
  readonly obstacles: readonly Obstacle[];
  readonly notes: readonly string[];
}

export interface BrokerTools {
  readonly resolver: Resolver;
  readonly values: Evaluator;
  readonly env: Env | undefined;
}

/** Arguments by name, in their order; undefined when they are spread. */
export function argumentsOf<Name extends string>(
  call: ts.CallExpression,
  names: readonly Name[],
  env: Env | undefined,
): Partial<Record<Name, Value>> {
  const found: Partial<Record<Name, Value>> = {};
  for (const [index, name] of names.entries()) {
    const node = call.arguments[index];
    if (node !== undefined) found[name] = { node, env };
  }
  return found;
}
