/**
 * The command line as a process: the built program when it is as new as its sources (`npm test` builds first), else the
 * sources themselves, which start in twice the time.
 */
import { existsSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type ProcessOptions, type StartedProcess, startProcess, startScript } from './processes.js';

const root = fileURLToPath(new URL('../..', import.meta.url));
const built = join(root, 'dist/src/cli/main.js');

function isFresh(): boolean {
  if (!existsSync(built)) return false;
  const builtAt = statSync(built).mtimeMs;
  return ['src', 'adapters', 'codemods', 'migrations'].every((folder) =>
    readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
      .filter((file) => /\.(ts|sql)$/.test(file))
      .every((file) => statSync(join(root, folder, file)).mtimeMs <= builtAt),
  );
}

/** What to start: a JavaScript file, or a TypeScript file that needs tsx. */
export const cliFile = isFresh() ? built : join(root, 'src/cli/main.ts');

export function startCli(args: readonly string[], options: ProcessOptions = {}): StartedProcess {
  return cliFile === built
    ? startProcess(process.execPath, [built, ...args], options)
    : startScript(cliFile, args, options);
}
