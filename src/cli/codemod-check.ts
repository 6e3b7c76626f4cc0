/**
 * `unbroker codemod check --ratchet <file>`: fails when the repository publishes beside a commit at a place that the
 * file does not hold. It reads the repository and the file; with --update it writes the file.
 */
import { existsSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import type { Plan } from '../../codemods/index.js';
import { EXIT, UnbrokerError } from '../errors.js';
import { print, printJson } from './output.js';
import { printable } from './printable.js';

export interface CheckOptions {
  readonly ratchet: string;
  readonly update?: boolean;
  readonly json?: boolean;
}

/** `scan` reads the repository: asked last. Throws `ratchet-missing` and `ratchet-invalid` before that. */
export async function checkRatchet(scan: () => Plan, options: CheckOptions): Promise<void> {
  const codemods = await import('../../codemods/index.js');
  const text = read(options.ratchet);
  if (options.update) return update(text, scan, options);
  if (text === undefined) {
    throw new UnbrokerError('ratchet-missing', `There is no ${options.ratchet}`, {
      hint: 'Write it with --update, and commit it',
      exitStatus: EXIT.badInput,
    });
  }
  const ratchet = codemods.parseRatchet(text, options.ratchet);
  const result = codemods.compareRatchet(scan(), ratchet);
  process.exitCode = result.added.length > 0 ? EXIT.failed : EXIT.ok;
  if (options.json) return printJson(result);
  for (const site of result.added) {
    print(printable(`${site.file}:${site.line}  new publish in ${site.function}: ${site.source}`));
    print(
      printable(
        `  ${site.reason === null ? `${site.level}: unbroker codemod apply` : `${site.reason}: ${site.next}.`}`,
      ),
    );
  }
  print(summary(result.added.length, result.gone.length, result.known));
}

async function update(text: string | undefined, scan: () => Plan, options: CheckOptions): Promise<void> {
  const codemods = await import('../../codemods/index.js');
  checkFolder(options.ratchet);
  const after = codemods.renderRatchet(scan());
  if (text !== after) write(options.ratchet, after);
  const known = Object.keys(codemods.parseRatchet(after, options.ratchet).publishes).length;
  if (options.json) return printJson({ ratchet: options.ratchet, known, written: text !== after });
  print(`${options.ratchet} holds ${known} known ${known === 1 ? 'publish' : 'publishes'}.`);
}

function summary(added: number, gone: number, known: number): string {
  const lower = gone === 0 ? '' : `; ${gone} are gone: lower the ratchet with --update`;
  return added === 0
    ? `No new publish beside a commit (${known} known${lower}).`
    : `${added} new ${added === 1 ? 'publish' : 'publishes'} beside a commit (${known} known${lower}). Enqueue instead, or accept with --update.`;
}

function checkFolder(path: string): void {
  if (existsSync(dirname(path))) return;
  throw new UnbrokerError('ratchet-invalid', `There is no folder ${dirname(path)} for the ratchet`, {
    hint: 'Create it, or name a file in a folder that exists',
    exitStatus: EXIT.badInput,
  });
}

function read(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch (cause) {
    if (cause instanceof Error && 'code' in cause && cause.code === 'ENOENT') return undefined;
    throw new UnbrokerError('ratchet-invalid', `${path} cannot be read`, {
      hint: 'Check its permissions',
      exitStatus: EXIT.badInput,
      cause,
    });
  }
}

function write(path: string, text: string): void {
  const temporary = `${path}.${process.pid}.tmp`;
  try {
    writeFileSync(temporary, text, { flag: 'wx' });
    renameSync(temporary, path);
  } catch (cause) {
    rmSync(temporary, { force: true });
    throw new UnbrokerError('write-failed', `${path} cannot be written`, {
      hint: 'Check permissions and free space, then run the command again',
      cause,
    });
  }
}
