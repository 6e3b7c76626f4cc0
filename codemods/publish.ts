/**
 * One publishing call, followed through its wrappers to the broker call and read as a job: kind, payload, options.
 * It refuses to look at transactions; where the enqueue goes is decided elsewhere.
 */

import { ts } from 'ts-morph';
import { type CodemodConfig, kindFor } from './config.js';
import type { BrokerCall } from './publishes/broker-call.js';
import { matchBroker } from './publishes/index.js';
import { type JobOptions, mapOptions } from './publishes/options.js';
import { contentOf } from './publishes/payload.js';
import { RELAY_KIND, relayPayload } from './publishes/relay.js';
import type { Obstacle } from './reasons.js';
import { render } from './rendering.js';
import type { Callee, Resolver } from './resolve.js';
import { bare, lineOf, quote } from './syntax.js';
import type { Env, Evaluator, Value } from './values.js';
import { type Discovery, type Wrapper, wrapperId } from './wrappers.js';

/** Option values as source text for the call site. */
export interface OptionTexts {
  readonly priority?: string;
  readonly dedupeKey?: string;
  readonly delayMs?: string;
  readonly headers?: string;
}

export interface PublishFacts {
  /** `amqplib channel.publish`. */
  readonly idiom: string;
  /** From the site inwards: wrapper ids, then the broker call with its place. */
  readonly path: readonly string[];
  readonly exchange: string | null;
  readonly kind: string | null;
  /** Source text; null when the message has no body. */
  readonly payload: string | null;
  /** What the payload is made of, through the wrappers; null when the message has no body, or none that can be read. */
  readonly body: Value | null;
  /** What the kind and the options are made of; null when there is none, or none that can be read. */
  readonly key: Value | null;
  readonly settings: Value | null;
  /** Whether the payload is plain JSON for certain; if not, it is copied through JSON as the publish did. */
  readonly plain: boolean;
  readonly options: OptionTexts;
  /** The site's own expressions that live on in the enqueue. */
  readonly kept: readonly ts.Expression[];
  readonly obstacles: readonly Obstacle[];
  readonly notes: readonly string[];
}

const MAX_WRAPPERS = 10;
/** A kind's length in the table. */
const MAX_KIND = 200;

const NO_RENAMES: ReadonlyMap<ts.Symbol, string> = new Map();

export class PublishReader {
  private readonly known = new Map<ts.CallExpression, PublishFacts>();

  constructor(
    private readonly resolver: Resolver,
    private readonly values: Evaluator,
    private readonly discovery: Discovery,
    private readonly config: CodemodConfig,
  ) {}

  /** `renames`: the site's names that have another name where the enqueue goes. */
  read(site: ts.CallExpression, renames: ReadonlyMap<ts.Symbol, string> = NO_RENAMES): PublishFacts {
    const known = renames.size === 0 ? this.known.get(site) : undefined;
    if (known !== undefined) return known;
    const trail: Trail = { path: [], obstacles: [], notes: [], renames };
    const facts = this.follow(site, undefined, trail);
    if (renames.size === 0) this.known.set(site, facts);
    return facts;
  }

  /** A part of a publish as text, in the words of the place that publishes. */
  textOf(value: Value): string {
    return render(this.values, value).text;
  }

  /** An expression of the site as text for another place of it. */
  text(node: ts.Expression, renames: ReadonlyMap<ts.Symbol, string>): string {
    return render(this.values, { node, env: undefined }, renames).text;
  }

  private follow(call: ts.CallExpression, env: Env | undefined, trail: Trail): PublishFacts {
    const callee = this.resolver.calleeOf(call);
    const spread = call.arguments.some(ts.isSpreadElement);
    const broker = spread
      ? undefined
      : matchBroker(call, callee, { resolver: this.resolver, values: this.values, env });
    if (broker !== undefined) {
      trail.path.push(`${broker.idiom} (${this.place(call)})`);
      if (broker.callback !== undefined && env === undefined) {
        trail.obstacles.push({ code: 'callback-used', what: quote(broker.callback) });
      }
      trail.obstacles.push(...broker.obstacles);
      trail.notes.push(...broker.notes.map((note) => `The publish ${note}`));
      return this.facts(trail, broker);
    }
    if (callee.kind === 'own') return this.enter(call, callee, env, trail);
    const what = callee.kind === 'package' ? callee.role.pkg : quote(call.expression);
    return stopped(trail, {
      code: spread
        ? 'arguments-not-plain'
        : callee.kind === 'package'
          ? 'unsupported-broker-library'
          : 'publisher-unresolved',
      what: spread ? quote(call) : what,
    });
  }

  private enter(
    call: ts.CallExpression,
    callee: Callee & { kind: 'own' },
    env: Env | undefined,
    trail: Trail,
  ): PublishFacts {
    const wrapper = this.chosen(callee);
    if (wrapper === undefined) {
      const candidates = callee.fns.map((fn) => this.candidate(fn)).join(', ');
      const bound = callee.bindings === undefined ? '' : `; bound: ${callee.bindings.join(', ')}`;
      return stopped(trail, { code: 'several-implementations', what: candidates + bound });
    }
    trail.path.push(wrapper.id);
    trail.obstacles.push(...wrapper.obstacles);
    trail.notes.push(...wrapper.notes.map((note) => `${wrapper.name} ${note}`));
    const inner = this.values.enter(wrapper.fn, call, env);
    if (inner === undefined) return stopped(trail, { code: 'arguments-not-plain', what: quote(call) });
    if (wrapper.override !== undefined) return this.overridden(wrapper, call, env, trail);
    if (wrapper.inner === undefined || trail.path.length > MAX_WRAPPERS) {
      return stopped(trail, { code: 'wrapper-unclear', what: wrapper.id });
    }
    return this.follow(wrapper.inner, inner, trail);
  }

  /** The one function that a call reaches, or the one that unbroker.codemod.json leaves. */
  private chosen({ fns, bindings }: Callee & { kind: 'own' }): Wrapper | undefined {
    const { wrappers, denied } = this.discovery;
    const named = fns.filter((fn) => wrappers.get(fn)?.override !== undefined);
    const left = named.length > 0 ? named : fns.filter((fn) => !denied.has(fn));
    const [only] = left;
    const settled =
      left.length === 1 && (bindings === undefined || left.length < fns.length || named.length > 0);
    return only !== undefined && settled ? wrappers.get(only) : undefined;
  }

  /** `src/rabbit.ts#RabbitEvents.placed (line 4)`. */
  private candidate(fn: Wrapper['fn']): string {
    const name = wrapperId(this.resolver, fn) ?? this.place(fn);
    return `${name} (line ${lineOf(fn)}${this.discovery.wrappers.has(fn) ? '' : ', does not publish'})`;
  }

  /** The mapping of unbroker.codemod.json: the arguments are what they are, nothing is peeled. */
  private overridden(
    wrapper: Wrapper,
    call: ts.CallExpression,
    env: Env | undefined,
    trail: Trail,
  ): PublishFacts {
    const given = wrapper.override;
    if (given === undefined) return stopped(trail, { code: 'wrapper-unclear', what: wrapper.id });
    const at = (n: number | undefined): Value | undefined => {
      const node = n === undefined ? undefined : call.arguments[n];
      return node === undefined ? undefined : { node, env };
    };
    if (this.config.relay) trail.obstacles.push({ code: 'address-unknown', what: wrapper.id });
    const payload = at(given.payload);
    const kind = typeof given.kind === 'string' ? given.kind : undefined;
    const key = typeof given.kind === 'number' ? at(given.kind) : undefined;
    const missing = kind === undefined && key === undefined;
    if (missing) trail.obstacles.push({ code: 'arguments-not-plain', what: quote(call) });
    return this.assemble(trail, {
      idiom: 'confirmed wrapper',
      exchange: null,
      kind: this.kind(kind, undefined, key, trail),
      key,
      payload: payload ?? 'absent',
      options: at(given.options),
    });
  }

  private facts(trail: Trail, parts: BrokerCall): PublishFacts {
    if (this.config.relay) return this.relayed(trail, parts);
    const exchange = parts.exchange === undefined ? undefined : this.values.fold(parts.exchange);
    const name = exchange?.ok ? exchange.text : undefined;
    if (parts.key !== undefined && isReplyAddress(parts.key)) {
      trail.obstacles.push({ code: 'rpc', what: quote(parts.key.node) });
    }
    const kind = this.kind(undefined, name, parts.key, trail);
    const content =
      parts.content === undefined
        ? undefined
        : contentOf(this.resolver, this.values, parts.content, parts.form);
    if (content === undefined || !content.ok) {
      trail.obstacles.push(content?.obstacle ?? { code: 'payload-not-json', what: 'no content' });
    }
    return this.assemble(trail, {
      idiom: parts.idiom,
      exchange: name ?? null,
      kind,
      key: parts.key,
      payload: content?.ok ? content.payload : 'absent',
      options: parts.options,
    });
  }

  /** The publish itself as the payload: exchange, routing key, body, properties. */
  private relayed(trail: Trail, parts: BrokerCall): PublishFacts {
    const kept: ts.Expression[] = [];
    const made = relayPayload(this.resolver, this.values, parts, (value) => this.written(value, trail, kept));
    trail.obstacles.push(...made.obstacles);
    if (parts.key !== undefined && isReplyAddress(parts.key)) {
      trail.obstacles.push({ code: 'rpc', what: quote(parts.key.node) });
    }
    const exchange = parts.exchange === undefined ? undefined : this.values.fold(parts.exchange);
    return {
      idiom: parts.idiom,
      path: trail.path,
      exchange: exchange?.ok ? exchange.text : null,
      kind: RELAY_KIND,
      payload: made.text,
      body: null,
      key: null,
      settings: null,
      plain: made.plain,
      options: {},
      kept,
      obstacles: trail.obstacles,
      notes: trail.notes,
    };
  }

  private written(value: Value, trail: Trail, kept: ts.Expression[]): string {
    const rendered = render(this.values, value, trail.renames);
    kept.push(...rendered.nodes);
    trail.obstacles.push(...rendered.obstacles);
    return rendered.text;
  }

  private kind(
    fixed: string | undefined,
    exchange: string | undefined,
    key: Value | undefined,
    trail: Trail,
  ): string | null {
    const folded =
      fixed !== undefined
        ? { ok: true as const, text: fixed }
        : key === undefined
          ? undefined
          : this.values.fold(key);
    if (folded === undefined) return null;
    if (!folded.ok) {
      trail.obstacles.push({ code: 'dynamic-kind', what: folded.what });
      return null;
    }
    const kind = kindFor(this.config.kinds, exchange, folded.text);
    if (kind === '') trail.obstacles.push({ code: 'empty-kind', what: exchange ?? '' });
    if (kind.length > MAX_KIND)
      trail.obstacles.push({
        code: 'dynamic-kind',
        what: `${kind.slice(0, 40)}..., over ${MAX_KIND} characters`,
      });
    return kind === '' ? null : kind;
  }

  private assemble(trail: Trail, parts: Parts): PublishFacts {
    const { idiom, exchange, kind, payload, options } = parts;
    const kept: ts.Expression[] = [];
    const write = (value: Value): string => this.written(value, trail, kept);
    const mapped = mapOptions(this.values, options);
    trail.obstacles.push(...mapped.obstacles);
    return {
      idiom,
      path: trail.path,
      exchange,
      kind,
      payload: payload === 'absent' ? null : write(payload),
      body: payload === 'absent' ? null : payload,
      key: parts.key ?? null,
      settings: options ?? null,
      plain: payload === 'absent' || this.values.isPlainJson(payload),
      options: optionTexts(mapped.options, write),
      kept,
      obstacles: trail.obstacles,
      notes: trail.notes,
    };
  }

  private place(node: ts.Node): string {
    return `${this.resolver.analysis.pathOf(node.getSourceFile())}:${lineOf(node)}`;
  }
}

/** What a publish says, before it is written out. */
interface Parts {
  readonly idiom: string;
  readonly exchange: string | null;
  readonly kind: string | null;
  readonly key: Value | undefined;
  readonly payload: Value | 'absent';
  readonly options: Value | undefined;
}

interface Trail {
  readonly path: string[];
  readonly obstacles: Obstacle[];
  readonly notes: string[];
  readonly renames: ReadonlyMap<ts.Symbol, string>;
}

function stopped(trail: Trail, obstacle: Obstacle): PublishFacts {
  return {
    idiom: 'unknown',
    path: trail.path,
    exchange: null,
    kind: null,
    payload: null,
    body: null,
    key: null,
    settings: null,
    plain: true,
    options: {},
    kept: [],
    obstacles: [...trail.obstacles, obstacle],
    notes: trail.notes,
  };
}

function optionTexts(options: JobOptions, write: (value: Value) => string): OptionTexts {
  const headers = options.headers.map(({ name, value }) => `${propertyName(name)}: ${write(value)}`);
  return {
    ...(options.priority === undefined ? {} : { priority: write(options.priority) }),
    ...(options.dedupeKey === undefined ? {} : { dedupeKey: write(options.dedupeKey) }),
    ...(options.delayMs === undefined ? {} : { delayMs: write(options.delayMs) }),
    ...(headers.length === 0 ? {} : { headers: `{ ${headers.join(', ')} }` }),
  };
}

function propertyName(name: string): string {
  return /^[A-Za-z_$][\w$]*$/.test(name) ? name : `'${name.replace(/[\\']/g, '\\$&')}'`;
}

/** `msg.properties.replyTo`: the answer to a call. */
function isReplyAddress(key: Value): boolean {
  const e = bare(key.node);
  return ts.isPropertyAccessExpression(e) && e.name.text === 'replyTo';
}
