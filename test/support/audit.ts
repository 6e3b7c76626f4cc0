/**
 * A judge inside the database, for tests only: a trigger that notes every change of a job's state and whatever no
 * legal history contains. It sees row versions in the order in which they really followed one another, which no log
 * of a client can promise. Handlers that return `{ token: job.leaseToken }`, or fail with the message `token <n>`, let
 * it tell whether an outcome was written under the lease that its handler ran under.
 */
import type { Queryable } from '../../src/jobs/job.js';

export interface AuditReport {
  /** Claims seen. */
  readonly claims: number;
  readonly finishes: number;
  /** Outcomes written under another lease than the handler's. Must be 0. */
  readonly stale: number;
  /** Final states left by whatever is not an operator's retry; tokens that fell; attempts that jumped. Must be empty. */
  readonly problems: readonly string[];
  /** dead or cancelled -> ready. */
  readonly operatorRetries: number;
}

/** `schema` is that of the jobs table. The notes live in the schema `audit` of the same database. */
export async function installAudit(db: Queryable, schema = 'unbroker'): Promise<void> {
  await db.query(auditSql(schema));
}

export async function auditReport(db: Queryable): Promise<AuditReport> {
  const { rows } = await db.query(`
    select (select count(*)::int from audit.changes where was = 'ready' and became = 'running') as claims,
           (select count(*)::int from audit.changes where was = 'running' and became in ('done', 'dead')) as finishes,
           (select count(*)::int from audit.problems where what like 'stale%') as stale,
           (select coalesce(json_agg(format('job %s: %s', job, what)), '[]') from (select * from audit.problems limit 20) as p) as problems,
           (select count(*)::int from audit.changes where was in ('dead', 'cancelled') and became = 'ready') as "operatorRetries"`);
  return rows[0] as AuditReport;
}

/** Starts of a job: claims minus those that a snooze or a release gave back. */
export async function startsOf(db: Queryable, id: string): Promise<number> {
  const { rows } = await db.query(
    `select count(*)::int as starts from audit.changes where job = $1 and was = 'ready' and became = 'running'`,
    [id],
  );
  return (rows[0] as { starts: number }).starts;
}

const auditSql = (schema: string): string => `
create schema audit;
create table audit.changes (
  seq bigint generated always as identity primary key,
  job bigint, was text, became text, token bigint, attempts integer, worker text, at timestamptz default clock_timestamp()
);
create index on audit.changes (job);
create table audit.problems (job bigint, what text);
create table audit.tokens (job bigint primary key, newest bigint not null);

create function audit.judge() returns trigger language plpgsql as $$
declare
  newest_token bigint;
  said text;
  counted integer := new.attempts - old.attempts;
begin
  if old.state in ('done', 'dead', 'cancelled') and new.state <> old.state
     and not (old.state in ('dead', 'cancelled') and new.state = 'ready')
     and not (old.state = 'dead' and new.state = 'cancelled') then
    insert into audit.problems values (new.id, old.state || ' became ' || new.state);
  end if;
  if new.state = 'running' and new.lease_token is distinct from old.lease_token then
    if old.state <> 'ready' then
      insert into audit.problems values (new.id, 'claimed while ' || old.state);
    end if;
    if counted <> 1 then
      insert into audit.problems values (new.id, 'a claim counted ' || counted || ' attempts');
    end if;
    select newest into newest_token from audit.tokens where job = new.id;
    if newest_token >= new.lease_token then
      insert into audit.problems values (new.id, 'token ' || new.lease_token || ' after ' || newest_token);
    end if;
    insert into audit.tokens values (new.id, new.lease_token)
    on conflict (job) do update set newest = excluded.newest;
  elsif counted <> 0 and not (counted = -1 and old.state = 'running' and new.state = 'ready') then
    insert into audit.problems values (new.id, old.state || ' to ' || new.state || ' counted ' || counted || ' attempts');
  end if;
  if old.state = 'running' and new.state <> 'running' then
    said := coalesce(
      new.result ->> 'token',
      case when new.errors is distinct from old.errors then substring(new.errors -> -1 ->> 'message' from '^token (\\d+)') end);
    if said is not null and said <> old.lease_token::text then
      insert into audit.problems values (new.id, 'stale: ran under ' || said || ', held under ' || old.lease_token);
    end if;
  end if;
  if new.state <> old.state then
    insert into audit.changes (job, was, became, token, attempts, worker)
    values (new.id, old.state, new.state, coalesce(new.lease_token, old.lease_token), new.attempts,
            coalesce(new.locked_by, old.locked_by));
  end if;
  return null;
end
$$;

create trigger judge after update on "${schema}".jobs for each row execute function audit.judge();
`;
