/**
 * What a disk does to a private Postgres: it is full for a while, and its syncs fail. Both need rights that a container
 * may refuse, which is told, by name, before anything is started. It knows nothing of our tables.
 */
import { execFile, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
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
  close(): Promise<void>;
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
  // Ended with us, however we end: a kill -9 would leave the mount behind for ever.
  const keeper = spawn('sh', ['-c', 'cat; umount --lazy "$0" && rmdir "$0"', path], {
    ...{ detached: true, stdio: ['pipe', 'ignore', 'ignore'], cwd: '/' },
  });
  keeper.unref();
  const gone = once(keeper, 'exit');
  const resize = (size: string) => run('mount', ['-o', `remount,size=${size}`, path]);
  return {
    path,
    // Smaller than what is on it is refused: it may have grown since it was asked.
    async fill() {
      await until('the disk is full', async () => {
        const { blocks, bfree, bsize } = statfsSync(path);
        // Nothing would be no limit.
        return resize(String(Math.max(1, blocks - bfree) * bsize)).then(
          () => true,
          () => false,
        );
      });
    },
    free: async () => void (await resize(ROOMY)),
    async close() {
      keeper.ref();
      keeper.stdin.end();
      await gone;
    },
  };
}

/** Why no disk can be mounted here; null when one can. */
export async function noMount(): Promise<string | null> {
  try {
    await mountSmallDisk().close();
    return null;
  } catch {
    return 'mounting is refused';
  }
}

/** Why no call can be made to fail here; null when one can. */
export async function noInjection(): Promise<string | null> {
  if (foldersWith('strace').length === 0) return 'no strace';
  const sleeper = startProcess('sleep', ['60']);
  try {
    const failing = await failSyncs([sleeper.pid]);
    const attached = failing.attached();
    await failing.end();
    return attached ? null : 'tracing is refused';
  } finally {
    await sleeper.kill();
  }
}

export interface FailingSyncs {
  /** False when the tracer gave up. */
  attached(): boolean;
  end(): Promise<void>;
}

/** Every sync of these processes fails with EIO until they end or `end` is called. */
export async function failSyncs(pids: readonly number[]): Promise<FailingSyncs> {
  const calls = 'fsync,fdatasync';
  const tracer = startProcess('strace', [
    ...['-f', '-e', `trace=${calls}`, '-e', `inject=${calls}:error=EIO`],
    ...pids.flatMap((pid) => ['-p', String(pid)]),
  ]);
  await Promise.race([tracer.waitFor(/attached/).catch(() => undefined), tracer.exit]);
  return {
    attached: () => tracer.running,
    async end() {
      // Not SIGKILL: what is traced would stay stopped.
      if (tracer.running) await tracer.kill('SIGINT');
    },
  };
}
