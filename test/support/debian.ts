/**
 * Programs of other ecosystems that some tests publish with, from Debian's packages: found, or installed when we are root
 * on Debian or Ubuntu. Where neither works the test skips and says why.
 */
import { spawnSync } from 'node:child_process';
import { say } from './machine.js';
import { whyNotInstallable } from './rabbitmq-install.js';

const INSTALL_WITHIN_MS = 150_000;

/**
 * One run at a time: the lock of the broker's installation. Lists are only fetched when the package is not in those that
 * are here.
 */
const script = (name: string): string => `
apt() { apt-get -q -o DPkg::Lock::Timeout=100 -o Acquire::Retries=2 "$@"; }
apt install -y --no-install-recommends ${name} || { apt update; apt install -y --no-install-recommends ${name}; }
`;

/** Null when `works` does, at once or after the installation; else why not. */
export function needDebianPackage(name: string, works: () => boolean): string | null {
  if (works()) return null;
  const obstacle = whyNotInstallable();
  if (obstacle !== null) return `${name} is not here, and ${obstacle}`;
  say(`no ${name} here: apt-get install ${name} (needs the network)`);
  const { status, error } = spawnSync(
    'flock',
    ['-w', '140', '/var/lock/unbroker-install', 'sh', '-c', script(name)],
    {
      stdio: 'ignore',
      timeout: INSTALL_WITHIN_MS,
      env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive', RUNLEVEL: '1', LC_ALL: 'C' },
    },
  );
  if (works()) return null;
  return `apt-get install ${name} ended with ${error?.message ?? status}`;
}

/** Whether the program ends with 0. */
export function succeeds(program: string, args: readonly string[]): boolean {
  return spawnSync(program, args, { stdio: 'ignore', timeout: 60_000 }).status === 0;
}
