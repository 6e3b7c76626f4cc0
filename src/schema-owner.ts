/**
 * Under which role a migration of an older schema runs. What a superuser, or a member of the owner, creates is theirs, and the
 * owner, under whose name workers may run, has no right to it: they stopped. It asks; it changes nothing.
 */
import { EXIT, UnbrokerError } from './errors.js';
import type { Queryable } from './jobs/job.js';

interface Owner {
  readonly name: string;
  /** Quoted. */
  readonly role: string;
  readonly me: string;
  readonly mine: boolean;
  readonly member: boolean;
  /** This session may become it, and it may add to the schema. */
  readonly usable: boolean;
}

/**
 * The role, quoted, when all tables and functions of a schema (quoted) are one other role's; null for the own, and where they have
 * several owners: then none could change them all. Throws `not-the-owner`.
 */
export async function ownerToBe(db: Queryable, schema: string): Promise<string | null> {
  const { rows } = await db.query(
    `with owners as (
       select c.relowner as owner from pg_class c where c.relnamespace = to_regnamespace($1) and c.relkind in ('r', 'p', 'v', 'S')
       union
       select p.proowner from pg_proc p where p.pronamespace = to_regnamespace($1)
     )
     select r.rolname as name, quote_ident(r.rolname) as role, current_user::text as me, r.rolname = current_user as mine,
            pg_has_role(r.oid, 'member') as member, has_schema_privilege(r.oid, to_regnamespace($1), 'create')
              -- Since Postgres 16 a member may be one that must not.
              and pg_has_role(r.oid, case when current_setting('server_version_num')::int < 160000 then 'member' else 'set' end)
              as usable
     from owners o join pg_roles r on r.oid = o.owner
     limit 2`,
    [schema],
  );
  const [owner, another] = rows as Owner[];
  if (owner === undefined || another !== undefined || owner.mine) return null;
  if (!owner.member) {
    throw new UnbrokerError(
      'not-the-owner',
      `Schema ${schema.slice(1, -1)} is owned by ${owner.name}, and ${owner.me} is no member of that role`,
      { hint: `Run unbroker migrate as ${owner.name}.`, exitStatus: EXIT.badInput },
    );
  }
  return owner.usable ? owner.role : null;
}
