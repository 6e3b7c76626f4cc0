/**
 * A write that a called function makes, and that commits by itself there: `await saveOrder(order)` and then the publish.
 * When all that the function does on its pool, client or ORM can run on a transaction instead, one around the call can hand
 * its client down: the parameter is optional, and whoever does not give it writes as before. What is less plain is left to
 * people, with the reason.
 */

import { ts } from 'ts-morph';
import type { Callers } from '../callers.js';
import type { TextEdit } from '../edits.js';
import { type Effects, isWrite } from '../effects.js';
import type { HandleType } from '../handle-types.js';
import type { Resolver } from '../resolve.js';
import type { Rethrows } from '../rethrow.js';
import { eachNode, type Fn, ownCalls, type Scope } from '../syntax.js';
import type { Deep, NewArgument, NewParameter, Threading } from '../thread-shapes.js';
import { waits } from '../waits.js';
import type { Asking } from './asking.js';
import { DeepBodies } from './deep-body.js';
import { canWrite, isRefusal, type Refusal, refuse } from './deep-opener.js';
import { type Opening, Openings } from './deep-opening.js';
import { DeepPaths, isOptionalChain, type Path } from './deep-path.js';
import { TakenHandles } from './deep-taken.js';
import { ANY, type DownForm, downForm, rootTypeOf, whyNoForm } from './deep-types.js';
import type { PoolQuery } from './pool-query.js';
import type { Key } from './scope.js';
import type { Strays } from './strays.js';

export class DeepWrites {
  private readonly openings: Openings;
  private readonly paths: DeepPaths;
  private readonly found = new Map<ts.CallExpression, PoolQuery | Refusal | undefined>();

  constructor(
    private readonly resolver: Resolver,
    private readonly callers: Callers,
    private readonly effects: Effects,
    key: Key,
    isPlain: (node: ts.Node) => boolean,
    isSelected: (file: ts.SourceFile) => boolean,
    asking: Asking,
    strays: Strays,
    private readonly rethrows: Rethrows,
  ) {
    this.openings = new Openings(resolver, isSelected);
    const bodies = new DeepBodies(resolver, key, isPlain, asking, strays, rethrows);
    const taken = new TakenHandles(resolver, effects);
    this.paths = new DeepPaths(resolver, callers, effects, bodies, taken, rethrows, isSelected);
  }

  /** Calls of a function that write through others, as statements on the pool that these use. */
  of(scope: Scope): PoolQuery[] {
    return ownCalls(scope).flatMap((call) => {
      const found = this.queryOf(call);
      return found === undefined || isRefusal(found) ? [] : [found];
    });
  }

  /** Why a call that writes cannot be handed a transaction; undefined when it can, or does not write. */
  whyNot(call: ts.CallExpression): string | undefined {
    const found = this.queryOf(call);
    return found !== undefined && isRefusal(found) ? found.why : undefined;
  }

  private queryOf(call: ts.CallExpression): PoolQuery | Refusal | undefined {
    if (!this.found.has(call)) this.found.set(call, this.find(call));
    return this.found.get(call);
  }

  private find(call: ts.CallExpression): PoolQuery | Refusal | undefined {
    const found = this.effects.ofCall(call);
    const [first] = found;
    if (first === undefined || first.direct || !found.some(isWrite)) return undefined;
    const other = found.find((e) => e.kind !== 'pg-write' && e.kind !== 'orm');
    if (other !== undefined) return refuse(`it does more than write (${other.what})`);
    if (!waits(this.rethrows.outer(call))) return refuse('nobody waits for it');
    if (call.arguments.some(ts.isSpreadElement)) return refuse('its arguments are spread');
    if (isOptionalChain(call)) return refuse('it may not be called at all');
    const path = this.paths.of(call);
    if (isRefusal(path)) return path;
    const last = path.at(-1)?.queries[0];
    const form = last === undefined ? undefined : downForm(last);
    if (last === undefined || form === undefined) return refuse(whyNoForm(last ?? {}));
    const deep = this.deep(call, path, form);
    if (isRefusal(deep)) return deep;
    const open = deep.instead ? undefined : path.find((p) => p.taken === undefined && !this.isFree(p));
    if (open !== undefined)
      return refuse(`${open.family.name} may be called with more arguments, or as a value`);
    const { argument, root, ...rest } = deep;
    return {
      ...{ call, on: 'pool', sql: 'write', text: '', helper: undefined },
      handle: argument ?? root.handle,
      ...(root.library === undefined ? {} : { library: root.library, what: root.what ?? '' }),
      deep: rest,
    };
  }

  /** Whether nobody hands anything where the new parameter comes. */
  private isFree({ family, fn }: Path): boolean {
    const index = fn.parameters.length;
    const all = [...family.calls, ...family.testCalls];
    return (
      all.every((c) => c.arguments.length <= index && !c.arguments.some(ts.isSpreadElement)) &&
      this.callers.leaveOut(family, index)
    );
  }

  // ── what changes ──

  private deep(
    call: ts.CallExpression,
    path: readonly Path[],
    form: DownForm,
  ): (Deep & { readonly argument?: ts.Expression; readonly root: PoolQuery }) | Refusal {
    const found = this.opened(call, path, form);
    if (isRefusal(found)) return found;
    const { opening, root: first } = found;
    const { pool, opener, key, additions } = opening;
    const common = { pool, opener, key, root: first };
    const nothing = {
      publishes: [],
      needs: [],
      obstacles: [],
      noise: [],
      families: path.map((p) => p.family),
    };
    if (opening.argument !== undefined) {
      const widened = this.widened(path, opening.argument, first);
      if (isRefusal(widened)) return widened;
      const threading = { ...nothing, parameters: [], arguments: [], additions, replacements: widened };
      const { index, node } = opening.argument;
      return { ...common, index, instead: true, threading, argument: node };
    }
    const changes = this.changes(path, first, form);
    if (isRefusal(changes)) return changes;
    const [top] = path;
    const index = top === undefined ? 0 : indexOf(top);
    return { ...common, index, instead: false, threading: { ...nothing, additions, ...changes } };
  }

  /** On the first root: models of one connection are several, and each of them has to have a name. */
  private opened(
    call: ts.CallExpression,
    path: readonly Path[],
    form: DownForm,
  ): { readonly opening: Opening; readonly root: PoolQuery } | Refusal {
    const queries = path.at(-1)?.queries ?? [];
    const [first] = queries;
    if (first === undefined) return refuse('its write was not found');
    // An instance does not say where its connection is; a model that has no name may have another one.
    const named = queries.filter((q) => q.what !== 'model');
    const roots = first.library?.wrap?.join === undefined || named.length === 0 ? [first] : named;
    const found = roots.map((root) => ({
      root,
      opening: this.openings.of(call, path, root.handle, root.what ?? '', form),
    }));
    // A class of a module has a name, if not here: it is enough that one of them is called by its own.
    const nameless = found.find(
      ({ root, opening }) => isRefusal(opening) && !this.openings.isOfModule(root.handle),
    );
    const [one] = found.filter(({ opening }) => !isRefusal(opening));
    const { root, opening } = nameless ??
      one ?? { root: first, opening: found[0]?.opening ?? refuse('its write was not found') };
    return isRefusal(opening) ? opening : { root, opening };
  }

  private changes(
    path: readonly Path[],
    first: PoolQuery,
    form: DownForm,
  ): Pick<Threading, 'parameters' | 'arguments' | 'replacements'> | Refusal {
    const fresh = path.filter((p) => p.taken === undefined);
    if (fresh.length === 0) return { parameters: [], arguments: [], replacements: [] };
    const queries = path.at(-1)?.queries ?? [];
    const members = [...new Set(queries.flatMap((q) => memberOf(q.handle, form) ?? []))];
    const signatures = fresh.flatMap((p) => [p.fn, ...p.family.declarations]);
    const type =
      form.parameter(rootTypeOf(first.handle, this.resolver.analysis), members, first.pkg) ??
      untyped(signatures);
    if (type === undefined) return refuse(`the type of ${first.handle.getText()} cannot be written`);
    const there = path.find((p) => p.taken !== undefined);
    if (there?.taken !== undefined && !isSame(type, there.taken.parameter))
      return refuse(`${there.taken.parameter.getText()} may not take what it would be handed`);
    const { checker } = this.resolver.analysis;
    const unwritable = signatures.find((s) => !canWrite(type, s.getSourceFile(), checker));
    if (unwritable !== undefined)
      return refuse(
        `the type of ${first.handle.getText()} cannot be written in ${this.resolver.analysis.pathOf(unwritable.getSourceFile())}`,
      );
    const names = new Map(path.map((p) => [p.fn, freeName(p.fn, form.names)]));
    const what = first.what ?? '';
    return {
      parameters: fresh.flatMap((p) => this.parametersOf(p, names.get(p.fn) ?? '', type, first, form)),
      arguments: path.flatMap((p, at): NewArgument[] => {
        const next = path[at + 1];
        if (next === undefined || p.taken !== undefined) return [];
        const index = indexOf(next);
        return p.nexts.map((call) => ({ call, index, text: names.get(p.fn) ?? '', awaits: false }));
      }),
      replacements: (there === undefined ? queries : []).map((q) =>
        told(q, what, names.get(path.at(-1)?.fn as Fn) ?? '', form),
      ),
    };
  }

  /** What writes has the pool for a default; what only hands on and what only declares has none. */
  private parametersOf(
    part: Path,
    name: string,
    type: HandleType,
    first: PoolQuery,
    form: DownForm,
  ): NewParameter[] {
    const index = part.fn.parameters.length;
    const common = { index, name, type };
    const value =
      part.nexts.length === 0 ? form.fallback(first.handle.getText(), first.what ?? '') : undefined;
    const own: NewParameter = { ...common, signature: part.fn, optional: value ?? true };
    const bare = part.family.declarations.map(
      (signature): NewParameter => ({ ...common, signature, optional: true }),
    );
    return [own, ...bare];
  }

  /** `db: Pool` that is to take a client as well. */
  private widened(
    path: readonly Path[],
    argument: NonNullable<Opening['argument']>,
    first: PoolQuery,
  ): Threading['replacements'] | Refusal {
    const replacements: Threading['replacements'][number][] = [];
    const fits = new Set(['knex', 'kysely', 'typeorm']);
    if (first.library?.wrap?.join !== undefined)
      return refuse(`${first.handle.getText()} is handed to it, and where its connection is has no name`);
    if (first.library !== undefined)
      return fits.has(first.library.name)
        ? []
        : refuse(`a parameter of ${first.library.name} may not take a transaction`);
    let index = argument.index;
    for (const step of path) {
      for (const signature of [step.fn, ...step.family.declarations]) {
        const declared = signature.parameters[index];
        const type = declared === undefined ? undefined : (declared.type ?? ts.getJSDocType(declared));
        if (type === undefined) continue;
        const text = type.getText();
        if (/^(?:import\(['"]pg['"]\)\.|\w+\.)?Pool$/.test(text))
          replacements.push({ node: type, edits: [instead(type, `Pick<${text}, 'query'>`)] });
        else if (!/^Pick<(?:\w+\.)?Pool, 'query'>$/.test(text) && !/\bPoolClient\b/.test(text))
          return refuse(`${signature.parameters[index]?.getText() ?? 'its pool'} may not take a client`);
      }
      const handed = step.nexts[0]?.arguments.findIndex(
        (a) => ts.isIdentifier(a) && a.text === step.fn.parameters[index]?.name.getText(),
      );
      if (handed !== undefined) index = handed;
    }
    return replacements;
  }
}

const instead = (node: ts.Node, text: string): TextEdit => ({
  start: node.getStart(),
  end: node.end,
  text,
});

/** A statement on what is handed down. */
function told(
  query: PoolQuery,
  what: string,
  name: string,
  form: DownForm,
): Threading['replacements'][number] {
  const joined = query.library?.wrap?.join?.(query.call, name);
  if (joined !== undefined) return { node: query.call, edits: joined };
  const text = form.replaced(query.handle.getText(), what, name);
  return { node: query.handle, edits: [instead(query.handle, text)] };
}

/** `insert` in `db.insert(…)`; undefined for a root that is called itself. */
function memberOf(root: ts.Expression, form: DownForm): string | undefined {
  const { parent } = root;
  if (ts.isCallExpression(parent) && parent.expression !== root) return form.handed;
  return ts.isPropertyAccessExpression(parent) && parent.expression === root ? parent.name.text : undefined;
}

/** Where a function gets the transaction. */
function indexOf({ taken, fn }: Path): number {
  return taken?.index ?? fn.parameters.length;
}

/** Whether a new parameter would be declared as the one that it is handed on to. */
function isSame({ type, need }: HandleType, { type: declared }: ts.ParameterDeclaration): boolean {
  return declared === undefined || declared.getText() === type.replaceAll('*', need?.name ?? '*');
}

/** JavaScript gets along without. */
function untyped(signatures: readonly ts.SignatureDeclaration[]): HandleType | undefined {
  const isScript = signatures.every((s) => /\.[cm]?jsx?$/.test(s.getSourceFile().fileName));
  return isScript ? ANY : undefined;
}

function freeName(fn: Fn, names: readonly string[]): string {
  const taken = new Set<string>();
  eachNode(fn, (n) => {
    const isMember = ts.isPropertyAccessExpression(n.parent) && n.parent.name === n;
    if (ts.isIdentifier(n) && !isMember) taken.add(n.text);
  });
  return names.find((n) => !taken.has(n)) ?? `${names[0]}${taken.size}`;
}
