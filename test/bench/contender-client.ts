/** The bench's end of a contender's process: start it, ask it, end it. */
import { type ChildProcess, fork } from 'node:child_process';
import { createRequire } from 'node:module';
import { fileURLToPath, pathToFileURL } from 'node:url';
import type { ContenderName } from './contender.js';
import type { Command, Hello, Message } from './contender-process.js';

const MAX_ANSWER_MS = 600_000;
const script = fileURLToPath(new URL('contender-process.ts', import.meta.url));
const tsx = pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href;

export class ContenderClient {
  hello: Hello = { node: '', unfinished: '' };
  /** What the handler has seen so far. */
  handled = 0;
  /** Called at each report of `handled`. */
  onHandled: () => void = () => {};
  readonly #child: ChildProcess;
  #settle: { resolve(value: unknown): void; reject(error: Error): void } | undefined;

  private constructor(
    child: ChildProcess,
    readonly name: ContenderName,
  ) {
    this.#child = child;
    child.on('message', (message: Message) => this.#received(message));
    child.on('exit', (code, signal) => {
      this.#settle?.reject(new Error(`the process of ${name} ended (${signal ?? code})`));
    });
  }

  /** Resolves when the process has loaded its contender. `nodeArgs`: further flags, such as a profiler's. */
  static async start(
    name: ContenderName,
    node: string,
    nodeArgs: readonly string[] = [],
  ): Promise<ContenderClient> {
    const child = fork(script, [name], {
      execPath: node,
      execArgv: ['--import', tsx, ...nodeArgs],
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    });
    const client = new ContenderClient(child, name);
    client.hello = (await client.#answer()) as Hello;
    return client;
  }

  /** One command at a time. */
  async ask<T = void>(command: Command): Promise<T> {
    const answer = this.#answer();
    this.#child.send(command);
    return (await answer) as T;
  }

  /** Ends the process, which by then has nothing to lose. */
  async close(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const gone = new Promise((resolve) => this.#child.once('exit', resolve));
    this.#child.disconnect();
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), 5_000);
    await gone;
    clearTimeout(timer);
  }

  #answer(): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(
        () => this.#settle?.reject(new Error(`${this.name} did not answer in ${MAX_ANSWER_MS} ms`)),
        MAX_ANSWER_MS,
      );
      const settled = (then: () => void): void => {
        clearTimeout(timer);
        this.#settle = undefined;
        then();
      };
      this.#settle = {
        resolve: (value) => settled(() => resolve(value)),
        reject: (error) => settled(() => reject(error)),
      };
    });
  }

  #received(message: Message): void {
    if (message.type === 'handled') {
      this.handled = message.count;
      this.onHandled();
    } else if (message.type === 'answer') this.#settle?.resolve(message.value);
    else this.#settle?.reject(new Error(`${this.name}: ${message.message}`));
  }
}
