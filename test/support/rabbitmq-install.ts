/**
 * Finds the `rabbitmq-server` program, or installs Debian's package when we are root on Debian or Ubuntu. The package
 * would start a broker for the whole machine; that is prevented, so that the only broker is the caller's private one.
 */
import { spawn } from 'node:child_process';
import { closeSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { foldersWith, isExecutable, isRoot, say } from './machine.js';

/**
 * Debian's program in /usr/sbin is a wrapper that insists on one account and one machine-wide node, so the real one
 * behind it comes first. The others are where Homebrew and the generic tarball put it.
 */
const FOLDERS = ['/usr/lib/rabbitmq/bin', '/opt/homebrew/sbin', '/usr/local/sbin', '/opt/rabbitmq/sbin'];
const INSTALL_WITHIN_MS = 10 * 60_000;

/** The folder with `rabbitmq-server`, `rabbitmqctl` and `rabbitmq-plugins`, or null. */
export function findRabbitPrograms(): string | null {
  const folders = [...FOLDERS, ...foldersWith('rabbitmq-server')];
  return folders.find((folder) => isExecutable(join(folder, 'rabbitmq-server'))) ?? null;
}

/** Why the package cannot be installed here, or null when it can. */
export function whyNotInstallable(): string | null {
  if (!existsSync('/etc/debian_version') || !isExecutable('/usr/bin/apt-get')) {
    return 'this is neither Debian nor Ubuntu';
  }
  return isRoot() ? null : 'apt-get needs root';
}

/**
 * One run at a time (flock), looking again once the lock is ours. policy-rc.d is Debian's own way to say "start no
 * services now"; a file that is there already is respected unless it is one of ours that a killed run left behind. The
 * service is also disabled, or the next boot would start it.
 */
const INSTALL_SCRIPT = `
set -eu
test -x /usr/lib/rabbitmq/bin/rabbitmq-server && exit 0
policy=/usr/sbin/policy-rc.d
mark='# unbroker test services: remove me'
if [ ! -e "$policy" ] || grep -qxF "$mark" "$policy"; then
  trap 'rm -f "$policy"' EXIT
  trap 'exit 130' INT TERM HUP
  printf '#!/bin/sh\\n%s\\nexit 101\\n' "$mark" > "$policy"
  chmod 755 "$policy"
fi
apt() { apt-get -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@"; }
apt update || echo 'apt-get update failed; trying with the lists that are here'
dpkg --configure -a || true
apt install -y --no-install-recommends rabbitmq-server
update-rc.d rabbitmq-server disable || true
`;

/** Installs the package and returns the folder with the programs; rejects with apt's last words. */
export async function installRabbit(): Promise<string> {
  say('no RabbitMQ here: apt-get install rabbitmq-server (needs the network; a few seconds to a minute)');
  const startedAt = Date.now();
  const output = await runScript(INSTALL_SCRIPT);
  const folder = findRabbitPrograms();
  if (folder === null) throw new Error(`apt-get ended, but there is no rabbitmq-server:\n${output}`);
  const seconds = Math.round((Date.now() - startedAt) / 1000);
  say(`installed rabbitmq-server in ${seconds} s; its system service stays off`);
  return folder;
}

/**
 * In its own session and with a file for its output: neither our end nor a Ctrl-C may leave the machine's packages half
 * configured. Whoever comes next waits for it at the lock.
 */
async function runScript(script: string): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), 'unbroker-install-'));
  const log = openSync(join(folder, 'log'), 'a');
  try {
    const child = spawn('flock', ['-w', '600', '/var/lock/unbroker-install', 'sh', '-c', script], {
      stdio: ['ignore', log, log],
      env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive', RUNLEVEL: '1', LC_ALL: 'C' },
      detached: true,
    });
    const code = await new Promise<number | null>((resolve, reject) => {
      const late = new Error(
        `apt-get install rabbitmq-server still runs after ${INSTALL_WITHIN_MS / 60_000} minutes`,
      );
      const timer = setTimeout(() => reject(late), INSTALL_WITHIN_MS);
      child.once('error', reject);
      child.once('exit', (status) => {
        clearTimeout(timer);
        resolve(status);
      });
    });
    const lastWords = readFileSync(join(folder, 'log'), 'utf8').trim().split('\n').slice(-3).join('\n');
    if (code === 0) return lastWords;
    throw new Error(`apt-get install rabbitmq-server failed:\n${lastWords}`);
  } finally {
    closeSync(log);
    rmSync(folder, { recursive: true, force: true });
  }
}
