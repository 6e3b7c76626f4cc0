/** What an undo may end with, each with its next step, and which failures time may heal. It does nothing itself. */
import { setTimeout as sleep } from 'node:timers/promises';
import { EXIT, UnbrokerError } from '../../src/errors.js';
import type { Broker } from './broker.js';
import { isLostConnection } from './lost-connection.js';
import type { DrainedGroup } from './undo-ledger.js';

/** How a broker ends the channel or connection of who publishes what it cannot take. */
const POISON_CODES: readonly unknown[] = [406, 501, 502, 505, 541];
const LISTED = 20;
const REASON_WITHIN_MS = 1_000;
const HEALING: readonly string[] = ['amqp-unreachable', 'amqp-silent'];

/** A channel's end says little; the connection's says why. `poison`: the code, when the broker refuses a message with it. */
export async function withReason(
  broker: Broker,
  error: unknown,
): Promise<{ readonly reason: unknown; readonly poison: unknown }> {
  const codeOf = (of: unknown): unknown => (of as { code?: unknown }).code;
  let reason = error;
  if (codeOf(error) === undefined && /closed|channel|connection/i.test((error as Error).message ?? '')) {
    reason = (await Promise.race([broker.lost, sleep(REASON_WITHIN_MS, undefined, { ref: false })])) ?? error;
  }
  const code = codeOf(reason);
  const poison = POISON_CODES.includes(code) ? code : undefined;
  return { reason: code === 403 ? forbidden(reason) : reason, poison };
}

export function isTransient(error: unknown): boolean {
  if (error instanceof UnbrokerError) return HEALING.includes(error.code);
  const { code } = error as { code?: unknown };
  return typeof code === 'number' || isLostConnection(error);
}

/** As the caller gets it. */
export function translate(error: unknown): unknown {
  const slow = error instanceof UnbrokerError && error.code === 'database-slow';
  if (!slow && (error instanceof UnbrokerError || !isTransient(error))) return error;
  const what = slow ? 'waited too long for the database' : 'lost a connection';
  return new UnbrokerError('undo-interrupted', `The undo ${what} and could not go on`, {
    hint: 'What is marked is safe. Check the broker and the database, then run the same command again: it resumes.',
    cause: error,
  });
}

export function unconfirmed(messages: number, withinMs: number): UnbrokerError {
  return new UnbrokerError(
    'undo-unconfirmed',
    `The broker did not confirm ${messages} messages within ${withinMs} ms: it takes none (an alarm), or a quorum queue has no majority`,
    {
      hint: 'Look at rabbitmqctl status and mend that, then run the same command again: what is marked is safe, the rest is settled by counting.',
    },
  );
}

export interface AmbiguousCounts {
  readonly initial: number;
  readonly moved: number;
  readonly total: number;
  readonly moving: number;
}

export function ambiguous({ initial, moved, total, moving }: AmbiguousCounts): UnbrokerError {
  return new UnbrokerError(
    'undo-ambiguous',
    `AMBIGUOUS: ${initial} were there, ${moved} are marked as given back, ${total} are there now, so ${total - initial - moved} of the ${moving} unmarked ones should have arrived, which cannot be`,
    {
      hint: 'Nothing was changed. Go on with --when-ambiguous resend (publishes them again: doubles at worst) or --when-ambiguous assume (takes them for arrived: gaps at worst).',
      exitStatus: EXIT.unbalanced,
    },
  );
}

export function groupMissing(name: string, groups: readonly DrainedGroup[]): UnbrokerError {
  const names = groups.slice(0, LISTED).map(({ group }) => group);
  return new UnbrokerError('undo-group-missing', `Nothing of a group ${name} was drained from this broker`, {
    hint: names.length === 0 ? 'Check AMQP_URL and its virtual host.' : `There is ${names.join(', ')}.`,
    exitStatus: EXIT.badInput,
  });
}

export function held(): UnbrokerError {
  return new UnbrokerError('undo-busy', 'Another undo of this group is still connected to the broker', {
    hint: 'Stop it, or close its connection, then run again.',
  });
}

export function drainOpen(group: string): UnbrokerError {
  return new UnbrokerError(
    'drain-unfinished',
    `A drain of ${group} was interrupted: some of its acknowledgements are unproved`,
    {
      hint: 'Let it end first: unbroker drain run.',
    },
  );
}

function forbidden(cause: unknown): UnbrokerError {
  return new UnbrokerError(
    'undo-forbidden',
    'The user of AMQP_URL may not publish, or not declare what an undo needs',
    {
      hint: 'It needs write on amq.default and on ^unbroker\\., and configure on ^unbroker\\.; --via default declares no exchange.',
      exitStatus: EXIT.badInput,
      cause,
    },
  );
}
