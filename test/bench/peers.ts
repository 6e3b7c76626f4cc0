/**
 * Brings the other queues into test/bench/peers/node_modules, pinned by the lockfile there. They are no dependency of
 * this package: nobody but the bench installs them.
 */
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { say } from './say.js';

const folder = fileURLToPath(new URL('peers', import.meta.url));
const MAX_INSTALL_MS = 300_000;

interface Manifest {
  readonly version: string;
  readonly dependencies: Readonly<Record<string, string>>;
}

const manifest = (path: string): Manifest =>
  JSON.parse(readFileSync(`${folder}/${path}/package.json`, 'utf8'));

/** Name and version of each peer, installed first where it is missing or another version. */
export async function installPeers(): Promise<Record<string, string>> {
  const wanted = manifest('.').dependencies;
  const present = Object.entries(wanted).every(([name, version]) => installedVersion(name) === version);
  if (!present) {
    say('installing graphile-worker and pg-boss into test/bench/peers/node_modules (npm ci)');
    // The engines of the peers ask for the Node that the contenders run on, not for npm's own.
    const args = ['ci', '--no-audit', '--no-fund', '--loglevel=error', '--engine-strict=false'];
    await promisify(execFile)('npm', args, { cwd: folder, timeout: MAX_INSTALL_MS });
  }
  return Object.fromEntries(
    Object.keys(wanted)
      .filter((name) => name !== 'pg')
      .map((name) => [name, manifest(`node_modules/${name}`).version]),
  );
}

function installedVersion(name: string): string | undefined {
  try {
    return manifest(`node_modules/${name}`).version;
  } catch {
    return undefined;
  }
}
