/**
 * What an operator does to many jobs at once: a look beforehand, then chunk by chunk, each chunk in one transaction with its
 * line in `operations`. Interrupted between two chunks nothing is lost and nothing done twice. It refuses to know the
 * command line; what each act means is store.ts's.
 */
import { EXIT, UnbrokerError } from './errors.js';
import type { JobState, Queryable } from './jobs/job.js';
import { quoteSchema } from './jobs/schema-name.js';
import { createStore, type Store } from './jobs/store.js';
import { epochMs, withDates } from './jobs/times.js';
import { inTransaction, type TransactionPool } from './transaction.js';

export type Act = 'retry' | 'discard' | 'cancel';

/** What comes through the HTTP doors besides: each is one transaction, nothing to go on with. */
export type DoorAct =
  | Act
  | 'run-now'
  | 'dismiss'
  | 'edit'
  | 'pause'
  | 'resume'
  | 'trigger'
  | 'delete'
  | 'suppress'
  | 'unsuppress';

/** Which rows a client's act changed. */
export type Touched =
  | { readonly ids: readonly string[] }
  | { readonly schedule: string; readonly ids?: readonly string[] }
  | { readonly template: string; readonly version: number }
  /** A channel of the suppression list; recipients as hashes. */
  | { readonly suppression: string; readonly recipients: readonly string[] };

/** All that is given must hold. Ages count from the end of a finished job, from the creation of another. */
export interface BulkFilter {
  /** Default: what the act takes; retry without it takes dead ones only. */
  readonly state?: JobState;
  /** Exact, or `notify.*` for all that start so. */
  readonly kind?: string;
  /** Start of the source. */
  readonly source?: string;
  /** Part of the last error's name or message, upper or lower case alike. */
  readonly error?: string;
  /** One of the payload's `tags`. */
  readonly tag?: string;
  readonly olderThanMs?: number;
  readonly newerThanMs?: number;
}

export interface Preview {
  /** Up to MAX_PREVIEW. */
  readonly count: number;
  /** There are more than were counted. */
  readonly more: boolean;
  /** By kind and the last error's name, largest first; at most 20. */
  readonly groups: readonly {
    readonly kind: string;
    readonly error: string | null;
    readonly count: number;
    readonly samples: readonly string[];
  }[];
}

export interface Operation {
  readonly id: string;
  /** Only an Act can be unfinished. */
  readonly act: DoorAct;
  readonly filter: BulkFilter | Touched;
  readonly options: { readonly attempts?: number };
  readonly by: string;
  readonly upto: string;
  readonly position: string;
  readonly changed: number;
  readonly startedAt: Date;
  /** Null: it runs, or was interrupted. */
  readonly finishedAt: Date | null;
}

export const MAX_PREVIEW = 100_000;
/** Rows walked by one statement, whether they match or not. */
const WINDOW = 20_000;
/** Rows changed by one transaction: they are locked for as long as it takes. */
const CHUNK = 500;
const STATES: Readonly<Record<Act, readonly JobState[]>> = {
  retry: ['dead', 'cancelled'],
  discard: ['ready'],
  cancel: ['ready'],
};

export type Operations = ReturnType<typeof createOperations>;

const operationsOf = (rows: readonly unknown[]): Operation[] =>
  withDates<Operation>(rows, ['startedAt', 'finishedAt']);

export function createOperations(schema: string) {
  const s = quoteSchema(schema);
  const store = createStore(schema);
  const fields = `id::text, act, filter, options, by, upto::text, position::text, changed::float8,
    ${epochMs('started_at')} as "startedAt", ${epochMs('finished_at')} as "finishedAt"`;

  /** A line about what is done already. */
  const note = async (
    db: Queryable,
    act: DoorAct,
    filter: Touched,
    by: string,
    changed: number,
    options: Operation['options'] = {},
  ): Promise<void> => {
    await db.query(
      `insert into ${s}.operations (act, filter, options, by, upto, changed, finished_at)
       values ($1, $2::jsonb, $3::jsonb, left($4 || ' as ' || current_user, 500), 0, $5, clock_timestamp())`,
      [act, JSON.stringify(filter), JSON.stringify(options), by, changed],
    );
  };

  /** The next window behind a position: what matches in it, at most `limit`, and where it ended. */
  const walk = async (
    db: Queryable,
    act: Act,
    filter: BulkFilter,
    after: string,
    upto: string,
    limit: number,
  ) => {
    const { rows } = await db.query(walkText(s), [...filterValues(act, filter), after, upto, WINDOW, limit]);
    return rows as { id: string | null; kind: string; error: string | null; end: string }[];
  };

  return {
    /** Writes down what `by` did, in the transaction that did it. */
    note,

    /** Counts and samples; changes nothing. */
    async preview(db: Queryable, act: Act, filter: BulkFilter): Promise<Preview> {
      checkFilter(act, filter);
      const upto = await newest(db, s);
      const groups = new Map<
        string,
        { kind: string; error: string | null; count: number; samples: string[] }
      >();
      let count = 0;
      let position = '0';
      while (BigInt(position) < BigInt(upto) && count <= MAX_PREVIEW) {
        const found = await walk(db, act, filter, position, upto, WINDOW);
        position = found.at(-1)?.end ?? upto;
        for (const { id, kind, error } of found) {
          if (id === null) continue;
          count += 1;
          const key = JSON.stringify([kind, error]);
          const group = groups.get(key) ?? { kind, error, count: 0, samples: [] };
          group.count += 1;
          if (group.samples.length < 3) group.samples.push(id);
          groups.set(key, group);
        }
      }
      const largest = [...groups.values()].sort((a, b) => b.count - a.count).slice(0, 20);
      return { count: Math.min(count, MAX_PREVIEW), more: count > MAX_PREVIEW, groups: largest };
    },

    /** Notes what is to be done; `run` does it. */
    async begin(
      db: Queryable,
      act: Act,
      filter: BulkFilter,
      by: string,
      options: Operation['options'] = {},
    ): Promise<Operation> {
      checkFilter(act, filter);
      const values = [act, JSON.stringify(filter), JSON.stringify(options), by, await newest(db, s)];
      const { rows } = await db.query(
        `insert into ${s}.operations (act, filter, options, by, upto)
         values ($1, $2::jsonb, $3::jsonb, left($4 || ' as ' || current_user, 500), $5) returning ${fields}`,
        values,
      );
      return operationsOf(rows)[0] as Operation;
    },

    /**
     * Goes on from where it stands until the end or until `signal`; answers how it stands then. Two that run the same one
     * do not change a job twice: the one that comes late to a chunk throws `operation-busy`.
     */
    async run(
      pool: TransactionPool,
      id: string,
      { signal, onChunk }: { signal?: AbortSignal; onChunk?: (now: Operation) => void } = {},
    ): Promise<Operation> {
      let now = await this.show(pool, id);
      while (now.finishedAt === null && !signal?.aborted) {
        now = await inTransaction(pool, (db) => chunk(db, now));
        onChunk?.(now);
      }
      return now;
    },

    /** An act on jobs that were named, noted with it. Ids that were changed. */
    actOn(
      pool: TransactionPool,
      act: Act,
      ids: readonly string[],
      by: string,
      options: Operation['options'] = {},
    ): Promise<string[]> {
      return inTransaction(pool, async (db) => {
        const changed = await change(store, db, act, ids, options);
        await note(db, act, { ids }, by, changed.length, options);
        return changed;
      });
    },

    /** Throws `operation-missing`. */
    async show(db: Queryable, id: string): Promise<Operation> {
      const { rows } = await db.query(`select ${fields} from ${s}.operations where id = $1`, [id]);
      const [operation] = operationsOf(rows);
      if (operation !== undefined) return operation;
      throw new UnbrokerError('operation-missing', `There is no operation ${id}`, {
        hint: 'Run: unbroker jobs audit',
        exitStatus: EXIT.badInput,
      });
    },

    /** Newest first. */
    async list(db: Queryable, limit: number, beforeId: string | null = null): Promise<Operation[]> {
      const { rows } = await db.query(
        `select ${fields} from ${s}.operations where $2::bigint is null or id < $2 order by operations.id desc limit $1`,
        [limit, beforeId],
      );
      return operationsOf(rows);
    },
  };

  async function chunk(db: Queryable, from: Operation): Promise<Operation> {
    // First: who comes late waits here, and then sees that it is late.
    const mine = await db.query(
      `select from ${s}.operations where id = $1 and position = $2 and finished_at is null for update`,
      [from.id, from.position],
    );
    if (mine.rows.length === 0) throw busy(from.id);
    const filter = from.filter as BulkFilter;
    const act = from.act as Act;
    const found = await walk(db, act, filter, from.position, from.upto, CHUNK);
    const ids = found.flatMap(({ id }) => (id === null ? [] : [id]));
    const changed = ids.length === 0 ? [] : await change(store, db, act, ids, from.options);
    const end = found.at(-1)?.end ?? from.upto;
    const { rows } = await db.query(
      `update ${s}.operations
       set position = $2::bigint, changed = changed + $3,
           finished_at = case when $2::bigint >= upto then clock_timestamp() end
       where id = $1 returning ${fields}`,
      [from.id, end, changed.length],
    );
    return operationsOf(rows)[0] as Operation;
  }
}

const busy = (id: string): UnbrokerError =>
  new UnbrokerError('operation-busy', `Operation ${id} is run by somebody else, too`, {
    hint: 'Let that one finish; this one changed nothing.',
  });

function change(
  store: Store,
  db: Queryable,
  act: Act,
  ids: readonly string[],
  { attempts = 1 }: Operation['options'],
) {
  if (act === 'retry') return store.operatorRetry(db, ids, attempts);
  return act === 'discard' ? store.operatorDiscard(db, ids) : store.cancel(db, ids);
}

async function newest(db: Queryable, s: string): Promise<string> {
  const { rows } = await db.query(`select coalesce(max(id), 0)::text as id from ${s}.jobs`);
  return (rows[0] as { id: string }).id;
}

/** Throws `filter-invalid`, `filter-missing`. */
export function checkFilter(act: Act, filter: BulkFilter): void {
  const { state, ...more } = filter;
  if (state !== undefined && !STATES[act].includes(state)) {
    throw new UnbrokerError('filter-invalid', `${act} does not take jobs that are ${state}`, {
      hint: `It takes: ${STATES[act].join(', ')}.`,
      exitStatus: EXIT.badInput,
    });
  }
  if (Object.values(more).some((value) => value !== undefined) || state !== undefined) return;
  throw new UnbrokerError('filter-missing', 'Neither jobs nor a filter is given', {
    hint: 'Name ids, or at least one of --kind, --state, --source, --error, --tag, --older-than, --newer-than.',
    exitStatus: EXIT.badInput,
  });
}

/** $1 to $8 of the walk. */
function filterValues(act: Act, filter: BulkFilter): unknown[] {
  const { kind, source, error, tag, olderThanMs, newerThanMs } = filter;
  const states = filter.state === undefined ? STATES[act].slice(0, 1) : [filter.state];
  const prefix = kind?.endsWith('*') ? kind.slice(0, -1) : null;
  const exact = prefix === null ? (kind ?? null) : null;
  return [
    ...[states, exact, prefix, source ?? null, error?.toLowerCase() ?? null, tag ?? null],
    ...[olderThanMs ?? null, newerThanMs ?? null],
  ];
}

/**
 * A window of the primary key ($9 to $11), and what of it matches, at most $12: no statement walks more, however few match.
 * The last row says where the window ended, or the chunk.
 */
const walkText = (s: string): string => `
with walked as materialized (
  select j.id, j.kind, j.state, j.source, j.cron, j.errors -> -1 as error,
         case when $6::text is not null then j.payload -> 'tags' end as tags, coalesce(j.finished_at, j.created_at) as since
  from ${s}.jobs j
  where j.id > $9::bigint and j.id <= $10::bigint
  order by j.id
  limit $11
), matching as (
  select w.id, w.kind, w.error ->> 'name' as error
  from walked w
  where w.state = any ($1::text[]) and w.cron is null
    and ($2::text is null or w.kind = $2)
    and ($3::text is null or starts_with(w.kind, $3))
    and ($4::text is null or starts_with(w.source, $4))
    and ($5::text is null or strpos(lower(concat_ws(': ', w.error ->> 'name', w.error ->> 'message')), $5) > 0)
    and ($6::text is null or w.tags ? $6)
    and ($7::float8 is null or w.since < now() - $7 * interval '1 millisecond')
    and ($8::float8 is null or w.since >= now() - $8 * interval '1 millisecond')
  order by w.id
  limit $12
), ended as (
  select case
    when (select count(*) from matching) >= $12 then (select max(id) from matching)
    when (select count(*) from walked) < $11 then $10::bigint
    else (select max(id) from walked) end as "end"
)
select m.id::text, m.kind, m.error, e."end"::text from ended e left join matching m on true order by m.id`;
