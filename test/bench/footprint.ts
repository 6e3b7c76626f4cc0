/**
 * What it weighs: memory of a worker that is idle and of one that holds a thousand jobs, and the time that a caller's service
 * pays for importing the enqueue client. Each in a plain Node process of its own, from dist as a user gets it.
 */
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { build } from 'esbuild';
import { freshDatabase } from '../support/services.js';
import type { BenchOptions, BenchResult } from './bench.js';
import { median, round } from './rounds.js';
import { table } from './table.js';

const run = promisify(execFile);
const script = fileURLToPath(new URL('footprint-child.mjs', import.meta.url));
const client = fileURLToPath(new URL('../../dist/src/enqueue.js', import.meta.url));

export async function benchFootprint({ server, node, rounds, quick }: BenchOptions): Promise<BenchResult> {
  const ask = async (...args: readonly string[]): Promise<number> =>
    Number((await run(node, [script, ...args], { timeout: 60_000 })).stdout);
  const many = async (count: number, once: () => Promise<number>): Promise<number> => {
    const values: number[] = [];
    for (let n = 0; n < count; n += 1) values.push(await once());
    return round(median(values), 1);
  };
  const imports: number[] = [];
  for (let n = 0; n < (quick ? 5 : 15); n += 1) imports.push(await ask('import', client));
  const importMs = round(median(imports), 1);
  const importBestMs = round(Math.min(...imports), 1);
  const memory = (jobs: number) => async (): Promise<number> => {
    const database = await freshDatabase(server);
    try {
      return await ask('worker', database.url, String(jobs));
    } finally {
      await database.close();
    }
  };
  const idleRssMb = await many(rounds, memory(0));
  const holdingRssMb = await many(rounds, memory(1_000));
  const { metafile } = await build({
    ...{ entryPoints: [client], bundle: true, metafile: true, write: false, logLevel: 'silent' },
    ...{ platform: 'node', format: 'esm' },
  });
  const thirdParty = Object.keys(metafile.inputs).filter((path) => path.includes('node_modules')).length;
  return {
    json: { idleRssMb, holdingRssMb, importMs, importBestMs, thirdPartyModules: thirdParty },
    text: table(
      ['', ''],
      [
        ['idle worker, RSS MB', String(idleRssMb)],
        ['worker that holds 1,000 jobs, RSS MB', String(holdingRssMb)],
        ['import of unbroker/enqueue, ms (best)', `${importMs} (${importBestMs})`],
        ['third-party modules in it', String(thirdParty)],
      ],
    ),
  };
}
