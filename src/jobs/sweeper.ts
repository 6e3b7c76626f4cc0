/** Does something bounded over and over: after a pause, or while there is more of it for half of the time. */

export interface SweeperOptions {
  /** True: there is more. */
  readonly sweep: () => Promise<boolean>;
  readonly everyMs: number;
  readonly onError: (error: unknown) => void;
}

export class Sweeper {
  readonly #options: SweeperOptions;
  #timer: NodeJS.Timeout | undefined;
  #stopped = false;

  constructor(options: SweeperOptions) {
    this.#options = options;
  }

  /** The first one at once, or after `firstMs`. */
  start(firstMs = 0): void {
    if (firstMs === 0) void this.#turn();
    else this.#timer = setTimeout(() => void this.#turn(), firstMs);
  }

  /** One that is under way ends by itself. */
  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }

  async #turn(): Promise<void> {
    const { sweep, everyMs, onError } = this.#options;
    const startAt = performance.now();
    // By a quarter more or less, so that many processes do not sweep at once.
    let waitMs = everyMs * (0.875 + Math.random() / 4);
    try {
      if (await sweep()) waitMs = performance.now() - startAt;
    } catch (error) {
      onError(error);
    }
    if (!this.#stopped) this.#timer = setTimeout(() => void this.#turn(), waitMs);
  }
}
