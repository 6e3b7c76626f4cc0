/**
 * What the doctor asks the server, by name, each with one sentence. Text is constant once the schema is known. Nothing
 * here counts the jobs table: its size comes from statistics, what waits and runs from jobs/backlog.ts.
 */
import { quoteSchema } from '../jobs/schema-name.js';
import { agoMs } from '../jobs/times.js';

export type DoctorStatements = ReturnType<typeof createDoctorStatements>;

export function createDoctorStatements(schema: string) {
  const s = quoteSchema(schema);
  const jobs = `${s}.jobs`;
  return {
    /** The server, this session's rights on it, its clock. */
    server: `
select current_setting('server_version') as version, pg_is_in_recovery() as standby,
       (select reset_val from pg_settings where name = 'default_transaction_read_only') = 'on' as "readOnly",
       pg_has_role(current_user, 'pg_read_all_stats', 'usage') as "seesAll",
       date_part('epoch', clock_timestamp()) * 1000 as "nowMs"`,

    /**
     * Who holds the horizon: transactions of this database (those of others hold nothing here) and standbys that feed
     * back, the longest first. The text of a query may hold data: it leaves the server only when $1 asks for it.
     */
    horizon: `
select pid, application_name as "applicationName", backend_type as "backendType", state,
       nullif(concat_ws(': ', wait_event_type, wait_event), '') as "waitsFor",
       date_part('epoch', clock_timestamp() - xact_start) * 1000 as "transactionMs",
       date_part('epoch', clock_timestamp() - query_start) * 1000 as "queryMs",
       greatest(age(backend_xmin), age(backend_xid)) as "xidAge",
       case when $1::boolean then left(query, 1000) end as query
from pg_stat_activity
where (backend_xmin is not null or backend_xid is not null) and pid <> pg_backend_pid()
  and (datname = current_database() or backend_type = 'walsender')
  -- A vacuum's own snapshot holds nothing back.
  and backend_type <> 'autovacuum worker' and pid not in (select v.pid from pg_stat_progress_vacuum v)
order by xact_start nulls last
limit 5`,

    /** Prepared transactions of this database: they hold the horizon and their locks until somebody ends them. */
    prepared: `
select left(gid, 100) as name, owner, date_part('epoch', clock_timestamp() - prepared) * 1000 as "preparedMs"
from pg_prepared_xacts
where database = current_database()
order by prepared
limit 20`,

    /** Replication slots, and what they keep from being removed. */
    slots: `
select slot_name as name, active, age(xmin) as "xidAge", wal_status as "walStatus",
       case when not pg_is_in_recovery() then pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::float8 end as "walBytes"
from pg_replication_slots
order by age(xmin) desc nulls last, restart_lsn
limit 20`,

    /** The table as the statistics see it, and its last vacuum. */
    table: `
select c.reltuples::float8 as "estimatedRows", pg_relation_size(c.oid)::float8 as bytes, c.reloptions as options,
       t.n_live_tup::float8 as live, t.n_dead_tup::float8 as dead,
       date_part('epoch', now() - greatest(t.last_autovacuum, t.last_vacuum)) * 1000 as "vacuumedMs",
       date_part('epoch', now() - t.last_autovacuum) * 1000 as "autovacuumedMs"
from pg_class c left join pg_stat_all_tables t on t.relid = c.oid
where c.oid = '${jobs}'::regclass`,

    /**
     * What roles that were granted a worker's or an enqueuer's part lack of the rest: $1 to $4 are what each needs (part,
     * kind of object, column or null, privilege), $5 the object's name.
     */
    grants: `
with granted as (
  select distinct r.oid, r.rolname as role,
         case when has_table_privilege(r.oid, c.oid, 'update') then 'worker' else 'enqueuer' end as part
  from pg_class c
  join pg_roles r on not r.rolsuper and r.oid <> c.relowner and not pg_has_role(r.oid, c.relowner, 'usage')
  where c.oid = '${jobs}'::regclass
    and (exists (select from aclexplode(c.relacl) a where a.grantee = r.oid and a.privilege_type = 'UPDATE')
      or exists (select from pg_attribute t, aclexplode(t.attacl) a
                 where t.attrelid = c.oid and a.grantee = r.oid and a.privilege_type = 'INSERT'))
), needs as (
  select n.part, n.object, n.column_name, n.privilege, to_regclass('${s}.' || quote_ident(n.name)) as relation, n.name
  from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) as n(part, object, column_name, privilege, name)
)
select g.role, g.part,
       coalesce(array_agg(distinct n.privilege || ' on ' || n.name) filter (where not case
         when n.relation is null then true
         when n.object = 'sequence' then has_sequence_privilege(g.oid, n.relation, n.privilege)
         when n.column_name is null then has_table_privilege(g.oid, n.relation, n.privilege)
         else has_column_privilege(g.oid, n.relation, n.column_name, n.privilege) end), '{}') as lacks
from granted g join needs n on n.part = g.part
group by g.role, g.part
order by g.role
limit 100`,

    /** Indexes of the schema that a build left behind unusable. */
    invalidIndexes: `
select i.indexrelid::regclass::text as name
from pg_index i join pg_class c on c.oid = i.indrelid join pg_namespace n on n.oid = c.relnamespace
where n.nspname = $1 and not i.indisvalid
  and not exists (select from pg_stat_progress_create_index p where p.index_relid = i.indexrelid)
order by 1
limit 20`,

    /** How far each sequence of the schema has come, as a share of its range. */
    sequences: `
select sequencename as name, coalesce(last_value, 0)::text as "lastValue",
       coalesce(last_value, 0)::float8 / max_value as used
from pg_sequences
where schemaname = $1
order by used desc
limit 20`,

    /** Transaction ids and multixact ids used since the oldest row of this database was frozen. */
    xidAge: `
select age(datfrozenxid) as "xidAge", mxid_age(datminmxid) as "multixactAge"
from pg_database
where datname = current_database()`,

    /** The share of the notification queue that is in use, of the whole instance. */
    notifyQueue: `
select pg_notification_queue_usage() as used`,

    /** Settings, as a new session of this role gets them. */
    settings: `
select name, reset_val as value
from pg_settings
where name in ('fsync', 'full_page_writes', 'synchronous_commit', 'autovacuum', 'TimeZone', 'statement_timeout',
               'default_transaction_isolation', 'extra_float_digits')`,

    /** Connections of clients, and how many there may be. */
    connections: `
select (select count(*) from pg_stat_activity where backend_type = 'client backend')::integer as used,
       current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer as max`,

    /**
     * Kinds among the last thousand jobs that finished, if that was within $1 ms and a worker did it: somebody works on those. What
     * was imported dead finished as it was created; it had hidden a kind that no worker knows for ten minutes, and so had an
     * operator's cancel.
     */
    recentKinds: `
select distinct kind
from (
  select j.kind, j.state, j.created_at, j.finished_at, j.errors
  from ${jobs} j
  where j.finished_at > now() - $1 * interval '1 millisecond'
  order by j.finished_at desc
  limit 1000
) as recent
where state = 'done'
   or (state = 'dead' and finished_at > created_at and errors -> -1 ->> 'message' is distinct from 'discarded by an operator')`,

    /**
     * Running jobs that no claim names, so that no sweep would find them: whoever wrote them leased them past the claim. Looks at
     * up to $1 unfinished jobs without a key, as many with one, and as many that run alone: no index tells who runs.
     */
    unnamedLeases: `
with unfinished as (
  (select j.id, j.state, j.lease_token
   from ${jobs} j
   where j.finished_at is null and j.cron is null and not j.solo and j.ordering_key is null
   order by j.kind, j.priority desc, j.run_at, j.id
   limit $1)
  union all
  (select j.id, j.state, j.lease_token
   from ${jobs} j
   where j.finished_at is null and j.cron is null and j.solo and j.ordering_key is null
   order by j.kind, j.run_at, j.id
   limit $1)
  union all
  (select j.id, j.state, j.lease_token
   from ${jobs} j
   where j.ordering_key is not null and j.cron is null and (j.finished_at is null or j.turn = 'stops')
   order by j.kind, j.ordering_key, j.id
   limit $1)
)
select count(*)::integer as count, min(j.id)::text as first
from unfinished j
where j.state = 'running' and not exists (
  select from ${s}.claims c where c.token = j.lease_token and j.id = any (c.ids))`,

    /** How long the oldest job that must be claimed alone has been due. */
    solo: `
select max(${agoMs('run_at')}) as "oldestDueMs", count(*)::integer as due
from (
  select j.run_at
  from ${jobs} j
  where j.finished_at is null and j.state = 'ready' and j.cron is null and j.solo and j.run_at <= now()
  order by j.kind, j.run_at, j.id
  limit 1000
) as waiting`,

    /** The schedule whose slot has been due the longest. */
    schedules: `
select substr(j.dedupe_key, 10) as name, ${agoMs('j.run_at')} as "dueMs"
from ${jobs} j
where j.misfire is not null and j.state = 'ready' and j.finished_at is null and not j.paused and j.run_at <= now()
order by j.run_at, j.id
limit 1`,
  } as const;
}
