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
      if (change.hash !== null) return patch(change.path, mark + from, mark + to);
      return direction === 'forward' ? created(change.path, to) : removed(change.path, from);
    })
    .join('');
}

/** A file that was not there. */
function created(path: string, text: string): string {
  const b = quotedPath(`b/${path}`);
  return `diff --git ${quotedPath(`a/${path}`)} ${b}\nnew file mode 100644\n--- /dev/null\n+++ ${b}\n${hunks('', text)}`;
}

function removed(path: string, text: string): string {
  const a = quotedPath(`a/${path}`);
  return `diff --git ${a} ${quotedPath(`b/${path}`)}\ndeleted file mode 100644\n--- ${a}\n+++ /dev/null\n${hunks(text, '')}`;
}

function patch(path: string, from: string, to: string): string {
  const a = quotedPath(`a/${path}`);
  const b = quotedPath(`b/${path}`);
  return `diff --git ${a} ${b}\n--- ${a}\n+++ ${b}\n${hunks(from, to)}`;
}

/** The head is ours: the library's begins with a rule that git does not want. */
function hunks(from: string, to: string): string {
  const body = createTwoFilesPatch('a', 'b', from, to, undefined, undefined, {
    context: CONTEXT,
    stripTrailingCr: false,
  });
  return body.slice(body.indexOf('@@ '));
}

/** git writes a path with control characters, quotes or backslashes as a C string. */
function quotedPath(path: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is quoted
  if (!/["\\\u0000-\u001f]/.test(path)) return path;
  const octal = (c: string): string => `\\${c.charCodeAt(0).toString(8).padStart(3, '0')}`;
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is quoted
  return `"${path.replace(/["\\]/g, '\\$&').replace(/[\u0000-\u001f]/g, octal)}"`;
}
