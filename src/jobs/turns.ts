/**
 * Ordering keys whose job has ended: the next one of each may go on. The claim takes jobs that must wait for their turn out
 * of its way, so somebody has to bring them back; here is who does at once. What is missed (a process that dies in
 * between, an operator's act) the sweep finds: upkeep walks along the keys. It refuses to know who goes first; the
 * database decides.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import type { Turn } from './claim-store.js';
import type { ClaimedJob, Queryable } from './job.js';
import { within } from './signal.js';
import { isConflict, isHeld } from './sqlstate.js';
import type { Store } from './store.js';

type Key = Pick<Turn, 'kind' | 'key'>;

export interface TurnsOptions {
  readonly store: Store;
  readonly db: Queryable;
  /** The next ones may be claimed. */
  readonly onPromoted: () => void;
  readonly onError: (error: unknown) => void;
}

/** Keys of one statement. */
const BATCH = 500;
const MAX_PROMOTE_MS = 10_000;
/** In a row: transactions in each other's way, where a role's are serializable by default. */
const MAX_CONFLICTS = 10;

export class Turns {
  readonly #ended = new Map<string, Key>();
  #promoting: Promise<void> | undefined;
  readonly #options: TurnsOptions;

  constructor(options: TurnsOptions) {
    this.#options = options;
  }

  /** This job holds its key no more, and that is committed. */
  ended(job: ClaimedJob): void {
    if (job.orderingKey === null) return;
    const key = { kind: job.kind, key: job.orderingKey };
    this.#ended.set(JSON.stringify([key.kind, key.key]), key);
    this.#promoting ??= this.#promote();
  }

  /** Resolves when the next ones have been let go on. */
  async drained(): Promise<void> {
    while (this.#promoting !== undefined) await this.#promoting;
  }

  async #promote(): Promise<void> {
    const { store, db, onPromoted, onError } = this.#options;
    // One turn of the event loop: what was settled together goes on together.
    await new Promise((resolve) => setImmediate(resolve));
    let conflicts = 0;
    while (this.#ended.size > 0) {
      const keys = [...this.#ended].slice(0, BATCH);
      for (const [name] of keys) this.#ended.delete(name);
      try {
        const promoted = promote(
          store,
          db,
          keys.map(([, key]) => key),
          onError,
        );
        await within(promoted, MAX_PROMOTE_MS);
        onPromoted();
        conflicts = 0;
      } catch (error) {
        onError(error);
        conflicts += 1;
        // Else left to the sweep.
        if (!isConflict(error) || conflicts > MAX_CONFLICTS) continue;
        for (const [name, key] of keys) this.#ended.set(name, key);
        await sleep(conflicts * 5 * Math.random());
      }
    }
    this.#promoting = undefined;
  }
}

/** The sweep's walk along the keys. It goes on where it was, so that any number of keys is seen in time. */
export class TurnWalk {
  #after: Key | null = null;

  /** Looks at up to `limit` keys; true when that was the last of them. */
  async step(store: Store, db: Queryable, limit: number): Promise<boolean> {
    const keys = await store.turns(db, this.#after, limit);
    const stuck = keys.filter((key) => key.stuck);
    if (stuck.length > 0) await promote(store, db, stuck, () => {});
    const last = keys.at(-1);
    const over = last === undefined || keys.length < limit;
    this.#after = over ? null : last;
    return over;
  }
}

/**
 * In order: two who wait for the same rows in different orders deadlock. When somebody else holds the next job of one key, the
 * others go on one by one, and that one is left to the sweep.
 */
async function promote(
  store: Store,
  db: Queryable,
  keys: readonly Key[],
  onHeld: (error: unknown) => void,
): Promise<void> {
  const sorted = inOrder(keys);
  try {
    await store.promote(db, sorted);
  } catch (error) {
    if (!isHeld(error) || sorted.length === 1) throw error;
    for (const key of sorted)
      await store.promote(db, [key]).catch((again: unknown) => {
        if (!isHeld(again)) throw again;
        onHeld(again);
      });
  }
}

function inOrder(keys: readonly Key[]): readonly Key[] {
  return [...keys].sort((a, b) => compare(a.kind, b.kind) || compare(a.key, b.key));
}

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
