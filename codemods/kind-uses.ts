/**
 * Where a repository names a kind: its publishes and its enqueues, each with the payload as it is read there. The same
 * uses are found before a rewrite and after it, or a registry that was just made would be out of date. It knows
 * nothing of types and writes nothing.
 */

import { ts } from 'ts-morph';
import { enqueueCalls } from './enqueues.js';
import type { Analysis } from './program.js';
import { RELAY_KIND } from './publishes/relay.js';
import type { SiteReader } from './site.js';
import { type Fn, type Scope, scopeOf } from './syntax.js';
import type { Env, Value } from './values.js';
import { namedScopeOf, type Wrapper } from './wrappers.js';

export interface KindUse {
  readonly kind: string;
  readonly node: ts.Node;
  /** Null: no payload; undefined: it could not be read. */
  readonly payload: Value | null | undefined;
  /** The payload under each call of the function around it: an argument may have a type that its parameter has not. */
  readonly called: readonly Value[];
}

/** Types of more calls than this say nothing new, and each costs a look. */
const MAX_CALLS = 50;
/** Wrappers in wrappers; discovery follows no more. */
const MAX_CHAIN = 10;

export function kindUses(analysis: Analysis, reader: SiteReader): KindUse[] {
  // The payload of a relay is not the repository's to declare.
  const counts = ({ kind, node }: KindUse): boolean =>
    kind !== RELAY_KIND && !analysis.isTest(node.getSourceFile());
  const found = [...published(reader), ...behindSeveral(reader), ...enqueued(analysis, reader)];
  const uses = found.filter(counts);
  const named = new Set(uses.map((use) => use.kind));
  // When all calls of a wrapper have been written out it is left behind: what it sent is named at those calls.
  const left = insideOf(() => true, reader).filter((use) => !named.has(use.kind) && counts(use));
  return [...uses, ...left];
}

// ── publishes ──

function published(reader: SiteReader): KindUse[] {
  const { discovery, resolver } = reader;
  return discovery.publishes.flatMap((call) => {
    const scope = namedScopeOf(call);
    const wrapper = wrapperOf(scope, reader);
    if (!ts.isSourceFile(scope) && discovery.denied.has(scope)) return [];
    if (wrapper !== undefined && isUsable(wrapper)) return [];
    const callee = resolver.calleeOf(call);
    const names =
      callee.kind === 'own' && callee.fns.every((fn) => namesItself(wrapperOf(fn, reader), reader));
    return names ? [] : useOf(call, reader);
  });
}

function wrapperOf(scope: Scope, { discovery }: SiteReader): Wrapper | undefined {
  return ts.isSourceFile(scope) ? undefined : discovery.wrappers.get(scope);
}

function isUsable({ obstacles }: Wrapper): boolean {
  return obstacles.length === 0;
}

/** A call of it cannot be read as one message, and the kind stands inside: that is where it is named, now and when it is handed a transaction. */
function namesItself(wrapper: Wrapper | undefined, reader: SiteReader): boolean {
  if (wrapper?.inner === undefined || !leadsToUnclear(wrapper, reader)) return false;
  return reader.factsOf(wrapper.inner).kind !== null;
}

function leadsToUnclear({ inner, obstacles }: Wrapper, reader: SiteReader, depth = 0): boolean {
  if (obstacles.length > 0 || inner === undefined || depth > MAX_CHAIN) return obstacles.length > 0;
  const callee = reader.resolver.calleeOf(inner);
  return (
    callee.kind === 'own' &&
    callee.fns.some((fn) => {
      const next = wrapperOf(fn, reader);
      return next !== undefined && leadsToUnclear(next, reader, depth + 1);
    })
  );
}

function useOf(call: ts.CallExpression, reader: SiteReader): KindUse[] {
  const { kind, obstacles, body } = reader.factsOf(call);
  if (kind === null || obstacles.some((o) => o.code === 'rpc')) return [];
  const payload = obstacles.some((o) => o.code === 'payload-not-json') ? undefined : body;
  return [{ kind, node: call, payload, called: underCalls(payload, call, reader) }];
}

/** One of several implementations, behind calls that do not say which it is. */
function behindSeveral(reader: SiteReader): KindUse[] {
  const { discovery, resolver } = reader;
  const several = new Set<Fn>();
  for (const call of discovery.publishes) {
    const callee = resolver.calleeOf(call);
    if (callee.kind === 'own' && callee.fns.length > 1) for (const fn of callee.fns) several.add(fn);
  }
  return insideOf((wrapper) => several.has(wrapper.fn), reader);
}

/** In functions that only publish. */
function insideOf(wanted: (wrapper: Wrapper) => boolean, reader: SiteReader): KindUse[] {
  return [...reader.discovery.wrappers.values()].flatMap((wrapper) =>
    wrapper.inner !== undefined && isUsable(wrapper) && wanted(wrapper) ? useOf(wrapper.inner, reader) : [],
  );
}

// ── enqueues ──

function enqueued(analysis: Analysis, reader: SiteReader): KindUse[] {
  return enqueueCalls(analysis, reader.values).map(({ kind, node, payload }) => {
    const value = payload === undefined ? null : { node: payload, env: undefined };
    return { kind, node, payload: value, called: underCalls(value, node, reader) };
  });
}

// ── arguments ──

function underCalls(payload: Value | null | undefined, node: ts.Node, reader: SiteReader): Value[] {
  const fn = scopeOf(node);
  if (payload === null || payload === undefined || ts.isSourceFile(fn)) return [];
  const calls = reader.resolver.callsOf(fn).slice(0, MAX_CALLS);
  return calls.flatMap((call) => {
    const env = reader.values.enter(fn, call, undefined);
    return env === undefined ? [] : [within(payload, env)];
  });
}

/** What stood in the function itself stands under a call of it. */
function within({ node, env }: Value, call: Env): Value {
  if (env === undefined) return { node, env: call };
  const args = env.args.map((arg) => arg && within(arg, call));
  return { node, env: { fn: env.fn, args, receiver: env.receiver && within(env.receiver, call) } };
}
