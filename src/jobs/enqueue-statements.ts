/**
 * Every statement that puts jobs in, in the form of statements.ts. For one job there is a function, and the same as an insert
 * for connections that keep its plan. enqueue-store.ts is the only file that runs these.
 */
import { quoteSchema } from './schema-name.js';
import { wakes, wakesOne, wakesTwo } from './statements.js';

/** What one job brings along, as parameters; and whether it is due now. */
const oneColumns =
  'kind, payload, priority, run_at, max_attempts, headers, source, retry_policy, ordering_key';
const oneValues = `$1, $2::text::jsonb, coalesce($3, 0), coalesce($4, now() + $5 * interval '1 millisecond', now()),
        coalesce($6, 20), $7::text::jsonb, $8, $9::text::jsonb, $10`;
const oneIsDue = '$4::timestamptz is null and $5::float8 is null';
/** The rules that these columns can break; an ordering key's are the trigger's, as with enqueue_many (migrations/040_checked.sql). */
const oneFits = `$1::text <> '' and length($1::text) <= 200 and $2::text is not null
          and coalesce($6, 20) between 1 and 1000 and $10::text is null`;

/** What enqueueMany gives: a list a field. */
const manyLists = `$1::text[], $2::text[], $3::smallint[], $4::timestamptz[], $5::float8[], $6::integer[], $7::text[],
  $8::text[], $9::text[], $10::text[]`;

export function createEnqueueStatements(schema: string) {
  const s = quoteSchema(schema);
  const jobs = `${s}.jobs`;
  const wakeOne = wakesOne(schema);
  const wakeTwo = wakesTwo(schema)('$1::text');
  const mayCheck = `(
  select bool_or(has_column_privilege(attrelid, attnum, 'insert'))::text
  from pg_attribute where attrelid = '${jobs}'::regclass and attname = 'checked'
    and exists (select from pg_attribute where attrelid = '${s}.sleepers'::regclass and attname = 'kinds'))`;
  /** As insertFirst, insertPlain and insertPlainUnseen: for a connection's first, and with and without the look for a sleeper. */
  const forms = (columns: string, values: string, fits: string, conflict = '') => ({
    first: `
insert into ${jobs} (${columns}) values (${values}) ${conflict}
returning id, ${wakeOne(oneIsDue)}, ${mayCheck}`,
    looking: `
insert into ${jobs} (${columns}, checked) values (${values}, ${fits}) ${conflict}
returning id, ${wakeTwo}`,
    unseen: `
insert into ${jobs} (${columns}, checked) values (${values}, ${fits}) ${conflict}
returning id`,
  });
  return {
    /** One row of which no more is said than kind, payload, priority and headers (migrations/018_checks.sql). */
    enqueuePlain: `
select ${s}.enqueue_plain($1, $2, $3, $4) as id`,

    /** One row; no dedupe key, so it always inserts (migrations/015_enqueue_one.sql). */
    enqueue: `
select ${s}.enqueue_one($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) as id`,

    /**
     * What enqueuePlain does, for connections that keep the plan themselves: 14 us of server CPU less. It tells, too, whether
     * the column `checked` may be set, and sleepers have kinds: not on a schema before 047_wake_two.sql, nor by a role that was not
     * granted it.
     */
    insertFirst: `
insert into ${jobs} (kind, payload, priority, headers) values ($1, $2, $3, $4)
returning id, ${wakeOne('true')}, ${mayCheck}`,

    /** The same, once that is known. */
    insertPlain: `
insert into ${jobs} (kind, payload, priority, headers, checked) values ($1, $2, $3, $4, true)
returning id, ${wakeTwo}`,
    insertBare: `
insert into ${jobs} (kind, payload, checked) values ($1, $2, true)
returning id, ${wakeTwo}`,

    /** Without the look for a sleeper, a sixth of what it costs: for who looked just now (enqueue-store.ts). */
    insertPlainUnseen: `
insert into ${jobs} (kind, payload, priority, headers, checked) values ($1, $2, $3, $4, true)
returning id`,
    insertBareUnseen: `
insert into ${jobs} (kind, payload, checked) values ($1, $2, true)
returning id`,

    /** What enqueue does, the same: a fifth less of a caller's transaction than with a description and the trigger. */
    insertOne: forms(oneColumns, oneValues, oneFits),

    /**
     * One row unless its kind and dedupe key are there already, by unique index, never by looking first; its id or null
     * (migrations/023_enqueue_once.sql). JSON goes in as text: a client that asks the server for the types of parameters
     * (postgres.js) would serialise a jsonb one once more.
     */
    enqueueOnce: `
select ${s}.enqueue_once($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) as id`,

    /** The same, as insertOne; no row instead of null. */
    insertOnce: forms(
      `${oneColumns}, dedupe_key`,
      `${oneValues}, $11`,
      `${oneFits} and $11::text <> '' and length($11::text) <= 500`,
      'on conflict (kind, dedupe_key) where dedupe_key is not null do nothing',
    ),

    /** The job that won a dedupe key. A statement of its own: it needs a snapshot later than the insert's. */
    findByDedupeKey: `
select id::text from ${jobs} where kind = $1 and dedupe_key = $2`,

    /**
     * Rows of one kind, priority and headers, of which no more is said, for a JSON list of payloads; their ids as 'first-last'
     * or one by one (migrations/027_enqueue_alike.sql, 029).
     */
    enqueueAlike: `
select ${s}.enqueue_alike($1, $2, $3, $4) as ids`,

    /**
     * Many rows without dedupe keys (migrations/022_enqueue_many.sql); their ids in the order given, as one text. A list may
     * be null where no job has the field.
     */
    enqueueMany: `
select ${s}.enqueue_many(${manyLists}) as ids`,

    /** The same, some with dedupe keys ($11): nothing between the commas for those whose key is taken. */
    enqueueManyOnce: `
select ${s}.enqueue_many_once(${manyLists}, $11::text[]) as ids`,

    /** The jobs that won these kinds and keys, in the order given; null where there is none (any more). */
    findByDedupeKeys: `
select j.id::text
from unnest($1::text[], $2::text[]) with ordinality as asked (kind, dedupe_key, position)
left join ${jobs} j on j.kind = asked.kind and j.dedupe_key = asked.dedupe_key
order by position`,

    /** Which of these texts the server takes as jsonb, in the order given. Asked only after a batch was refused. */
    probeJsonb: `
select ${s}.jsonb_or_null(input) is not null as ok
from unnest($1::text[]) with ordinality as input (input, position)
order by position`,

    /**
     * A job that was tried elsewhere before: attempts and the last error come along ($9 its name, $10 its message
     * or null); $11 = dead on arrival.
     */
    enqueueCarried: `
insert into ${jobs} (kind, payload, run_at, max_attempts, headers, source, retry_policy, attempts, errors, state, finished_at, dead)
values ($1, $2::jsonb, now() + $3 * interval '1 millisecond', $4, $5::jsonb, $6, $7::jsonb, $8,
        case when $10::text is not null then jsonb_build_array(jsonb_build_object(
          'at', clock_timestamp(), 'attempt', $8::integer, 'name', $9::text, 'message', $10::text)) end,
        case when $11::boolean then 'dead' else 'ready' end, case when $11::boolean then clock_timestamp() end, nullif($11::boolean, false))
returning id::text`,

    /** Rows whose input is bytes, in the order given; all start at most $9 times. */
    enqueueBodies: `
insert into ${jobs} (kind, payload, body, content_type, priority, run_at, headers, source, max_attempts)
select kind, null, body, content_type, priority, coalesce(to_timestamp(run_at_ms / 1000), now()), headers::jsonb, source, $9
from unnest($1::text[], $2::bytea[], $3::text[], $4::smallint[], $5::float8[], $6::text[], $7::text[], $8::integer[])
  as input (kind, body, content_type, priority, run_at_ms, headers, source, position)
order by position
returning id::text, ${wakes(schema)()}`,
  } as const;
}
