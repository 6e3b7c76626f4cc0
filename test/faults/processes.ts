/**
 * The programs that the worker faults kill: bundled once, so that starting one again takes a fifth of a second, and kept
 * alive by a supervisor, as in production. It knows nothing of what they do.
 */
import { mkdirSync, rmSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { type StartedProcess, startProcess } from '../support/processes.js';

const root = fileURLToPath(new URL('../..', import.meta.url));
/** Inside node_modules, so that the bundle finds the packages that stay outside it. */
const folder = join(root, `node_modules/.cache/unbroker-faults-${process.pid}`);
process.once('exit', () => rmSync(folder, { recursive: true, force: true }));

/** The bundle of a TypeScript file, named from this folder. */
export async function bundled(name: string): Promise<string> {
  mkdirSync(folder, { recursive: true });
  const outfile = join(folder, `${basename(name)}.mjs`);
  await build({
    entryPoints: [fileURLToPath(new URL(`${name}.ts`, import.meta.url))],
    outfile,
    bundle: true,
    platform: 'node',
    format: 'esm',
    target: 'node20',
    packages: 'external',
    logLevel: 'error',
  });
  return outfile;
}

/** A program that is started again whenever it ends, until `end`. */
export class Supervised {
  #process: StartedProcess;
  #ended = false;
  #killed: StartedProcess | undefined;
  /** Ends so far, whoever caused them. */
  deaths = 0;
  /** Those that it caused itself: an error that nobody caught. */
  crashes = 0;

  constructor(
    private readonly file: string,
    private readonly env: Readonly<Record<string, string>>,
    private readonly args: readonly string[] = [],
    private readonly cwd: string = process.cwd(),
  ) {
    this.#process = this.#start();
  }

  get process(): StartedProcess {
    return this.#process;
  }

  #start(): StartedProcess {
    const started = startProcess(process.execPath, [this.file, ...this.args], {
      env: this.env,
      cwd: this.cwd,
    });
    void started.exit.then(({ code, signal }) => {
      if (this.#ended) return;
      this.deaths += 1;
      if (signal === null && code !== 0) this.crashes += 1;
      if (started !== this.#killed)
        process.stderr.write(`ended with ${signal ?? code}, unasked: ${started.stderr.slice(-2_000)}\n`);
      this.#process = this.#start();
    });
    return started;
  }

  /** SIGKILL; the next one starts by itself. */
  async kill(): Promise<void> {
    this.#killed = this.#process;
    await this.#process.kill('SIGKILL');
  }

  /** SIGTERM, and nothing after it. */
  async end(): Promise<void> {
    this.#ended = true;
    this.#process.signal('SIGTERM');
    await this.#process.waitForExit(60_000);
  }
}
