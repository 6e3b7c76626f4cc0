/**
 * The Node that every contender of a run uses. The peers' newest versions need 22.18; where the bench itself runs on an
 * older one, all contenders, ours included, run on `npx -p node@24`, or the comparison would be one of Nodes.
 */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { say } from './say.js';

const MIN_MAJOR = 22;
const MIN_MINOR = 18;
const MAX_INSTALL_MS = 300_000;

/** Path of the executable. Rejects with the next step when npx cannot bring one. */
export async function contenderNode(): Promise<string> {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  if (major > MIN_MAJOR || (major === MIN_MAJOR && minor >= MIN_MINOR)) return process.execPath;
  say(`the peers need Node ${MIN_MAJOR}.${MIN_MINOR} or newer: every contender runs on npx -p node@24`);
  try {
    const args = ['--yes', '-p', 'node@24', 'node', '-p', 'process.execPath'];
    const { stdout } = await promisify(execFile)('npx', args, { timeout: MAX_INSTALL_MS });
    return stdout.trim();
  } catch (error) {
    throw new Error(
      'npx could not bring Node 24. Run the bench on Node 22.18 or newer, or give npm a registry',
      {
        cause: error,
      },
    );
  }
}
