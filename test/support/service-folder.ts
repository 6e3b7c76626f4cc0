/**
 * A fresh temporary folder for one private server or a set of processes, watched by a guardian from before the first
 * process is started until it is closed. It refuses to know what runs in it.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { chmodSync, mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { buildSync } from 'esbuild';
import { cleanFolder, FOLDER_PREFIX, GUARDIAN_MARK, MARK, recordOwner } from './leftovers.js';

export interface ServiceFolder {
  readonly path: string;
  /** The current environment plus the mark. Everything that runs out of the folder must be started with it. */
  environment(): NodeJS.ProcessEnv;
  /** Kills what still runs out of the folder and removes it. */
  close(): Promise<void>;
}

let guardian: ChildProcess | undefined;

/**
 * As JavaScript, in one piece: nearly every test file has a guardian, and Node starts this in a tenth of the CPU that it
 * needs with a loader of TypeScript.
 */
function guardianProgram(): string {
  const [program] = buildSync({
    entryPoints: [fileURLToPath(new URL('guardian.ts', import.meta.url))],
    ...{ bundle: true, platform: 'node', format: 'esm', target: 'node20', write: false, logLevel: 'silent' },
  }).outputFiles;
  if (program === undefined) throw new Error('esbuild made nothing of the guardian');
  return program.text;
}

/** One per owner, started with the first folder. In its own session, so Ctrl-C ends the owner and not the guardian. */
function tellGuardian(line: string): void {
  if (guardian === undefined || guardian.exitCode !== null || guardian.signalCode !== null) {
    const { [MARK]: _, ...environment } = process.env;
    guardian = spawn(process.execPath, ['--input-type=module', '--eval', guardianProgram()], {
      detached: true,
      stdio: ['pipe', 'ignore', 'ignore'],
      cwd: '/',
      env: { ...environment, [GUARDIAN_MARK]: '1', NODE_OPTIONS: '' },
    });
    guardian.unref();
    guardian.on('error', () => {});
    const pipe = guardian.stdin as NodeJS.WritableStream & { unref?(): void };
    pipe.on('error', () => {});
    pipe.unref?.();
  }
  guardian.stdin?.write(`${line}\n`);
}

/** `kind` is a word for whoever looks at the temporary folder: `postgres`, `rabbitmq`. */
export function openServiceFolder(kind: string): ServiceFolder {
  const path = mkdtempSync(join(tmpdir(), `${FOLDER_PREFIX}${kind}-`));
  recordOwner(path);
  // A server that runs as another user must be able to reach its data below; the names in here are not listed to it.
  chmodSync(path, 0o711);
  tellGuardian(`+${path}`);
  return {
    path,
    environment: () => ({ ...process.env, [MARK]: path }),
    async close() {
      await cleanFolder(path);
      tellGuardian(`-${path}`);
    },
  };
}
