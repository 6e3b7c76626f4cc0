/**
 * What is written down of requests: each at level debug, those that were refused at info, and every few seconds how many
 * there were. A line for each success costs a third of what answering it does (measured: 60 of 200 µs), and a flood of
 * refusals must not fill a disk. No line holds a path, an address or a payload.
 */
import type { Log } from '../log.js';

export interface Answered {
  /** Of this request in this process. */
  readonly id: string;
  readonly method: string;
  /** The pattern, not the path: ids and keys in a path may be somebody's. undefined: no route. */
  readonly route: string | undefined;
  readonly status: number;
  readonly ms: number;
  readonly principal: string | undefined;
}

interface Count {
  count: number;
  maxMs: number;
}

const EVERY_MS = 10_000;
/** Lines about refused requests between two summaries; the summary counts them all. */
const MAX_REFUSALS = 100;

export class AccessLog {
  readonly #counts = new Map<string, Count>();
  readonly #timer: NodeJS.Timeout;
  #refusalsLeft = MAX_REFUSALS;

  constructor(private readonly log: Log) {
    this.#timer = setInterval(() => this.summarise(), EVERY_MS).unref();
  }

  note(answered: Answered): void {
    const { id, method, route = '(none)', status, principal } = answered;
    const ms = Math.round(answered.ms);
    const key = `${method} ${route} ${status}`;
    const known = this.#counts.get(key) ?? { count: 0, maxMs: 0 };
    known.count += 1;
    known.maxMs = Math.max(known.maxMs, ms);
    this.#counts.set(key, known);
    const refused = status >= 400 && this.#refusalsLeft > 0;
    if (refused) this.#refusalsLeft -= 1;
    this.log[refused ? 'info' : 'debug']({ request: id, method, route, status, ms, principal }, 'request');
  }

  /** Writes what was counted since the last time, if there was anything. */
  summarise(): void {
    this.#refusalsLeft = MAX_REFUSALS;
    if (this.#counts.size === 0) return;
    const requests = [...this.#counts].map(([what, { count, maxMs }]) => ({ what, count, maxMs }));
    this.#counts.clear();
    this.log.info({ requests }, 'requests');
  }

  close(): void {
    clearInterval(this.#timer);
    this.summarise();
  }
}
