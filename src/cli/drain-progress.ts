/**
 * Progress of a drain on stderr: a bar that rewrites itself on a terminal, otherwise a line every few seconds. It
 * decides nothing; a slow terminal drops updates, never messages.
 */
import type { DrainProgress } from '../../adapters/rabbitmq/drain.js';
import { columnsOf } from './output.js';
import { printable } from './printable.js';

const REDRAW_MS = 200;
const LINE_MS = 5_000;
const BAR_WIDTH = { min: 6, max: 24 };
/** The rate is taken over this much of the recent past. */
const RATE_WINDOW_MS = 5_000;

export interface ProgressLine {
  update(progress: DrainProgress): void;
  /** Leaves the last state standing. */
  end(): void;
}

export function createProgress(group: string, quiet: boolean): ProgressLine {
  const terminal = process.stderr.isTTY === true;
  const everyMs = terminal ? REDRAW_MS : LINE_MS;
  const samples: { readonly at: number; readonly taken: number }[] = [];
  let last: DrainProgress | undefined;
  let drawnAt = Number.NEGATIVE_INFINITY;

  const draw = (): void => {
    if (last === undefined || quiet) return;
    // A line that wraps cannot be rewritten.
    const columns = columnsOf(process.stderr);
    const line = describe(group, last, rateOf(samples), columns === undefined ? undefined : columns - 1);
    process.stderr.write(terminal ? `\r\u001b[K${line}` : `${line}\n`);
    drawnAt = performance.now();
  };
  return {
    update(progress) {
      last = progress;
      const at = performance.now();
      samples.push({ at, taken: progress.taken });
      while (samples.length > 2 && at - (samples[0]?.at ?? at) > RATE_WINDOW_MS) samples.shift();
      if (at - drawnAt >= everyMs) draw();
    },
    end() {
      draw();
      if (terminal && last !== undefined && !quiet) process.stderr.write('\n');
    },
  };
}

/** Messages per second over the samples; null while there is nothing to say. */
function rateOf(samples: readonly { readonly at: number; readonly taken: number }[]): number | null {
  const first = samples[0];
  const last = samples.at(-1);
  if (first === undefined || last === undefined || last.at - first.at < 100) return null;
  return ((last.taken - first.taken) / (last.at - first.at)) * 1_000;
}

/** `width` in columns; the bar gives way first. */
export function describe(
  group: string,
  { taken, initial }: DrainProgress,
  rate: number | null,
  width = Number.POSITIVE_INFINITY,
): string {
  const share = initial === 0 ? 1 : Math.min(1, taken / initial);
  const speed = rate === null ? '' : ` ${Math.round(rate)}/s`;
  const left = rate === null || rate < 1 ? '' : `, ${duration((initial - taken) / rate)} left`;
  const counts = `${taken}/${initial} ${Math.floor(share * 100)}%${speed}${left}`;
  const name = printable(group);
  const room = width - name.length - counts.length - ' [] '.length;
  const bar = Math.max(BAR_WIDTH.min, Math.min(BAR_WIDTH.max, room));
  const filled = Math.round(share * bar);
  const line = `${name} [${'#'.repeat(filled)}${'.'.repeat(bar - filled)}] ${counts}`;
  return line.length > width ? line.slice(-width) : line;
}

function duration(seconds: number): string {
  const whole = Math.max(0, Math.ceil(seconds));
  if (whole < 60) return `${whole}s`;
  if (whole < 3_600) return `${Math.floor(whole / 60)}m${String(whole % 60).padStart(2, '0')}s`;
  return `${Math.floor(whole / 3_600)}h${String(Math.floor((whole % 3_600) / 60)).padStart(2, '0')}m`;
}
