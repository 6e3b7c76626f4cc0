/**
 * Four roles, and what each may do with the schema: as data, as the SQL that grants exactly that, and as what the doctor
 * compares with. Pure. Roles are the cluster's and their names the user's: nothing here is part of a migration.
 */
import { EXIT, UnbrokerError } from './errors.js';
import { quoteSchema } from './jobs/schema-name.js';

/**
 * `enqueuer`: puts jobs in, as callers do. `worker`: runs them. `reader`: sees everything, payloads too. `admin`: acts as an
 * operator, a drain or the HTTP doors do. Migrations belong to the schema's owner.
 */
export type Role = 'enqueuer' | 'worker' | 'reader' | 'admin';

export const ROLES: readonly Role[] = ['enqueuer', 'worker', 'reader', 'admin'];

/** One object and what is granted on it; `columns` limits it to those. */
export interface Need {
  readonly on: 'table' | 'sequence';
  readonly name: string;
  readonly privileges: readonly ('select' | 'insert' | 'update' | 'delete' | 'usage')[];
  readonly columns?: readonly string[];
}

/** What a caller says about a job. Not its state, its attempts, its lease: nobody forges a job that is done. */
const ENQUEUED = [
  ...['id', 'kind', 'payload', 'body', 'content_type', 'run_at', 'priority', 'max_attempts', 'dedupe_key'],
  ...['ordering_key', 'headers', 'source', 'retry_policy', 'checked'],
];

const WORKED = ['select', 'insert', 'update', 'delete'] as const;

/** Of the roles that are granted object by object; reader and admin get all that is there. */
export const NEEDS: Readonly<Record<'enqueuer' | 'worker', readonly Need[]>> = {
  enqueuer: [
    { on: 'table', name: 'jobs', privileges: ['insert'], columns: ENQUEUED },
    // The answer, and the first job of a dedupe key.
    { on: 'table', name: 'jobs', privileges: ['select'], columns: ['id', 'kind', 'dedupe_key'] },
    // A list with dedupe keys draws its ids first.
    { on: 'sequence', name: 'jobs_id_seq', privileges: ['usage'] },
    // Whether a worker sleeps that wants to be woken.
    { on: 'table', name: 'sleepers', privileges: ['select'] },
  ],
  worker: [
    { on: 'table', name: 'jobs', privileges: WORKED },
    { on: 'sequence', name: 'jobs_id_seq', privileges: ['usage'] },
    { on: 'sequence', name: 'lease_tokens', privileges: ['usage'] },
    { on: 'table', name: 'claims', privileges: WORKED },
    { on: 'table', name: 'sleepers', privileges: WORKED },
    { on: 'table', name: 'kind_limits', privileges: WORKED },
    { on: 'table', name: 'templates', privileges: ['select'] },
    { on: 'table', name: 'template_files', privileges: ['select'] },
    // What deliveries look at and count.
    { on: 'table', name: 'suppressions', privileges: ['select'] },
    { on: 'table', name: 'providers', privileges: WORKED },
    { on: 'table', name: 'recipient_counts', privileges: WORKED },
    { on: 'table', name: 'migrations', privileges: ['select'] },
  ],
};

/** Role to the name that it has in this cluster. One name may stand for several. */
export type RoleNames = Partial<Readonly<Record<Role, string>>>;

export interface RoleSqlOptions {
  /** Make those that are not there, without login: members get them by `grant <role> to <user>`. Default false. */
  readonly create?: boolean;
}

/** Statements to run in one transaction, as the schema's owner; run again after each migrate. Throws `role-invalid`. */
export function roleSql(schema: string, names: RoleNames, { create = false }: RoleSqlOptions = {}): string[] {
  const s = quoteSchema(schema);
  const given = ROLES.flatMap((role) => {
    const name = names[role];
    return name === undefined ? [] : [{ role, name: quoteRole(name) }];
  });
  const distinct = [...new Set(given.map(({ name }) => name))];
  return [
    ...(create ? distinct.map(createRole) : []),
    ...distinct.flatMap((name) => [
      `revoke all on all tables in schema ${s} from ${name}`,
      `revoke all on all sequences in schema ${s} from ${name}`,
      `grant usage on schema ${s} to ${name}`,
      // Each runs with its caller's rights. Routines: functions, and procedures.
      `grant execute on all routines in schema ${s} to ${name}`,
    ]),
    ...given.flatMap(({ role, name }) => grants(s, role, name)),
  ];
}

function grants(s: string, role: Role, name: string): string[] {
  if (role === 'enqueuer' || role === 'worker') return NEEDS[role].map((need) => grant(s, need, name));
  const rows = role === 'reader' ? 'select' : WORKED.join(', ');
  const numbers = role === 'reader' ? 'select' : 'usage, select';
  return [
    `grant ${rows} on all tables in schema ${s} to ${name}`,
    `grant ${numbers} on all sequences in schema ${s} to ${name}`,
  ];
}

function grant(s: string, { on, name, privileges, columns }: Need, to: string): string {
  const what = columns === undefined ? privileges.join(', ') : `${privileges[0]} (${columns.join(', ')})`;
  return `grant ${what} on ${on} ${s}.${name} to ${to}`;
}

function createRole(name: string): string {
  return `do $$ begin
  if not exists (select from pg_roles where rolname = '${name.slice(1, -1)}') then create role ${name} nologin; end if;
end $$`;
}

/** The same narrow pattern as a schema's name; nothing is escaped. */
function quoteRole(name: string): string {
  if (
    /^[a-z_][a-z0-9_]{0,62}$/.test(name) &&
    !/^(pg_.*|public|none|current_.*|session_user|user)$/.test(name)
  )
    return `"${name}"`;
  throw new UnbrokerError('role-invalid', 'The name of a role is not usable', {
    hint: 'Use 1 to 63 of a-z, 0-9 and _, not starting with a digit or pg_, and not public.',
    exitStatus: EXIT.badInput,
  });
}
