/**
 * The one question asked of git: is there something uncommitted here? It changes nothing, and starts no program that
 * the repository's own configuration names.
 */

import { execFileSync } from 'node:child_process';

export type TreeState =
  | { readonly kind: 'clean'; readonly gitDir: string }
  | { readonly kind: 'dirty'; readonly gitDir: string; readonly files: readonly string[] }
  | { readonly kind: 'none' };

export function treeState(root: string): TreeState {
  try {
    const gitDir = git(root, ['rev-parse', '--absolute-git-dir']).trim();
    const files = git(root, ['status', '--porcelain', '--untracked-files=normal', '-z', '--', '.'])
      .split('\0')
      .filter((f) => f !== '');
    return files.length === 0
      ? { kind: 'clean', gitDir }
      : { kind: 'dirty', gitDir, files: files.map((f) => f.slice(3)) };
  } catch {
    return { kind: 'none' };
  }
}

function git(root: string, args: readonly string[]): string {
  return execFileSync('git', ['-c', 'core.fsmonitor=false', '-C', root, ...args], {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'ignore'],
    maxBuffer: 64 * 1024 * 1024,
    env: { ...process.env, GIT_OPTIONAL_LOCKS: '0' },
  });
}
