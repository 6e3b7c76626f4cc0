/**
 * What a bridge does with a delivery while publishers live and counts prove nothing: a message is named by its key (home
 * queue, id, attempt, contents), and a key is taken once. What has no id is taken each time it comes, and counted where it
 * may be the second time. Pure: which keys were taken before is an argument.
 */
import { createHash } from 'node:crypto';
import type { PreparedMessage } from './batch-writer.js';
import { type Delivery, readDeaths } from './delivery.js';
import type { Mapped } from './mapping.js';

/** Where a key counts. */
export interface KeyScope {
  readonly broker: string;
  readonly vhost: string;
  readonly group: string;
  /** Queues of the group: a death in one of them may be what happened to a message after its commit. */
  readonly queues: ReadonlySet<string>;
}

/** A delivery with what may have been taken under its name. */
export interface NamedMessage {
  readonly message: PreparedMessage;
  /** False: it has no id, so its identity is that of all such messages of the group. */
  readonly named: boolean;
  /** The first is its own; the others are the names it had in queues that it died in. SHA-256, hex. */
  readonly identities: readonly string[];
  /** The broker says that it was delivered before, or it died in a queue of the group: it may come back after a crash. */
  readonly mayBeBack: boolean;
}

/** What was taken before under one of these identities. */
export interface Taken {
  readonly same: boolean;
  readonly otherContents: boolean;
}

export type Verdict =
  /** Not taken yet. */
  | 'new'
  /** Taken, committed, and here again: acked without another row. */
  | 'again'
  /** Published a second time with id and contents of one that was taken: kept in the ledger, no second job. */
  | 'repeat'
  /** Its id was taken with other contents: both are jobs. */
  | 'other-contents'
  /** Without an id, and the like of it was taken: this may be the same message. */
  | 'possible-double';

export function nameMessage(
  message: PreparedMessage,
  scope: KeyScope,
  idsReused: (queue: string) => boolean,
): NamedMessage {
  const { delivery, mapped } = message;
  const identity = idsReused(delivery.queue) ? null : mapped.identity;
  const died = diedIn(delivery, scope.queues);
  const mayBeBack = delivery.redelivered || died.length > 0;
  if (identity === null) {
    return { message, named: false, identities: [hashOf('group', scope, scope.group)], mayBeBack };
  }
  const homes = new Set([identity.homeQueue, ...died]);
  const identities = [...homes].map((home) =>
    hashOf('id', scope, home, identity.id, String(identity.attempt)),
  );
  return { message, named: true, identities, mayBeBack };
}

/** A message may have hundreds of deaths; what a crash brought back died just now. */
const MAX_DEATHS = 5;

function diedIn(delivery: Delivery, queues: ReadonlySet<string>): string[] {
  const names = (readDeaths(delivery.headers) ?? []).slice(0, MAX_DEATHS).map(({ queue }) => queue);
  return [...new Set(names)].filter((name) => queues.has(name) && name !== delivery.queue);
}

function hashOf(type: string, { broker, vhost }: KeyScope, ...parts: readonly string[]): string {
  const hash = createHash('sha256');
  for (const part of [type, broker, vhost, ...parts]) hash.update(`${Buffer.byteLength(part)}:${part}`);
  return hash.digest('hex');
}

/** `inDoubt`: an ack may have been lost since the run began. After a clean start what is redelivered was only in hand. */
export function judge({ named, mayBeBack, message }: NamedMessage, taken: Taken, inDoubt: boolean): Verdict {
  if (!named) {
    const possible = inDoubt && taken.same && mayBeBack && message.mapped.job !== null;
    return possible ? 'possible-double' : 'new';
  }
  if (taken.same) return mayBeBack ? 'again' : 'repeat';
  return taken.otherContents ? 'other-contents' : 'new';
}

export const REPEAT_NOTE = 'same-id-again';

/** The message as it is written. */
export function asJudged(message: PreparedMessage, verdict: Verdict): PreparedMessage {
  const { mapped } = message;
  if (verdict === 'new' || verdict === 'again') return message;
  if (verdict === 'repeat') {
    const without: Mapped = {
      ...mapped,
      job: null,
      outcome: 'excluded',
      note: REPEAT_NOTE,
      runAtExact: true,
    };
    return { ...message, mapped: without };
  }
  const word = verdict === 'other-contents' ? 'same-id-other-contents' : 'possible-double';
  return { ...message, mapped: { ...mapped, note: mapped.note === null ? word : `${mapped.note} ${word}` } };
}
