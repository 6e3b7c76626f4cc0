/**
 * Child processes for tests and the demo: started with their output captured, awaited by what they print, killed by
 * signal, and never left behind, not even when the test process itself is killed. It knows no program by name.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import { openServiceFolder, type ServiceFolder } from './service-folder.js';

export interface ProcessOptions {
  /** Added to the current environment; undefined removes a name. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  readonly cwd?: string;
}

export interface ProcessExit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

export interface StartedProcess {
  readonly pid: number;
  /** All that was printed so far. */
  readonly stdout: string;
  readonly stderr: string;
  readonly running: boolean;
  /** Resolves when the process has ended and its output is complete. */
  readonly exit: Promise<ProcessExit>;
  /**
   * Resolves to the match once `pattern` is in stdout or stderr (what was printed before counts too). Rejects with
   * the output when the process ends first or `timeoutMs` (default 60 000) passes.
   */
  waitFor(pattern: RegExp | string, timeoutMs?: number): Promise<RegExpExecArray>;
  /** Like `exit`, but rejects with the output after `timeoutMs` (default 90 000); the process is killed then. */
  waitForExit(timeoutMs?: number): Promise<ProcessExit>;
  /** Sends the signal without waiting: SIGSTOP, SIGCONT, SIGTERM. */
  signal(signal: NodeJS.Signals): void;
  /** Default SIGKILL. Sends the signal and waits for the end. */
  kill(signal?: NodeJS.Signals): Promise<ProcessExit>;
  /** Writes to its standard input. */
  write(text: string): void;
  endInput(): void;
}

/** Output kept per stream; a runaway process must not eat the test's memory. */
const MAX_KEPT_CHARACTERS = 4_000_000;

/** A child of the child may keep the output open after the end; nobody waits longer than this for its words. */
const OUTPUT_GRACE_MS = 1_000;

let folder: ServiceFolder | undefined;
const living = new Set<ChildProcess>();

process.on('exit', () => {
  for (const child of living) child.kill('SIGKILL');
});

/** Runs a TypeScript (or JavaScript) file with this Node. */
export function startScript(
  file: string,
  args: readonly string[] = [],
  options: ProcessOptions = {},
): StartedProcess {
  const tsx = createRequire(import.meta.url).resolve('tsx');
  return startProcess(process.execPath, ['--import', tsx, file, ...args], options);
}

export function startProcess(
  command: string,
  args: readonly string[] = [],
  options: ProcessOptions = {},
): StartedProcess {
  folder ??= openServiceFolder('processes');
  const child = spawn(command, [...args], {
    cwd: options.cwd,
    env: { ...folder.environment(), ...options.env },
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  living.add(child);
  return watch(child, [command, ...args].join(' ').slice(0, 200));
}

function watch(child: ChildProcess, name: string): StartedProcess {
  const output = { stdout: '', stderr: '' };
  const listeners = new Set<() => void>();
  for (const stream of ['stdout', 'stderr'] as const) {
    child[stream]?.setEncoding('utf8').on('data', (chunk: string) => {
      output[stream] = (output[stream] + chunk).slice(-MAX_KEPT_CHARACTERS);
      for (const listener of listeners) listener();
    });
  }
  child.stdin?.on('error', () => {});
  let ended: ProcessExit | undefined;
  const exit = new Promise<ProcessExit>((resolve) => {
    const end = (result: ProcessExit): void => {
      if (ended) return;
      ended = result;
      living.delete(child);
      resolve(result);
      for (const listener of listeners) listener();
    };
    child.once('error', (error) => {
      output.stderr += error.message;
      end({ code: null, signal: null });
    });
    child.once('close', (code, signal) => end({ code, signal }));
    child.once('exit', (code, signal) => {
      setTimeout(() => end({ code, signal }), OUTPUT_GRACE_MS).unref();
    });
  });
  const story = (): string => {
    const end = ended ? `ended with ${ended.signal ?? ended.code}` : 'still runs';
    return `${name} ${end}\n--- stdout\n${output.stdout.slice(-3_000)}\n--- stderr\n${output.stderr.slice(-3_000)}`;
  };

  const waitFor = (pattern: RegExp | string, timeoutMs = 60_000): Promise<RegExpExecArray> => {
    const expression = typeof pattern === 'string' ? new RegExp(escapeForRegExp(pattern)) : pattern;
    return new Promise((resolve, reject) => {
      const finish = (act: () => void): void => {
        clearTimeout(timer);
        listeners.delete(look);
        act();
      };
      const look = (): void => {
        const match = expression.exec(output.stdout) ?? expression.exec(output.stderr);
        if (match) finish(() => resolve(match));
        else if (ended) finish(() => reject(new Error(`${pattern} never appeared: ${story()}`)));
      };
      const timer = setTimeout(
        () => finish(() => reject(new Error(`${pattern} did not appear within ${timeoutMs} ms: ${story()}`))),
        timeoutMs,
      );
      listeners.add(look);
      look();
    });
  };
  const signal = (name: NodeJS.Signals): void => void child.kill(name);

  return {
    pid: child.pid ?? -1,
    get stdout() {
      return output.stdout;
    },
    get stderr() {
      return output.stderr;
    },
    get running() {
      return ended === undefined;
    },
    ...{ exit, waitFor, signal },
    async waitForExit(timeoutMs = 90_000) {
      let timer: NodeJS.Timeout | undefined;
      const late = new Promise<never>((_, reject) => {
        timer = setTimeout(() => {
          reject(new Error(`not ended within ${timeoutMs} ms: ${story()}`));
          child.kill('SIGKILL');
        }, timeoutMs);
      });
      return Promise.race([exit, late]).finally(() => clearTimeout(timer));
    },
    kill(name = 'SIGKILL') {
      if (ended === undefined) signal(name);
      return exit;
    },
    write: (text) => void child.stdin?.write(text),
    endInput: () => void child.stdin?.end(),
  };
}

function escapeForRegExp(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
}
