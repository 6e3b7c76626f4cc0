/**
 * What a publish's place in a threaded function means, and what else that function does: a call of it may have to move in front
 * of the commit, and a publish becomes a statement of the transaction. Obstacles; nothing is changed.
 */

import { ts } from 'ts-morph';
import { isAssignment } from './availability.js';
import { callbackObstacle, enclosures, useOf } from './hazards.js';
import { BROKERS, classOf } from './packages.js';
import type { Obstacle } from './reasons.js';
import type { Resolver } from './resolve.js';
import {
  contains,
  eachNode,
  eachOwnNode,
  type Fn,
  isAsync,
  lineOf,
  ownCalls,
  quote,
  scopeOf,
} from './syntax.js';
import type { Part } from './thread-part.js';
import { waiting } from './waits.js';

export class ThreadBodies {
  constructor(
    private readonly resolver: Resolver,
    private readonly isPlain: (node: ts.Node) => boolean,
  ) {}

  /** What a publish's place in the function means once it is a statement of the transaction. */
  misplaced(call: ts.CallExpression, body: Fn): Obstacle[] {
    const { statement, obstacle } = useOf(call);
    if (obstacle !== undefined) return [obstacle];
    if (scopeOf(call) !== body || statement === undefined || body.body === undefined)
      return [callbackObstacle(scopeOf(call)) ?? { code: 'in-callback', what: quote(call) }];
    const found = enclosures(statement, body.body).filter(
      (o) => o.code !== 'loop' && o.code !== 'conditional-path',
    );
    if (!isAsync(body)) found.push({ code: 'not-async', what: `line ${lineOf(body)}` });
    const condition = this.brokerCondition(body);
    if (condition !== undefined)
      found.push({ code: 'wrapper-unclear', what: `it asks the broker first (${quote(condition)})` });
    return found;
  }

  /** `if (!channel) return`: an enqueue that waits for a connection to the broker makes no sense. */
  private brokerCondition(body: Fn): ts.Expression | undefined {
    let found: ts.Expression | undefined;
    eachOwnNode(body, (n) => {
      if (!ts.isIfStatement(n) || found !== undefined) return;
      eachNode(n.expression, (e) => {
        const named = ts.isIdentifier(e) || ts.isPropertyAccessExpression(e);
        if (named && BROKERS.includes(this.resolver.roleOf(e)?.pkg ?? '')) found = n.expression;
      });
    });
    return found;
  }

  unawaited(call: ts.CallExpression, body: Fn): Obstacle[] {
    const found = body.body === undefined ? [] : enclosures(call, body.body);
    const hard = found.filter((o) => o.code !== 'loop' && o.code !== 'conditional-path');
    const state = waiting(call);
    if (state === 'could' && !isAsync(body)) hard.push({ code: 'not-async', what: `line ${lineOf(body)}` });
    if (state === 'no') hard.push(useOf(call).obstacle ?? { code: 'in-callback', what: quote(call) });
    return hard;
  }

  /** Whatever would run before the commit, and on another connection, if a call were moved in front of it. */
  noiseOf(part: Part): Obstacle[] {
    const mine = new Set<ts.Node>([...part.publishes, ...part.hops].map(({ call }) => call));
    const noise: Obstacle[] = [];
    const does = (node: ts.Node): void => {
      noise.push({ code: 'wrapper-does-more', what: `${quote(node)} (${this.placeOf(node)})` });
    };
    for (const body of new Set([...part.publishes, ...part.hops].map((p) => p.body))) {
      if (body.body === undefined) continue;
      for (const call of ownCalls(body.body)) {
        if (mine.has(call) || isConsole(call) || [...mine].some((m) => contains(call, m))) continue;
        const callee = this.resolver.calleeOf(call);
        if (callee.kind === 'package' && classOf(callee.role.pkg) === 'broker') continue;
        // A call for its own sake changes something, however plain it looks: a list of what is to be sent.
        if (ts.isExpressionStatement(call.parent) || !this.isPlain(call)) does(call);
      }
      eachOwnNode(body.body, (n) => {
        if (ts.isBinaryExpression(n) && isAssignment(n) && !ts.isIdentifier(n.left)) does(n);
      });
    }
    return noise;
  }

  placeOf(node: ts.Node): string {
    return `${this.resolver.analysis.pathOf(node.getSourceFile())}:${lineOf(node)}`;
  }
}

function isConsole(call: ts.CallExpression): boolean {
  return /^console\./.test(call.expression.getText());
}
