/**
 * A process that outlives its owner just long enough to clean up. It reads folder names from its standard input
 * (`+folder` watch, `-folder` forget); when that pipe closes, however the owner ended, it kills what still runs out of
 * the watched folders and removes them. Before that it sweeps what earlier owners left. It knows no server by name.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { cleanFolder, GUARDED, sweepLeftovers } from './leftovers.js';

// A closing terminal or a Ctrl-C may reach us too; the pipe's end is the only thing that ends us.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => {});

await sweepLeftovers();

// What the owner wrote meanwhile waits in the pipe, its end included.
const watched = new Set<string>();
for await (const line of createInterface({ input: process.stdin })) {
  const folder = line.slice(1);
  if (line.startsWith('+')) {
    watched.add(folder);
    try {
      writeFileSync(join(folder, GUARDED), String(process.pid));
    } catch {
      // Closed already; the line that says so is on its way.
    }
  }
  if (line.startsWith('-')) watched.delete(folder);
}
await Promise.allSettled([...watched].map(cleanFolder));
