/**
 * All that is asked of the jobs table, put together from its sides, each a file that runs its own statements (the map is in
 * statements.ts). Every function takes `db` first: a pool, a client inside the caller's transaction, anything with `query`.
 * They decide nothing: what to write is settle.ts's answer, when is the worker's.
 */
import { claimStore } from './claim-store.js';
import { enqueueStore } from './enqueue-store.js';
import { Fallbacks } from './fallbacks.js';
import { operatorStore } from './operator-store.js';
import { scheduleStore } from './schedule-store.js';
import { DEFAULT_SCHEMA } from './schema-name.js';
import { settleStore } from './settle-store.js';
import { wakeChannel } from './statements.js';
import { upkeepStore } from './upkeep-store.js';

export type Store = ReturnType<typeof createStore>;

/**
 * `schema` must already be vetted or is refused with `schema-invalid`. Default `unbroker`. `nowMs` says when to look again for a
 * function that was missed.
 */
export function createStore(schema: string = DEFAULT_SCHEMA, nowMs = () => performance.now()) {
  const fallbacks = new Fallbacks(nowMs);
  return {
    schema,
    /** Where an enqueue notifies. */
    channel: wakeChannel(schema),
    ...enqueueStore(schema),
    ...claimStore(schema, fallbacks),
    ...settleStore(schema, fallbacks),
    ...upkeepStore(schema, fallbacks),
    ...scheduleStore(schema),
    ...operatorStore(schema),
  };
}
