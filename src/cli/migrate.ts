/** `unbroker migrate`: bring the schema up to date, or print the DDL for a team's own migration tool. */
import { Command } from 'commander';
import { migrate, migrationSql } from '../migrate.js';
import { run } from './context.js';
import { print, printJson } from './output.js';

const MAX_NAMED = 5;
/** A migration that takes longer is named while it runs: on a large table, or behind somebody's lock. */
const LONG_MS = 1_000;

export function migrateCommand(): Command {
  return new Command('migrate')
    .description('create or update the jobs table and its functions')
    .option('--sql', 'print the DDL instead of running it')
    .action(
      run(async (context, options: { sql?: boolean }) => {
        if (options.sql) {
          print(migrationSql(context.schema));
          return;
        }
        let long: NodeJS.Timeout | undefined;
        const result = await migrate(context.pool(), {
          schema: context.schema,
          onMigration: (name) => {
            clearTimeout(long);
            long = setTimeout(() => context.log.info({ migration: name }, 'applying'), LONG_MS);
          },
        }).finally(() => clearTimeout(long));
        if (context.json) printJson(result);
        else if (result.applied.length === 0)
          print(`Schema ${result.schema} is up to date at version ${result.to}.`);
        else
          print(
            `Schema ${result.schema}: version ${result.from} to ${result.to} (${namesOf(result.applied)}).`,
          );
      }),
    );
}

/** All of a first migration are more than anybody reads; --json has them. */
const namesOf = (applied: readonly string[]): string =>
  applied.length > MAX_NAMED ? `${applied.length} migrations` : applied.join(', ');
