/**
 * What a function does to the outside, its callees included: writes to Postgres, writes elsewhere, sends. It gives
 * places, not verdicts. Every answer errs towards "may write": a wrong "writes" refuses a rewrite, a wrong "does
 * not" would break one.
 */

import { ts } from 'ts-morph';
import { declaredIn } from './origins.js';
import { classOf } from './packages.js';
import { sendOf } from './publishes/index.js';
import type { Resolver } from './resolve.js';
import type { Role } from './role-types.js';
import { bare, eachNode, type Fn, ownCalls, type Scope } from './syntax.js';
import { idiomOf } from './transactions/idioms.js';
import { classifySql, type SqlKind } from './transactions/sql.js';
import type { Env, Evaluator, Value } from './values.js';

export type EffectKind = 'pg-write' | 'pg-transaction' | 'orm' | 'not-postgres' | 'transport' | 'broker';

/** A call, or a tagged template that is one: ``sql`insert …` ``. */
export type CallLike = ts.CallExpression | ts.TaggedTemplateExpression;

export interface Effect {
  readonly kind: EffectKind;
  /** The package, or for pg the first words of the SQL. */
  readonly what: string;
  /** The call in the function that was asked about: the effect itself, or the call that leads to it. */
  readonly at: CallLike;
  /** Where the effect happens; the same node when it is direct. */
  readonly source: CallLike;
  readonly direct: boolean;
}

/** One statement through pg's `query`. `text` is what is known of the SQL. */
export interface PgQuery<Call extends CallLike = ts.CallExpression> {
  readonly call: Call;
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
const UNTRACED_WRITE =
  /^(?:\$?transaction|insert|insertInto|update|updateMany|upsert|delete|deleteMany|deleteFrom|save|persist|flush|\$executeRaw|createQueryRunner|commitTransaction)$/;
const SENDING =
  /emit|send|publish|post|put|patch|request|add|produce|xadd|push|write|fetch|dispatch|trigger|^module$|^get$/i;

export class Effects {
  private readonly memo = new Map<Fn, readonly Effect[]>();
  private readonly helpers = new Map<Fn, ts.CallExpression | undefined>();
  /** How often a cycle or the depth limit has cut an answer short. */
  private cuts = 0;

  constructor(
    private readonly resolver: Resolver,
    private readonly values: Evaluator,
  ) {}

  /** pg's `query` on a pool or client, directly or through a one-query helper; undefined for every other call. */
  pgQuery(call: ts.CallExpression): PgQuery | undefined {
    return this.rawQuery(call, undefined) ?? this.helperQuery(call);
  }

  private rawQuery(call: ts.CallExpression, env: Env | undefined): PgQuery | undefined {
    const ran = this.ranBy(call);
    if (ran === undefined) return undefined;
    const [argument] = call.arguments;
    const text = argument === undefined ? undefined : this.sqlText({ node: argument, env });
    const sql = text === undefined ? 'unknown' : classifySql(text);
    return { call, ...ran, sql, text: text ?? '', helper: undefined };
  }

  private ranBy(call: ts.CallExpression): Pick<PgQuery, 'on' | 'handle'> | undefined {
    const callee = this.resolver.calleeOf(call);
    if (callee.kind !== 'package' || classOf(callee.role.pkg) !== 'pg' || callee.method !== 'query')
      return undefined;
    const on = callee.role.what;
    const target = bare(call.expression);
    if ((on !== 'pool' && on !== 'client') || !ts.isPropertyAccessExpression(target)) return undefined;
    return { on, handle: target.expression };
  }

  /** `query(text, values)` of the repository's own that hands its text to the one pg query it makes. */
  private helperQuery(call: ts.CallExpression): PgQuery | undefined {
    const callee = this.resolver.calleeOf(call);
    const fn = callee.kind === 'own' && callee.fns.length === 1 ? callee.fns[0] : undefined;
    const inner = fn === undefined ? undefined : this.passedOnBy(fn);
    if (fn === undefined || inner === undefined) return undefined;
    const query = this.rawQuery(inner, this.values.enter(fn, call, undefined));
    return query === undefined ? undefined : { ...query, call, helper: fn };
  }

  /** The one query of a function, when its text is a parameter. Every call of the function asks: kept. */
  private passedOnBy(fn: Fn): ts.CallExpression | undefined {
    if (this.helpers.has(fn)) return this.helpers.get(fn);
    const queries =
      fn.body === undefined ? [] : ownCalls(fn.body).filter((inner) => this.ranBy(inner) !== undefined);
    const [query] = queries;
    const argument = query?.arguments[0];
    const passed =
      queries.length === 1 &&
      argument !== undefined &&
      ts.isIdentifier(argument) &&
      fn.parameters.some((p) => p.name.getText() === argument.text);
    const found = passed ? query : undefined;
    this.helpers.set(fn, found);
    return found;
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
      else if (ts.isTaggedTemplateExpression(n)) found.push(...this.tagged(n));
    });
    return found;
  }

  private collectCall(call: ts.CallExpression, seen: ReadonlySet<ts.Node>, depth: number): Effect[] {
    const direct = this.direct(call);
    if (direct !== undefined) return [direct];
    const callee = this.resolver.calleeOf(call);
    if (callee.kind !== 'own') return [];
    const fns = depth >= MAX_DEPTH ? [] : callee.fns.filter((fn) => !seen.has(fn));
    if (fns.length < callee.fns.length) this.cuts++;
    return fns
      .flatMap((fn) => this.ofFunction(fn, new Set([...seen, fn]), depth + 1))
      .map((effect) => ({ ...effect, at: call, direct: false }));
  }

  private ofFunction(fn: Fn, seen: ReadonlySet<ts.Node>, depth: number): readonly Effect[] {
    const known = this.memo.get(fn);
    if (known !== undefined) return known;
    const before = this.cuts;
    const found = fn.body === undefined ? [] : firstOfEach(this.collect(fn.body, seen, depth));
    // Of an inner function only an answer that no cycle or depth limit cut short is kept.
    if (seen.size === 1 || this.cuts === before) this.memo.set(fn, found);
    return found;
  }

  /**
   * An awaited call with a database's word on something that could not be traced: `await this.db.client.insert(…)`.
   * Whoever makes one does business of its own, whatever else it calls.
   */
  mayWrite(call: ts.CallExpression): boolean {
    const callee = this.resolver.calleeOf(call);
    return callee.kind === 'unresolved' && UNTRACED_WRITE.test(callee.name) && isAwaited(call);
  }

  /** What a call hands to the outside through a broker library. */
  sendOf(call: ts.CallExpression): 'broker' | 'transport' | undefined {
    const tools = { resolver: this.resolver, values: this.values, env: undefined };
    return sendOf(call, this.resolver.calleeOf(call), tools);
  }

  /** Whether a call through a client or ORM changes rows. A package that is not known errs towards "yes". */
  writesThrough(role: Role, method: string, argument: ts.Expression | undefined): boolean {
    const idiom = idiomOf(role.pkg);
    if (idiom === undefined) return WRITING.test(method);
    const writing = idiom.writes(role.what, method);
    if (writing !== 'sql') return writing === 'write';
    const text = argument === undefined ? undefined : this.sqlText({ node: argument, env: undefined });
    const kind = text === undefined ? 'unknown' : classifySql(text);
    return kind === 'write' || kind === 'unknown';
  }

  /** `begin`, `commit` or `rollback` when a call of a client or ORM is one of these. */
  transactionWord(call: ts.CallExpression): 'begin' | 'commit' | 'rollback' | undefined {
    const opened = this.resolver.pathOf(call);
    const table = opened === undefined ? undefined : idiomOf(opened.pkg)?.table;
    if (opened === undefined || table === undefined) return undefined;
    if (table.callbacks?.[opened.what] !== undefined || table.begins?.[opened.what] !== undefined)
      return 'begin';
    return table.ends?.[opened.what];
  }

  private tagged(node: ts.TaggedTemplateExpression): Effect[] {
    const called = this.taggedRole(node);
    if (called === undefined || classOf(called.role.pkg) !== 'orm') return [];
    if (!this.writesThrough(called.role, called.method, node)) return [];
    return [{ kind: 'orm', what: called.role.pkg, at: node, source: node, direct: true }];
  }

  /** What a tagged template is run by: postgres.js' `sql`, Prisma's `$executeRaw`. */
  taggedRole(node: ts.TaggedTemplateExpression): { role: Role; method: string } | undefined {
    const tag = bare(node.tag);
    const target = ts.isPropertyAccessExpression(tag) ? tag.expression : tag;
    const method = ts.isPropertyAccessExpression(tag) ? tag.name.text : '';
    const role = this.resolver.roleOf(target);
    if (role !== undefined) return { role, method };
    // `this.sql`: the tag itself is the root.
    const whole = this.resolver.roleOf(tag);
    if (whole !== undefined) return { role: whole, method: '' };
    const declaration = this.resolver.analysis.checker.getResolvedSignature(node)?.declaration;
    const pkg = declaration === undefined ? undefined : declaredIn(declaration);
    return pkg === undefined ? undefined : { role: { pkg, what: 'module' }, method };
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
    const opened = cls === 'orm' ? this.transactionWord(call) : undefined;
    if (opened !== undefined) return effect('pg-transaction', `${opened} (${pkg})`);
    const sent = this.sendOf(call);
    if (sent !== undefined) return effect(sent, pkg);
    if (cls === 'orm' && this.writesThrough(callee.role, callee.method, statementOf(call, callee.role)))
      return effect('orm', pkg);
    if (cls === 'not-postgres' && WRITING.test(callee.method)) return effect('not-postgres', pkg);
    if (cls === 'transport' && SENDING.test(callee.method)) return effect('transport', pkg);
    return undefined;
  }
}

/** Where the SQL of a call is: its first argument, or of ``sql`…`.execute(db)`` what it is called on. */
function statementOf(call: ts.CallExpression, role: Role): ts.Expression | undefined {
  const target = bare(call.expression);
  return role.what === 'raw' && ts.isPropertyAccessExpression(target) ? target.expression : call.arguments[0];
}

/** Awaited, itself or as the start of a chain that is. */
function isAwaited(call: ts.CallExpression): boolean {
  let n: ts.Node = call;
  while (
    (ts.isPropertyAccessExpression(n.parent) && n.parent.expression === n) ||
    (ts.isCallExpression(n.parent) && n.parent.expression === n) ||
    ts.isParenthesizedExpression(n.parent)
  )
    n = n.parent;
  return ts.isAwaitExpression(n.parent);
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
