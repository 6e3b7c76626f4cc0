/**
 * Whether what a transaction writes is written in it: a statement belongs to a transaction when it is made from its
 * handle or is handed it. A repository's own connection beside an open transaction commits by itself.
 */

import { ts } from 'ts-morph';
import type { CallLike, Effects } from '../effects.js';
import { isWrite } from '../effects.js';
import type { Obstacle } from '../reasons.js';
import type { Resolver } from '../resolve.js';
import { eachNode, lineOf, ownCalls, quote } from '../syntax.js';
import type { Idiom } from './idiom.js';
import type { Key } from './scope.js';

/** A callback that runs in a transaction, and its parameter that is the transaction, if it takes one. */
export interface Opened {
  readonly call: ts.CallExpression;
  readonly callback: ts.ArrowFunction | ts.FunctionExpression;
  readonly client: ts.Identifier | undefined;
  /** The client or ORM whose transaction it is; undefined for pg. */
  readonly library: Idiom | undefined;
}

export interface Written {
  /** Whether a write was seen in the transaction. */
  readonly writes: boolean;
  readonly obstacles: readonly Obstacle[];
}

export class Writes {
  constructor(
    private readonly resolver: Resolver,
    private readonly effects: Effects,
    private readonly key: Key,
    /** Whether statements join the open transaction without being told, as with CLS. */
    private readonly joinsByItself: (node: ts.Node) => boolean,
  ) {}

  of(opened: Opened): Written {
    const body = opened.callback.body;
    if (opened.library === undefined) return { writes: this.handsOn(body, opened.client), obstacles: [] };
    if (this.joinsByItself(opened.call)) {
      return { writes: this.effects.of(body).some(isWrite), obstacles: [] };
    }
    const written = this.through(body, opened.client === undefined ? [] : [opened.client]);
    if (opened.client !== undefined || written.obstacles.length > 0) return written;
    const what = `the callback at line ${lineOf(opened.callback)} does not take its transaction`;
    return { writes: false, obstacles: [{ code: 'transaction-unclear', what }] };
  }

  /** Writes among nodes that have to use one of these handles. */
  through(body: ts.Node, handles: readonly ts.Expression[]): Written {
    const mine = new Set(handles.map((h) => this.key(h)));
    this.derived(body, mine);
    const written = this.effects.of(body).filter(isWrite);
    const inside = written.filter((e) => this.uses(chainOf(e.at), mine));
    const [first] = written;
    if (inside.length > 0 || this.isHandedOn(body, mine)) return { writes: true, obstacles: [] };
    if (first === undefined) return { writes: false, obstacles: [] };
    return {
      writes: false,
      obstacles: [
        { code: 'write-outside-transaction', what: `line ${lineOf(first.at)}, ${quote(first.at)}` },
      ],
    };
  }

  /** Writes among these calls, which have to use this handle. */
  among(calls: readonly ts.CallExpression[], handle: ts.Expression): Written {
    const [first] = calls;
    if (first === undefined) return { writes: false, obstacles: [] };
    if (this.joinsByItself(first))
      return { writes: calls.some((c) => this.effects.ofCall(c).some(isWrite)), obstacles: [] };
    const each = calls.map((call) => this.through(call, [handle]));
    if (each.some((w) => w.writes)) return { writes: true, obstacles: [] };
    return { writes: false, obstacles: each.flatMap((w) => w.obstacles).slice(0, 1) };
  }

  private handsOn(body: ts.Node, client: ts.Identifier | undefined): boolean {
    const passes = ownCalls(body).some((c) =>
      c.arguments.some((a) => ts.isIdentifier(a) && a.text === client?.text),
    );
    return passes || this.effects.of(body).some(isWrite);
  }

  /** `const orders = manager.getRepository(Order)`: what is made of a handle is in its transaction, too. */
  private derived(body: ts.Node, mine: Set<string>): void {
    eachNode(body, (n) => {
      if (!ts.isVariableDeclaration(n) || n.initializer === undefined || !ts.isIdentifier(n.name)) return;
      const role = this.resolver.roleOf(n.name);
      if (role !== undefined && this.uses(n.initializer, mine)) mine.add(this.key(n.name));
    });
  }

  private uses(node: CallLike | ts.Node, mine: ReadonlySet<string>): boolean {
    let found = false;
    eachNode(node, (n) => {
      if ((ts.isIdentifier(n) || ts.isPropertyAccessExpression(n)) && mine.has(this.key(n))) found = true;
    });
    return found;
  }

  /** Handed to a function of the repository's own, which may write with it. */
  private isHandedOn(body: ts.Node, mine: ReadonlySet<string>): boolean {
    return ownCalls(body).some((c) => {
      const { kind } = this.resolver.calleeOf(c);
      return (kind === 'own' || kind === 'unresolved') && c.arguments.some((a) => this.uses(a, mine));
    });
  }
}

/** The whole of a builder: a later call of the chain may name the transaction, as `.transacting(trx)` does. */
function chainOf(node: ts.Node): ts.Node {
  let n = node;
  for (;;) {
    const { parent } = n;
    const goesOn =
      (ts.isPropertyAccessExpression(parent) && parent.expression === n) ||
      (ts.isCallExpression(parent) && parent.expression === n);
    if (!goesOn) return n;
    n = parent;
  }
}
