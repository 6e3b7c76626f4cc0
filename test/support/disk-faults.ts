/**
 * What a disk does to a private Postgres: it is full for a while, and its syncs fail. Both need rights that a container
 * may refuse, which is told, by name, before anything is started. It knows nothing of our tables.
 */
import { execFile, execFileSync } from 'node:child_process';
import { mkdtempSync, rmdirSync, statfsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { foldersWith, unprivilegedAccount } from './machine.js';
import { startProcess } from './processes.js';
import { until } from './until.js';

const run = promisify(execFile);
const ROOMY = '512m';

export interface SmallDisk {
  readonly path: string;
  /** From now on not one more page fits. */
  fill(): Promise<void>;
  /** There is room again. */
  free(): Promise<void>;
  /** To be called when nothing runs on it any more. */
  close(): void;
}

/** A file system of its own in memory that Postgres' account may write. Throws where mounts are refused. */
export function mountSmallDisk(): SmallDisk {
  const path = mkdtempSync(join(tmpdir(), 'unbroker-disk-'));
  const account = unprivilegedAccount('postgres');
  const owner = account === undefined ? '' : `,uid=${account.uid},gid=${account.gid}`;
  try {
    const options = `size=${ROOMY},mode=0700${owner}`;
    execFileSync('mount', ['-t', 'tmpfs', '-o', options, 'tmpfs', path], { stdio: 'pipe' });
  } catch (error) {
    rmdirSync(path);
    throw error;
  }
  let open = true;
  const close = (): void => {
    if (!open) return;
    open = false;
    execFileSync('umount', ['--lazy', path], { stdio: 'pipe' });
    rmdirSync(path);
  };
  process.once('exit', close);
  const resize = (size: string) => run('mount', ['-o', `remount,size=${size}`, path]);
  return {
    ...{ path, close },
    // Smaller than what is on it is refused: it may have grown since it was asked.
    async fill() {
      await until('the disk is full', async () => {
        const { blocks, bfree, bsize } = statfsSync(path);
        return resize(String((blocks - bfree) * bsize)).then(
          () => true,
          () => false,
        );
      });
    },
    free: async () => void (await resize(ROOMY)),
  };
}

/** Why no disk can be mounted here; null when one can. */
export function noMount(): string | null {
  try {
    mountSmallDisk().close();
    return null;
  } catch {
    return 'mounting is refused';
  }
}

/** Why no call can be made to fail here; null when one can. */
export function noInjection(): string | null {
  if (foldersWith('strace').length === 0) return 'no strace';
  try {
    execFileSync('strace', ['-qq', '-e', 'inject=fsync:error=EIO', '-e', 'trace=fsync', 'true'], {
      stdio: 'pipe',
    });
    return null;
  } catch {
    return 'tracing is refused';
  }
}

/** Every sync of these processes fails with EIO until they end or `end` is called. */
export async function failSyncs(pids: readonly number[]): Promise<{ end(): Promise<void> }> {
  const calls = 'fsync,fdatasync';
  const tracer = startProcess('strace', [
    ...['-f', '-e', `trace=${calls}`, '-e', `inject=${calls}:error=EIO`],
    ...pids.flatMap((pid) => ['-p', String(pid)]),
  ]);
  await Promise.race([tracer.waitFor(/attached/), tracer.exit]);
  return {
    async end() {
      // Not SIGKILL: what is traced would stay stopped.
      if (tracer.running) await tracer.kill('SIGINT');
    },
  };
}
