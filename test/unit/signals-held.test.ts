/** A signal in the middle of work that is held off: the work is done, and the process goes on. */
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';

test.each(['SIGINT', 'SIGTERM', 'SIGHUP'])(
  '%s does not cut the work in two, and cuts what follows',
  (signal) => {
    const held = fileURLToPath(new URL('../../src/cli/signals-held.ts', import.meta.url));
    const script = `
    import { signalsHeld } from ${JSON.stringify(held)};
    signalsHeld(() => {
      process.kill(process.pid, '${signal}');
      process.stdout.write('whole');
    });
    process.kill(process.pid, '${signal}');
    setTimeout(() => process.stdout.write('too far'), 60_000);`;
    const run = spawnSync(process.execPath, ['--import', 'tsx', '--input-type=module', '-e', script], {
      encoding: 'utf8',
      timeout: 50_000,
    });
    expect([run.stdout, run.signal]).toEqual(['whole', signal]);
  },
);
