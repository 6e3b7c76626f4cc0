/**
 * `Buffer.from(JSON.stringify(value))` peeled to `value`. A worker gets JSON, so content that is not made that way,
 * here or in a helper of one return, is refused.
 */

import { ts } from 'ts-morph';
import { returnsOf } from '../origins.js';
import type { Obstacle } from '../reasons.js';
import type { Resolver } from '../resolve.js';
import { bare, quote } from '../syntax.js';
import type { Evaluator, Value } from '../values.js';
import type { ContentForm } from './broker-call.js';

export type Peeled =
  | { readonly ok: true; readonly payload: Value | 'absent' }
  | { readonly ok: false; readonly obstacle: Obstacle };

const MAX_HELPERS = 5;

/** The payload of a message in the form in which the library takes its content. */
export function contentOf(resolver: Resolver, values: Evaluator, content: Value, form: ContentForm): Peeled {
  const peeled = peelJson(resolver, values, content);
  if (peeled.ok || form === 'bytes') return peeled;
  const made = values.deref(content);
  if (made === 'absent') return { ok: true, payload: 'absent' };
  if (values.isBytes(made)) return peeled;
  if (form === 'value') return { ok: true, payload: content };
  const text = stringified(resolver, values, content, 0);
  // A text goes out as it is; only what is certainly no text was made JSON of by the library.
  return text.ok || !values.isStructure(made) ? text : { ok: true, payload: content };
}

export function peelJson(resolver: Resolver, values: Evaluator, content: Value, depth = 0): Peeled {
  const made = values.deref(content);
  if (made === 'absent') return refuse(content.node);
  const call = bare(made.node);
  if (!ts.isCallExpression(call) && !ts.isNewExpression(call)) return refuse(content.node);
  const [first] = call.arguments ?? [];
  if (isBuffer(call) && first !== undefined)
    return stringified(resolver, values, { node: first, env: made.env }, depth);
  return ts.isCallExpression(call) ? helper(resolver, values, call, made, depth) : refuse(content.node);
}

/** The text that goes into the buffer: `JSON.stringify(value)`, through names and one-return helpers. */
function stringified(resolver: Resolver, values: Evaluator, text: Value, depth: number): Peeled {
  const made = values.deref(text);
  if (made === 'absent') return refuse(text.node);
  const call = bare(made.node);
  if (!ts.isCallExpression(call)) return refuse(text.node);
  const target = bare(call.expression);
  if (ts.isPropertyAccessExpression(target) && target.getText() === 'JSON.stringify') {
    const [value, replacer] = call.arguments;
    const plain =
      replacer === undefined ||
      replacer.kind === ts.SyntaxKind.NullKeyword ||
      replacer.getText() === 'undefined';
    if (value === undefined || !plain || ts.isSpreadElement(value)) return refuse(call);
    const payload: Value = { node: value, env: made.env };
    return { ok: true, payload: values.isAbsent(payload) ? 'absent' : payload };
  }
  const inner = enterHelper(resolver, values, call, made, depth);
  return inner === undefined ? refuse(text.node) : stringified(resolver, values, inner, depth + 1);
}

function helper(
  resolver: Resolver,
  values: Evaluator,
  call: ts.CallExpression,
  made: Value,
  depth: number,
): Peeled {
  const inner = enterHelper(resolver, values, call, made, depth);
  return inner === undefined ? refuse(call) : peelJson(resolver, values, inner, depth + 1);
}

function enterHelper(
  resolver: Resolver,
  values: Evaluator,
  call: ts.CallExpression,
  made: Value,
  depth: number,
): Value | undefined {
  const callee = resolver.calleeOf(call);
  const fn = callee.kind === 'own' && callee.fns.length === 1 ? callee.fns[0] : undefined;
  if (fn === undefined || depth >= MAX_HELPERS) return undefined;
  const returns = returnsOf(fn);
  const env = values.enter(fn, call, made.env);
  const [only] = returns;
  return only !== undefined && returns.length === 1 && env !== undefined ? { node: only, env } : undefined;
}

function isBuffer(call: ts.CallExpression | ts.NewExpression): boolean {
  if (ts.isNewExpression(call)) {
    const target = bare(call.expression);
    return ts.isIdentifier(target) && (target.text === 'Buffer' || target.text === 'TextEncoder');
  }
  const target = bare(call.expression);
  return ts.isPropertyAccessExpression(target) && target.getText() === 'Buffer.from';
}

function refuse(node: ts.Node): Peeled {
  return { ok: false, obstacle: { code: 'payload-not-json', what: quote(node) } };
}
