/**
 * A process that outlives its owner just long enough to clean up. It reads folder names from its standard input
 * (`+folder` watch, `-folder` forget); when that pipe closes, however the owner ended, it kills what still runs out of
 * the watched folders and removes them. Before that it sweeps what earlier owners left. It knows no server by name.
 */
import { createInterface } from 'node:readline';
import { cleanFolder, sweepLeftovers } from './leftovers.js';

// A closing terminal or a Ctrl-C may reach us too; the pipe's end is the only thing that ends us.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => {});

const watched = new Set<string>();
const lines = createInterface({ input: process.stdin });
lines.on('line', (line) => {
  if (line.startsWith('+')) watched.add(line.slice(1));
  if (line.startsWith('-')) watched.delete(line.slice(1));
});
const ownerGone = new Promise<void>((resolve) => lines.once('close', resolve));

await sweepLeftovers();
await ownerGone;
await Promise.allSettled([...watched].map(cleanFolder));
