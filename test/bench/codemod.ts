/**
 * `npm run -s bench -- codemod`: a scan of a large generated repository, without and with types, each in a process of
 * its own. `programFiles` is what a compiler takes in for the whole repository: a run is valid from 8,000 on.
 */
import { execFileSync } from 'node:child_process';
import { rmSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { BenchResult } from './bench.js';
import { generateRepository, OWN_FILES } from './codemod-repository.js';
import { median, round } from './rounds.js';
import { say } from './say.js';

/** What codemod-scan.ts prints. */
interface Scan {
  readonly seconds: number;
  readonly cpuSeconds: number;
  readonly rssMb: number;
  readonly files: number;
  readonly applied: number;
}

const VALID_FILES = 8_000;

export async function benchCodemod({ rounds }: { rounds: number }): Promise<BenchResult> {
  const root = generateRepository();
  process.once('SIGINT', () => {
    rmSync(root, { recursive: true, force: true });
    process.exit(130);
  });
  try {
    const untyped: Scan[] = [];
    const typed: Scan[] = [];
    for (let n = 0; n < rounds; n++) {
      say(`round ${n + 1} of ${rounds}`);
      untyped.push(child<Scan>('scan', root, 'untyped'));
      typed.push(child<Scan>('scan', root, 'typed'));
    }
    const { files: programFiles } = child<{ files: number }>('count', root);
    if (programFiles < VALID_FILES) throw new Error(`the program has only ${programFiles} files`);
    const of = (scans: readonly Scan[], what: keyof Scan): number =>
      round(median(scans.map((s) => s[what])), 2);
    const json = {
      untypedS: of(untyped, 'seconds'),
      typedS: of(typed, 'seconds'),
      typedRssMb: of(typed, 'rssMb'),
      files: OWN_FILES,
      programFiles,
      untypedCpuS: of(untyped, 'cpuSeconds'),
      typedCpuS: of(typed, 'cpuSeconds'),
      untypedRssMb: of(untyped, 'rssMb'),
      rewritten: of(typed, 'applied'),
      rewrittenUntyped: of(untyped, 'applied'),
    };
    return {
      json,
      text: Object.entries(json)
        .map(([k, v]) => `${k.padEnd(18)} ${v}`)
        .join('\n'),
    };
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
}

function child<Answer>(...args: readonly string[]): Answer {
  const script = fileURLToPath(new URL('./codemod-scan.mjs', import.meta.url));
  const out = execFileSync(process.execPath, [script, ...args], { encoding: 'utf8' });
  return JSON.parse(out) as Answer;
}
