/** Runs a script with a reader that leaves after the first chunk, as `| head -1` does, and ends with its status. */
import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';

const tsx = createRequire(import.meta.url).resolve('tsx');
const child = spawn(process.execPath, ['--import', tsx, ...process.argv.slice(2)], {
  stdio: ['ignore', 'pipe', 'inherit'],
});
child.stdout.once('data', () => child.stdout.destroy());
child.once('close', (code) => process.exit(code ?? 1));
