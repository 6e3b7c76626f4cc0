/**
 * Writes a plan: each file to a temporary one beside it, renamed only when all are ready and only if the file on disk
 * is still the one that was scanned. It decides nothing; what is not in the plan is not touched.
 */

import {
  chmodSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join, sep } from 'node:path';
import { EXIT, UnbrokerError } from '../src/errors.js';
import type { FileChange } from './changes.js';
import { sha256 } from './files.js';
import { treeState } from './git.js';
import type { Plan } from './plan.js';
import { renderDiff } from './render/diff.js';
import { type Asked, checkKinds, checkStart } from './start.js';

export interface ApplyOptions {
  /** Write although something is uncommitted, or although this is no git repository. */
  readonly allowDirty: boolean;
}

export interface Applied {
  /** Relative paths that were rewritten. */
  readonly written: readonly string[];
  /** Where the patch that takes it back was stored; null when nothing was written. */
  readonly reversePatch: string | null;
}

interface Staged {
  readonly change: FileChange;
  readonly temporary: string;
}

/**
 * Before the repository is read; all of it is asked again when the files are written. Throws what `checkStart` does,
 * `kinds-edited`, and with `write` also `tree-dirty`.
 */
export function checkApply(asked: Asked, write: ApplyOptions | undefined): void {
  const { root } = checkStart(asked);
  checkKinds(asked, root);
  if (write !== undefined) guard(root, write);
}

/** Throws `tree-dirty`, `file-changed`, `write-failed`; nothing is written then. */
export function applyPlan(plan: Plan, options: ApplyOptions): Applied {
  const patchFolder = guard(plan.root, options);
  if (plan.changes.length === 0) return { written: [], reversePatch: null };
  for (const change of plan.changes) checkUnchanged(plan.root, change);
  const staged = stage(plan.changes);
  const reversePatch = storePatch(patchFolder, plan, staged);
  commit(staged, plan.root);
  return { written: plan.changes.map((c) => c.path), reversePatch };
}

/** The folder for the reverse patch: git's own, where it disturbs nobody, else `.unbroker`. Throws `tree-dirty`. */
function guard(root: string, options: ApplyOptions): string {
  const state = treeState(root);
  const folder = state.kind === 'none' ? join(root, '.unbroker') : join(state.gitDir, 'unbroker');
  if (options.allowDirty || state.kind === 'clean') return folder;
  if (state.kind === 'none') {
    throw new UnbrokerError(
      'tree-dirty',
      `${root} is no git repository, so the edit could not be reviewed or taken back`,
      {
        hint: 'Put it under git, or add --allow-dirty',
        exitStatus: EXIT.badInput,
      },
    );
  }
  const [first, ...more] = state.files;
  throw new UnbrokerError(
    'tree-dirty',
    `The git tree has uncommitted changes (${first}${more.length > 0 ? ` and ${more.length} more` : ''})`,
    {
      hint: 'Commit or stash them, or add --allow-dirty',
      exitStatus: EXIT.badInput,
    },
  );
}

function checkUnchanged(root: string, change: FileChange): void {
  let why: string | undefined;
  try {
    if (change.hash === null) {
      if (lstatSync(change.absolute, { throwIfNoEntry: false }) !== undefined) why = 'has come to be';
    } else if (
      lstatSync(change.absolute).isSymbolicLink() ||
      !realpathSync(change.absolute).startsWith(root + sep)
    )
      why = 'is a link now';
    else if (sha256(readFileSync(change.absolute)) !== change.hash) why = 'was changed';
  } catch {
    why = 'is gone';
  }
  if (why === undefined) return;
  throw new UnbrokerError('file-changed', `${change.path} ${why} since it was scanned; nothing was written`, {
    hint: 'Run the command again',
  });
}

function stage(changes: readonly FileChange[]): Staged[] {
  const staged: Staged[] = [];
  try {
    for (const change of changes) {
      const temporary = `${change.absolute}.unbroker-${process.pid}.tmp`;
      const mode = change.hash === null ? 0o644 : lstatSync(change.absolute).mode & 0o7777;
      staged.push({ change, temporary });
      writeFileSync(temporary, (change.bom ? '\uFEFF' : '') + change.after, { flag: 'wx', mode });
      chmodSync(temporary, mode);
    }
    return staged;
  } catch (cause) {
    discard(staged);
    throw failed(staged.at(-1)?.change.path ?? '', cause);
  }
}

function discard(staged: readonly Staged[]): void {
  for (const { temporary } of staged) rmSync(temporary, { force: true });
}

function storePatch(folder: string, plan: Plan, staged: readonly Staged[]): string {
  const patch = renderDiff(plan.changes, 'reverse');
  const path = join(folder, `reverse-${sha256(Buffer.from(patch)).slice(0, 12)}.patch`);
  try {
    mkdirSync(folder, { recursive: true });
    writeFileSync(path, patch);
    return path;
  } catch (cause) {
    discard(staged);
    throw failed(path, cause);
  }
}

/** Renames one by one; each file is checked again right before, so an editor that saves in between loses nothing. */
function commit(staged: readonly Staged[], root: string): void {
  const done: Staged[] = [];
  try {
    for (const one of staged) {
      checkUnchanged(root, one.change);
      renameSync(one.temporary, one.change.absolute);
      done.push(one);
    }
  } catch (cause) {
    for (const { change } of done) {
      if (change.hash === null) rmSync(change.absolute, { force: true });
      else writeFileSync(change.absolute, (change.bom ? '\uFEFF' : '') + change.before);
    }
    discard(staged);
    if (cause instanceof UnbrokerError) throw cause;
    throw failed(staged[done.length]?.change.path ?? dirname(root), cause);
  }
}

function failed(path: string, cause: unknown): UnbrokerError {
  const code = cause instanceof Error && 'code' in cause ? ` (${String(cause.code)})` : '';
  return new UnbrokerError('write-failed', `${path} cannot be written${code}; nothing was changed`, {
    hint: 'Check permissions and free space, then run the command again',
    cause,
  });
}
