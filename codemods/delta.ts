/**
 * What changes for the caller when a site is rewritten: what could be lost before, what rolls back now, what happens
 * twice or not at all. Pure: facts in, sentences out.
 */

import { RELAY_KIND } from './publishes/relay.js';

export interface DeltaFacts {
  /** More than one when the functions behind a call publish more than one. */
  readonly kinds: readonly string[];
  readonly how: 'moved' | 'replaced' | 'wrapped';
  readonly awaited: boolean;
  /** Line of a catch with a ROLLBACK that also catches a failed publish. */
  readonly rollbackCatch: number | undefined;
  /** `line 12`; with its file when that is another one. */
  readonly commitAt: string;
  readonly publishLine: number;
  readonly notes: readonly string[];
  readonly writes: number;
  /** Functions that take the transaction's handle as a new parameter: `Orders.tell (src/orders.ts:12)`. */
  readonly through: readonly string[];
  /** Callers may leave it out, and keep what they have today. */
  readonly optional: boolean;
  /** The payload's type does not rule out a Date or function. */
  readonly copied: boolean;
}

export interface Delta {
  /** What could go wrong before. */
  readonly before: readonly string[];
  /** What holds now. */
  readonly after: readonly string[];
  /** What else is different, to be looked at. */
  readonly notes: readonly string[];
}

export function deltaOf(facts: DeltaFacts): Delta {
  return { before: before(facts), after: after(facts), notes: notes(facts) };
}

function before(facts: DeltaFacts): string[] {
  const lines: string[] = [];
  const where = facts.commitAt;
  if (facts.how === 'moved') {
    lines.push(
      `A death or broker error between the commit (${where}) and the publish (line ${facts.publishLine}) left the row without its message`,
    );
  } else if (facts.how === 'wrapped') {
    lines.push(
      `The write (${where}) committed by itself; a death or broker error before the publish (line ${facts.publishLine}) left it without its message`,
    );
  } else {
    lines.push(`The message went out before the commit (${where}): a rollback left a message about nothing`);
  }
  if (facts.rollbackCatch !== undefined) {
    lines.push(
      `A publish error reached the catch at line ${facts.rollbackCatch}: it rolled back a finished transaction and reported the saved row as failed`,
    );
  }
  if (!facts.awaited) lines.push("The publish was not awaited: its error was nobody's");
  return lines;
}

function after(facts: DeltaFacts): string[] {
  const lines = [
    'The row and the job commit together or not at all; a failed enqueue rolls the transaction back',
  ];
  if (facts.how === 'wrapped' && facts.writes > 1) {
    lines.push(`${facts.writes} writes that committed one by one are one transaction now`);
  }
  if (!facts.awaited) lines.push('The enqueue is awaited');
  if (facts.through.length > 0)
    lines.push(
      `The transaction is handed on, as ${facts.optional ? 'an optional parameter, so other callers keep what they have' : 'a parameter that every caller has to give'}: ${facts.through.join(', ')}`,
    );
  return lines;
}

function notes(facts: DeltaFacts): string[] {
  return [
    facts.kinds.includes(RELAY_KIND)
      ? 'The worker publishes the message now, after the commit: it must have the AMQP URL before this is deployed'
      : `No message goes to the broker any more: a worker must handle ${facts.kinds.length > 1 ? 'kinds' : 'kind'} ${facts.kinds.map((k) => `"${k}"`).join(', ')} before this is deployed`,
    ...(facts.copied
      ? [
          'The payload is copied through JSON: its type does not rule out a Date, which enqueue refuses; drop the copy where it is plain',
        ]
      : []),
    ...facts.notes,
  ];
}
