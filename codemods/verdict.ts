/**
 * From facts to a verdict. Pure: no syntax, no types, no files.
 */

import { byPrecedence, explain, type Obstacle, type ReasonCode } from './reasons.js';

export type Level = 'safe' | 'wrap' | 'thread' | 'refused';
export type Confidence = 'high' | 'medium';

export interface SiteFacts {
  /**
   * What the transaction would allow: it is there (safe), would have to be made (wrap), or belongs to callers and comes
   * from or goes to another function (thread); null: nothing.
   */
  readonly reach: 'safe' | 'wrap' | 'thread' | null;
  readonly obstacles: readonly Obstacle[];
  /** The broker's or database's package could not be resolved; values were traced by imports. */
  readonly degraded: boolean;
  /** What else changes: lost logs of a wrapper, values shared with calls in between. */
  readonly caveats: number;
  /** No write was seen in the transaction itself. */
  readonly noWriteSeen: boolean;
}

export interface Verdict {
  readonly level: Level;
  readonly reason: ReasonCode | null;
  readonly message: string | null;
  readonly next: string | null;
  /** Further obstacles, by precedence. */
  readonly also: readonly Obstacle[];
  readonly confidence: Confidence;
}

export function decide(facts: SiteFacts): Verdict {
  const [first, ...also] = byPrecedence(facts.obstacles);
  const doubtful = facts.degraded || facts.caveats > 0 || facts.noWriteSeen;
  const confidence: Confidence = doubtful ? 'medium' : 'high';
  if (first === undefined && facts.reach !== null) {
    return { level: facts.reach, reason: null, message: null, next: null, also: [], confidence };
  }
  const obstacle = first ?? { code: 'no-transaction-here' as const, what: 'no transaction was found' };
  return { level: 'refused', reason: obstacle.code, ...explain(obstacle), also, confidence };
}
