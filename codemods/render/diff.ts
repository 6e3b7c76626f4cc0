/** The plan's edits as one unified diff that `git apply` takes, forwards or backwards. */

import { createTwoFilesPatch } from 'diff';
import type { FileChange } from '../changes.js';

const BOM = '\uFEFF';
const CONTEXT = 3;

export function renderDiff(
  changes: readonly FileChange[],
  direction: 'forward' | 'reverse' = 'forward',
): string {
  return changes
    .map((change) => {
      const mark = change.bom ? BOM : '';
      const [from, to] =
        direction === 'forward' ? [change.before, change.after] : [change.after, change.before];
      return patch(change.path, mark + from, mark + to);
    })
    .join('');
}

function patch(path: string, from: string, to: string): string {
  const [a, b] = [`a/${path}`, `b/${path}`];
  const body = createTwoFilesPatch(a, b, from, to, undefined, undefined, {
    context: CONTEXT,
    stripTrailingCr: false,
  });
  // The library's first line is an `Index:` or `====` rule that git does not want.
  const start = body.indexOf('--- ');
  return `diff --git ${a} ${b}\n${body.slice(start)}`;
}
