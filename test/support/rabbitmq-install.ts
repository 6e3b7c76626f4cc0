/**
 * Finds the `rabbitmq-server` program, or installs Debian's package when we are root on Debian or Ubuntu. The package
 * would start a broker for the whole machine; that is prevented, so that the only broker is the caller's private one.
 */
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
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
 * services now"; a file that is there already is respected unless it is one of ours that a killed run left behind.
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
apt-get -q update || echo 'apt-get update failed; trying with the lists that are here'
apt-get -q install -y --no-install-recommends -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 rabbitmq-server
if [ -d /run/systemd/system ]; then systemctl disable rabbitmq-server.service || true; fi
`;

/** Installs the package and returns the folder with the programs; rejects with apt's last words. */
export async function installRabbit(): Promise<string> {
  say(
    'no RabbitMQ here: installing it with apt-get install rabbitmq-server (needs the network, about a minute)',
  );
  const startedAt = Date.now();
  const output = await runScript(INSTALL_SCRIPT);
  const folder = findRabbitPrograms();
  if (folder === null) throw new Error(`apt-get ended, but there is no rabbitmq-server:\n${output}`);
  say(
    `installed rabbitmq-server in ${Math.round((Date.now() - startedAt) / 1000)} s; its system service was not started`,
  );
  return folder;
}

function runScript(script: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const child = spawn('flock', ['-w', '600', '/var/lock/unbroker-install', 'sh', '-c', script], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive', RUNLEVEL: '1', LC_ALL: 'C' },
      timeout: INSTALL_WITHIN_MS,
    });
    let output = '';
    const keep = (chunk: Buffer) => {
      output = (output + chunk.toString()).slice(-4_000);
    };
    child.stdout.on('data', keep);
    child.stderr.on('data', keep);
    child.on('error', reject);
    child.on('close', (code) => {
      const lastWords = output.trim().split('\n').slice(-6).join('\n');
      if (code === 0) resolve(lastWords);
      else reject(new Error(`apt-get install rabbitmq-server failed:\n${lastWords}`));
    });
  });
}
