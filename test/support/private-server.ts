/**
 * One server process that we started: where its output goes, whether it still runs, and how it is stopped, killed,
 * paused and resumed together with its children. It refuses to know what kind of server it is and when it is ready.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, existsSync, openSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { isRunning, signalEach, waitUntilGone, withDescendants } from './process-list.js';

export interface ServerCommand {
  readonly command: string;
  readonly args: readonly string[];
  readonly environment: NodeJS.ProcessEnv;
  readonly cwd: string;
  readonly logFile: string;
  /** The account to run under; ours when absent. */
  readonly account?: { readonly uid: number; readonly gid: number } | undefined;
}

export class PrivateServer {
  #child: ChildProcess | undefined;
  #spawnError: Error | undefined;

  constructor(readonly command: ServerCommand) {}

  /** Starts the process in its own session: Ctrl-C ends the owner, the guardian then ends the server. */
  spawn(): void {
    const { command, args, environment, cwd, logFile, account } = this.command;
    const log = openSync(logFile, 'a');
    this.#spawnError = undefined;
    this.#child = spawn(command, [...args], {
      cwd,
      env: environment,
      detached: true,
      stdio: ['ignore', log, log],
      ...(account ?? {}),
    });
    closeSync(log);
    this.#child.on('error', (error) => {
      this.#spawnError = error;
    });
    this.#child.unref();
  }

  get pid(): number | undefined {
    return this.#child?.pid;
  }

  get running(): boolean {
    return this.pid !== undefined && isRunning(this.pid);
  }

  /** Sends the signal to the server alone and waits; what does not go in time is killed with its children. */
  async stop(signal: NodeJS.Signals, withinMs: number): Promise<void> {
    if (!this.running || this.pid === undefined) return;
    const all = this.#tree();
    signalEach(this.#tree(), 'SIGCONT');
    signalEach([this.pid], signal);
    if (!(await waitUntilGone([this.pid], withinMs))) signalEach(this.#tree(), 'SIGKILL');
    await this.#allGone(all);
  }

  /** SIGKILL to the server and every child of it, as if the machine had lost power under them. */
  async kill(): Promise<void> {
    if (!this.running) return;
    const all = this.#tree();
    signalEach(all, 'SIGKILL');
    await this.#allGone(all);
  }

  /** Stops the server first, so it starts no child unseen. Established connections stay open and silent. */
  pause(): void {
    if (this.pid === undefined || !this.running) throw new Error('cannot pause: the server does not run');
    signalEach([this.pid], 'SIGSTOP');
    signalEach(this.#tree(), 'SIGSTOP');
  }

  resume(): void {
    if (this.pid === undefined || !this.running) throw new Error('cannot resume: the server does not run');
    signalEach(this.#tree(), 'SIGCONT');
  }

  /** The last `lines` of what the server wrote, for an error message. */
  logTail(lines = 8): string {
    if (this.#spawnError) return this.#spawnError.message;
    if (!existsSync(this.command.logFile)) return '(no output)';
    return readFileSync(this.command.logFile, 'utf8').trim().split('\n').slice(-lines).join('\n');
  }

  /**
   * Polls `ready` until it returns a value. Rejects as soon as the process is gone, or after `withinMs`; `ready`
   * answers null (or throws) while the server is not ready yet.
   */
  async waitUntilReady<T>(what: string, ready: () => Promise<T | null>, withinMs: number): Promise<T> {
    const deadline = Date.now() + withinMs;
    let last = '';
    const note = (error: unknown): null => {
      last = ` (${error instanceof Error ? error.message : String(error)})`;
      return null;
    };
    for (;;) {
      const value = await ready().catch(note);
      if (value !== null) return value;
      if (this.#spawnError || !this.running)
        throw new Error(`${what} ended while starting:\n${this.logTail()}`);
      if (Date.now() > deadline) {
        throw new Error(`${what} was not ready within ${withinMs} ms${last}:\n${this.logTail()}`);
      }
      await sleep(25);
    }
  }

  #tree(): number[] {
    return this.pid === undefined ? [] : withDescendants([this.pid]);
  }

  async #allGone(pids: readonly number[]): Promise<void> {
    if (await waitUntilGone(pids, 5_000)) return;
    signalEach(pids.filter(isRunning), 'SIGKILL');
    await waitUntilGone(pids, 5_000);
  }
}
