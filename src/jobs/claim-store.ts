/**
 * The only file that runs the statements of a worker that looks for work; a part of the store (store.ts), with the same
 * rules. How many jobs to ask for, and when, is the worker's answer; where to begin, claim-start.ts's.
 */
import { rows } from './answers.js';
import { createClaimStatements } from './claim-statements.js';
import {
  type ClaimedMany,
  type ClaimedRow,
  type ClaimedTextRow,
  claimedJob,
  claimedMany,
  claimedRows,
  inTableOrder,
} from './claimed.js';
import type { Fallbacks } from './fallbacks.js';
import type { Floor } from './floors.js';
import { type Completion, completions } from './held.js';
import type { ClaimedJob, Queryable } from './job.js';
import type { Seat } from './shared-looks.js';

/** What a worker asks of a claim. */
export interface ClaimOrder {
  readonly demands: readonly KindDemand[];
  readonly total: number;
  readonly worker: string;
  readonly leaseMs: number;
  readonly floors: readonly Floor[];
  readonly oldest: boolean;
}

/** What a worker asks for: of each kind at most `limit`. */
export interface KindDemand {
  readonly kind: string;
  readonly limit: number;
  /** True: an expired lease parks the job (dead) instead of running it again. */
  readonly park: boolean;
  /** What it asks for beyond that. */
  readonly rule?: KindRule;
}

/** Across all workers that ask with the same rule. Read by the function claim. */
export interface KindRule {
  /** Jobs of the kind at once. */
  readonly maxRunning?: number;
  /** A bucket of `burst` tokens, filled with `max` a `perMs`; a start takes one. */
  readonly rate?: { readonly max: number; readonly perMs: number; readonly burst: number };
  /** True: a dead job keeps its ordering key. */
  readonly holds?: boolean;
}

/** An ordering key. `stuck`: its next job waits for nobody. */
export interface Turn {
  readonly kind: string;
  readonly key: string;
  readonly stuck: boolean;
}

/** Counts as text from some drivers. */
interface SeatRow {
  readonly before: number | string;
  readonly behind: number | string;
  readonly at: number | string;
}

/**
 * By kind and falling priority, as the claim walks. A run_at comes as float8 ms, which is exact to less than half a us until
 * the year 2100.
 */
function floorValues(floors: readonly Floor[], kinds: readonly string[]): unknown[] {
  const sorted = floors
    .map((floor) => ({ ...floor, at: kinds.indexOf(floor.kind) + 1 }))
    .filter(({ at }) => at > 0)
    .sort((a, b) => a.at - b.at || b.priority - a.priority);
  return [
    sorted.map(({ at }) => at),
    sorted.map(({ priority }) => priority),
    sorted.map(({ runAtMs }) => Math.round(runAtMs * 1_000)),
    sorted.map(({ id }) => id),
  ];
}

/** What every form of the claim takes first; and the kinds in that order. */
function asked({ demands, total, worker, leaseMs }: ClaimOrder): { kinds: string[]; values: unknown[] } {
  const kinds = demands.map((d) => d.kind);
  const limits = demands.map((d) => d.limit);
  const parks = demands.map((d) => d.park);
  return { kinds, values: [kinds, limits, parks, total, worker, leaseMs] };
}

/** Rules by kind, as JSON. */
function rulesOf(demands: readonly KindDemand[]): string {
  if (demands.every(({ rule }) => rule === undefined)) return '{}';
  return JSON.stringify(Object.fromEntries(demands.map(({ kind, rule }) => [kind, rule])));
}

export function claimStore(schema: string, fallbacks: Fallbacks) {
  const sql = createClaimStatements(schema);
  return {
    /**
     * Leases due jobs: at most `total`, of each kind at most its limit; in the order of `demands`, then of the table.
     * `floors`: where each kind and priority starts (floors.ts). `oldest`: up to a tenth of each kind comes from the priority
     * whose first job has waited longest.
     */
    async claim(
      db: Queryable,
      demands: readonly KindDemand[],
      total: number,
      worker: string,
      leaseMs: number,
      floors: readonly Floor[] = [],
      oldest = false,
    ): Promise<ClaimedJob[]> {
      const order = { demands, total, worker, leaseMs, floors, oldest };
      return (await this.finishAndClaim(db, [], order)).jobs;
    },

    /** The same with `complete` before it, in one statement: the ids that it changed, and the jobs that are leased now. */
    async finishAndClaim(
      keeping: Queryable,
      ended: readonly Completion[],
      order: ClaimOrder,
    ): Promise<{ readonly finished: readonly string[]; readonly jobs: ClaimedJob[] }> {
      const { kinds, values: claim } = asked(order);
      const values = [
        ...completions(ended),
        ...claim,
        ...floorValues(order.floors, kinds),
        rulesOf(order.demands),
        order.oldest,
      ];
      const answer = await rows<ClaimedRow & { readonly finished: string | null }>(
        keeping,
        sql.finishAndClaim,
        values,
      );
      const first = ended.length > 0 ? answer.shift() : undefined;
      const jobs = answer.map((row) => claimedJob(row, kinds));
      return { finished: first?.finished?.split(',') ?? [], jobs: inTableOrder(jobs, kinds) };
    },

    /** Is there a due job before one of these floors? */
    async late(db: Queryable, floors: readonly Floor[]): Promise<boolean> {
      const kinds = [...new Set(floors.map(({ kind }) => kind))];
      const values = [kinds, ...floorValues(floors, kinds)];
      return (await rows<{ late: boolean }>(db, sql.late, values))[0]?.late ?? false;
    },

    /** The claim alone; for hundreds of jobs it is cheaper. */
    claimMany(db: Queryable, order: ClaimOrder): Promise<ClaimedMany> {
      const inLines = async () => {
        const { kinds, values: claim } = asked(order);
        const values = [...claim, ...floorValues(order.floors, kinds), rulesOf(order.demands), order.oldest];
        return claimedMany(await rows<ClaimedTextRow>(db, sql.claimMany, values), kinds);
      };
      const inRows = async () => claimedRows((await this.finishAndClaim(db, [], order)).jobs);
      return fallbacks.ask('claim_lines', inLines, inRows);
    },

    /** Leases one job that must run alone. */
    async claimSolo(
      db: Queryable,
      demands: readonly KindDemand[],
      worker: string,
      leaseMs: number,
    ): Promise<ClaimedJob | null> {
      const kinds = demands.map((d) => d.kind);
      const parks = demands.map((d) => d.park);
      const values = [kinds, parks, worker, leaseMs, rulesOf(demands)];
      const [row] = await rows<ClaimedRow>(db, sql.claimSolo, values);
      return row === undefined ? null : claimedJob(row, kinds);
    },

    async soloWaiting(db: Queryable, kinds: readonly string[]): Promise<boolean> {
      return (await rows<{ waiting: boolean }>(db, sql.soloWaiting, [kinds]))[0]?.waiting ?? false;
    },

    /** Lets the next of each of these ordering keys go on; those before it have ended. */
    async promote(db: Queryable, turns: readonly Pick<Turn, 'kind' | 'key'>[]): Promise<void> {
      await db.query(sql.promote, [turns.map(({ kind }) => kind), turns.map(({ key }) => key)]);
    },

    /** Up to `limit` ordering keys after one, in order. */
    turns(db: Queryable, after: Pick<Turn, 'kind' | 'key'> | null, limit: number): Promise<Turn[]> {
      return rows<Turn>(db, sql.turns, [after?.kind ?? '', after?.key ?? '', limit]);
    },

    /**
     * `kinds`: those it has handlers for. Answers its seat among those that have them. On a schema before migrations/047_wake_two.sql
     * it is woken for every kind, and nothing is known of others.
     */
    async sleepUntil(
      db: Queryable,
      worker: string,
      forMs: number,
      kinds: readonly string[],
    ): Promise<Seat | undefined> {
      const [said] = await fallbacks.ask<SeatRow[]>(
        'sleepers.kinds',
        () => rows(db, sql.sleepUntil, [worker, forMs, kinds]),
        () => rows(db, sql.sleepUntilAny, [worker, forMs]),
      );
      if (said === undefined) return undefined;
      const rank = Number(said.before);
      return { rank, of: rank + 1 + Number(said.behind), databaseMs: Number(said.at) * 1_000 };
    },

    async stopSleeping(db: Queryable, worker: string): Promise<void> {
      await db.query(sql.stopSleeping, [worker]);
    },

    async notify(db: Queryable, payload: string): Promise<void> {
      await db.query(sql.notify, [payload]);
    },
  };
}
