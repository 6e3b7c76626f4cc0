/**
 * What a run would be refused for in any case, asked before a file of the repository is read: paths that are not there, a
 * configuration that is wrong, a file of kinds that is not to be written. A large repository takes a minute to scan; who
 * hears of these then has waited for nothing. What only a run that writes is refused for is apply.ts's.
 */

import { type CodemodConfig, readConfig } from './config.js';
import { checkedPaths } from './files.js';
import { editedKinds, isEditedRegistry, type KindsOption } from './registry.js';
import { refuseWide } from './walk.js';

/** The part of a plan's options that says what would be read and written. */
export interface Asked {
  readonly root: string;
  readonly paths: readonly string[];
  readonly kinds?: KindsOption;
}

export interface Checked {
  /** The real path of the root. */
  readonly root: string;
  readonly config: CodemodConfig;
}

/** Throws `path-not-found`, `path-outside`, `not-a-repository`, `codemod-config-invalid` and `kinds-path-invalid`. */
export function checkStart({ root: given, paths, kinds }: Asked): Checked {
  const { root } = checkedPaths(given, paths);
  refuseWide(root);
  const config = readConfig(root);
  if (kinds !== undefined) isEditedRegistry(kinds, root);
  return { root, config };
}

/** For a run that would write the kinds. Throws `kinds-edited`. */
export function checkKinds({ kinds }: Asked, root: string): void {
  if (kinds !== undefined && isEditedRegistry(kinds, root)) throw editedKinds(kinds.path);
}
