/**
 * What a function does to the outside, its callees included: writes to Postgres, writes elsewhere, sends. It gives
 * places, not verdicts. Every answer errs towards "may write": a wrong "writes" refuses a rewrite, a wrong "does
 * not" would break one.
 */

import { ts } from 'ts-morph';
import { classOf } from './packages.js';
import { isBrokerSend } from './publishes/amqplib.js';
import type { Resolver } from './resolve.js';
import { bare, eachNode, type Fn, ownCalls, type Scope } from './syntax.js';
import { classifySql, type SqlKind } from './transactions/sql.js';
import type { Env, Evaluator, Value } from './values.js';

export type EffectKind = 'pg-write' | 'pg-transaction' | 'orm' | 'not-postgres' | 'transport' | 'broker';

export interface Effect {
  readonly kind: EffectKind;
  /** The package, or for pg the first words of the SQL. */
  readonly what: string;
  /** The call in the function that was asked about: the effect itself, or the call that leads to it. */
  readonly at: ts.CallExpression;
  /** Where the effect happens; the same node when it is direct. */
  readonly source: ts.CallExpression;
  readonly direct: boolean;
}

/** One statement through pg's `query`. `text` is what is known of the SQL. */
export interface PgQuery {
  readonly call: ts.CallExpression;
  readonly on: 'pool' | 'client';
  readonly handle: ts.Expression;
  readonly sql: SqlKind;
  readonly text: string;
  /** The repository's own function that makes the query, when the call is a call of such a helper. */
  readonly helper: Fn | undefined;
}

const MAX_DEPTH = 6;
const WRITING =
  /save|insert|create|update|delete|remove|replace|write|upsert|execute|exec$|^query|run|none|one$|any$|many|task|tx$|transaction|flush|persist|raw|destroy|^put|batch|commit/i;
const SENDING =
  /emit|send|publish|post|put|patch|request|add|produce|xadd|push|write|fetch|dispatch|trigger|^module$|^get$/i;

export class Effects {
  private readonly memo = new Map<Fn, readonly Effect[]>();

  constructor(
    private readonly resolver: Resolver,
    private readonly values: Evaluator,
  ) {}

  /** pg's `query` on a pool or client, directly or through a one-query helper; undefined for every other call. */
  pgQuery(call: ts.CallExpression): PgQuery | undefined {
    return this.rawQuery(call, undefined) ?? this.helperQuery(call);
  }

  private rawQuery(call: ts.CallExpression, env: Env | undefined): PgQuery | undefined {
    const callee = this.resolver.calleeOf(call);
    if (callee.kind !== 'package' || classOf(callee.role.pkg) !== 'pg' || callee.method !== 'query')
      return undefined;
    const on = callee.role.what;
    const target = bare(call.expression);
    if ((on !== 'pool' && on !== 'client') || !ts.isPropertyAccessExpression(target)) return undefined;
    const [argument] = call.arguments;
    const text = argument === undefined ? undefined : this.sqlText({ node: argument, env });
    const sql = text === undefined ? 'unknown' : classifySql(text);
    return { call, on, handle: target.expression, sql, text: text ?? '', helper: undefined };
  }

  /** `query(text, values)` of the repository's own that hands its text to the one pg query it makes. */
  private helperQuery(call: ts.CallExpression): PgQuery | undefined {
    const callee = this.resolver.calleeOf(call);
    const fn = callee.kind === 'own' && callee.fns.length === 1 ? callee.fns[0] : undefined;
    if (fn?.body === undefined) return undefined;
    const env = this.values.enter(fn, call, undefined);
    const queries = ownCalls(fn.body).flatMap((inner) => this.rawQuery(inner, env) ?? []);
    const [query] = queries;
    if (query === undefined || queries.length !== 1) return undefined;
    const argument = query.call.arguments[0];
    const passed =
      argument !== undefined &&
      ts.isIdentifier(argument) &&
      fn.parameters.some((p) => p.name.getText() === argument.text);
    return passed ? { ...query, call, helper: fn } : undefined;
  }

  /** The SQL as far as it is literal: of a template with holes, the part before the first hole decides. */
  private sqlText(given: Value): string | undefined {
    const made = this.values.deref(given);
    if (made === 'absent') return undefined;
    const e = bare(made.node);
    if (ts.isStringLiteralLike(e)) return e.text;
    if (ts.isTemplateExpression(e))
      return e.head.text + e.templateSpans.map((s) => ` $ ${s.literal.text}`).join('');
    if (ts.isTaggedTemplateExpression(e)) {
      return ts.isTemplateExpression(e.template) ? e.template.head.text : e.template.text;
    }
    if (ts.isBinaryExpression(e)) return this.sqlText({ node: e.left, env: made.env });
    if (ts.isObjectLiteralExpression(e)) {
      const text = this.values.property(made, 'text');
      return text === undefined || text === 'absent' ? undefined : this.sqlText(text);
    }
    return undefined;
  }

  /** Effects of a function or a stretch of code, direct ones first; each once per call. */
  of(node: Scope | ts.Node): readonly Effect[] {
    return this.collect(node, new Set(), 0);
  }

  ofCall(call: ts.CallExpression): readonly Effect[] {
    return this.collectCall(call, new Set(), 0);
  }

  private collect(node: ts.Node, seen: ReadonlySet<ts.Node>, depth: number): Effect[] {
    const found: Effect[] = [];
    eachNode(node, (n) => {
      if (ts.isCallExpression(n)) found.push(...this.collectCall(n, seen, depth));
    });
    return found;
  }

  private collectCall(call: ts.CallExpression, seen: ReadonlySet<ts.Node>, depth: number): Effect[] {
    const direct = this.direct(call);
    if (direct !== undefined) return [direct];
    const callee = this.resolver.calleeOf(call);
    if (callee.kind !== 'own' || depth >= MAX_DEPTH) return [];
    return callee.fns
      .filter((fn) => !seen.has(fn))
      .flatMap((fn) => this.ofFunction(fn, new Set([...seen, fn]), depth + 1))
      .map((effect) => ({ ...effect, at: call, direct: false }));
  }

  private ofFunction(fn: Fn, seen: ReadonlySet<ts.Node>, depth: number): readonly Effect[] {
    const known = this.memo.get(fn);
    if (known !== undefined) return known;
    const found = fn.body === undefined ? [] : firstOfEach(this.collect(fn.body, seen, depth));
    // Only an answer that no cycle or depth limit cut short is kept.
    if (seen.size === 1) this.memo.set(fn, found);
    return found;
  }

  private direct(call: ts.CallExpression): Effect | undefined {
    const query = this.pgQuery(call);
    const effect = (kind: EffectKind, what: string): Effect => ({
      kind,
      what,
      at: call,
      source: call,
      direct: true,
    });
    if (query !== undefined) {
      const words = query.text.replace(/\s+/g, ' ').trim().slice(0, 40);
      if (query.sql === 'write' || query.sql === 'unknown') return effect('pg-write', words || 'a statement');
      return query.sql === 'read' || query.sql === 'savepoint' ? undefined : effect('pg-transaction', words);
    }
    const callee = this.resolver.calleeOf(call);
    if (callee.kind !== 'package') return undefined;
    const { pkg } = callee.role;
    const cls = classOf(pkg);
    if (isBrokerSend(callee)) return effect('broker', pkg);
    if (cls === 'orm' && WRITING.test(callee.method)) return effect('orm', pkg);
    if (cls === 'not-postgres' && WRITING.test(callee.method)) return effect('not-postgres', pkg);
    if (cls === 'transport' && SENDING.test(callee.method)) return effect('transport', pkg);
    return undefined;
  }
}

function firstOfEach(effects: readonly Effect[]): readonly Effect[] {
  const seen = new Set<string>();
  return effects.filter((e) => {
    const key = `${e.kind} ${e.what}`;
    return seen.has(key) ? false : seen.add(key);
  });
}

/** Effects that change a database. */
export function isWrite(effect: Effect): boolean {
  return effect.kind === 'pg-write' || effect.kind === 'orm' || effect.kind === 'not-postgres';
}
