/** Progress of a bridge on stderr: a line that rewrites itself on a terminal, otherwise one now and then when something changed. */
import type { BridgeProgress } from '../../adapters/rabbitmq/bridge.js';
import { columnsOf } from './output.js';

const REDRAW_MS = 500;
const LINE_MS = 5_000;

export interface BridgeProgressLine {
  update(progress: BridgeProgress): void;
  /** Leaves the last state standing. Safe to call twice. */
  end(): void;
}

export function createBridgeProgress(quiet: boolean): BridgeProgressLine {
  const terminal = process.stderr.isTTY === true;
  const everyMs = terminal ? REDRAW_MS : LINE_MS;
  let last: BridgeProgress | undefined;
  let drawn = '';
  let drawnAt = Number.NEGATIVE_INFINITY;
  let before: { readonly at: number; readonly messages: number } | undefined;
  let ended = false;

  const draw = (): void => {
    if (last === undefined || quiet) return;
    const at = performance.now();
    const rate = before === undefined ? null : ((last.messages - before.messages) / (at - before.at)) * 1_000;
    before = { at, messages: last.messages };
    drawnAt = at;
    const line = describeBridge(last, rate);
    if (line === drawn) return;
    drawn = line;
    // A line that wraps cannot be rewritten.
    process.stderr.write(
      terminal ? `\r\u001b[K${line.slice(0, (columnsOf(process.stderr) ?? 200) - 1)}` : `${line}\n`,
    );
  };
  return {
    update(progress) {
      last = progress;
      if (performance.now() - drawnAt >= everyMs) draw();
    },
    end() {
      if (ended) return;
      ended = true;
      draw();
      if (terminal && last !== undefined && !quiet) process.stderr.write('\n');
    },
  };
}

export function describeBridge(now: BridgeProgress, rate: number | null): string {
  const parts = [`bridge: ${now.messages} late messages`];
  if (rate !== null && rate >= 1) parts.push(`${Math.round(rate)}/s`);
  if (now.again > 0) parts.push(`${now.again} came back and were recognised`);
  if (now.repeats > 0) parts.push(`${now.repeats} repeated`);
  if (now.otherContents > 0) parts.push(`${now.otherContents} ids with other contents`);
  if (now.possibleDoubles > 0) parts.push(`${now.possibleDoubles} could be doubles`);
  parts.push(now.connected ? 'connected' : 'not connected, trying again');
  return parts.join(', ');
}
