/** `unbroker roles`: the SQL that grants four roles what each needs, printed or run. */
import { Command } from 'commander';
import { EXIT, UnbrokerError } from '../errors.js';
import { checkSchema } from '../migrate.js';
import { ROLES, type RoleNames, roleSql } from '../roles.js';
import { inTransaction } from '../transaction.js';
import { type Context, run } from './context.js';
import { print, printJson } from './output.js';

interface RolesOptions extends RoleNames {
  readonly create?: boolean;
  readonly apply?: boolean;
}

export function rolesCommand(): Command {
  return new Command('roles')
    .description('grant roles what they need and nothing else; prints the SQL unless told to run it')
    .option('--enqueuer <role>', 'puts jobs in: no state, no lease, no reading of payloads')
    .option('--worker <role>', 'claims, runs and settles jobs')
    .option('--reader <role>', 'sees everything, payloads too')
    .option('--admin <role>', 'acts on jobs; drains; serves the HTTP doors')
    .option('--create', 'make the roles that are not there, without login')
    .option('--apply', 'run it, as the owner of the schema')
    .action(run(roles));
}

async function roles(context: Context, options: RolesOptions): Promise<undefined> {
  const named = Object.fromEntries(
    ROLES.filter((role) => options[role]).map((role) => [role, options[role]]),
  );
  if (Object.keys(named).length === 0) {
    throw new UnbrokerError('role-missing', 'No role is named', {
      hint: 'Name at least one, for example: unbroker roles --worker app_worker',
      exitStatus: EXIT.badInput,
    });
  }
  const statements = roleSql(context.schema, named, { create: options.create === true });
  if (options.apply !== true) {
    if (context.json) printJson({ applied: false, statements });
    else print(['begin;', ...statements.map((text) => `${text};`), 'commit;'].join('\n'));
    return;
  }
  await apply(context, statements);
  if (context.json) printJson({ applied: true, roles: named, statements });
  else
    print(
      `Granted: ${Object.entries(named)
        .map(([role, name]) => `${name} (${role})`)
        .join(', ')}.`,
    );
}

async function apply(context: Context, statements: readonly string[]): Promise<void> {
  const pool = context.pool(1);
  try {
    await checkSchema(pool, context.schema);
    await inTransaction(pool, async (db) => {
      for (const text of statements) await db.query(text);
    });
  } catch (error) {
    throw refused(error);
  }
}

/** undefined_object: no such role. insufficient_privilege: not the owner. */
function refused(error: unknown): unknown {
  const code = (error as { code?: unknown }).code;
  if (code === '42704') {
    return new UnbrokerError('role-missing', 'A role that is named does not exist', {
      hint: 'Create it first, or add --create.',
      exitStatus: EXIT.badInput,
      cause: error,
    });
  }
  if (code !== '42501') return error;
  return new UnbrokerError('role-refused', 'The server refuses to grant this', {
    hint: 'Run it as the owner of the schema (for --create: one who may create roles).',
    exitStatus: EXIT.badInput,
    cause: error,
  });
}
