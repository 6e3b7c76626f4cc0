/** Which signals end a command in order. */
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { hearEnd, startedByNpm } from '../../src/cli/end-signals.js';

test('Ctrl-C interrupts; a supervisor and a hangup terminate; afterwards nobody hears', () => {
  const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
  const before = signals.map((signal) => process.listenerCount(signal));
  const heard: string[] = [];
  const hearNoMore = hearEnd(
    () => heard.push('interrupted'),
    () => heard.push('terminated'),
  );
  // Ours alone: those of whoever runs the test would end it.
  for (const signal of signals) process.listeners(signal).at(-1)?.(signal);
  expect(heard).toEqual(['interrupted', 'terminated', 'terminated']);
  hearNoMore();
  expect(signals.map((signal) => process.listenerCount(signal))).toEqual(before);
});

test('a hangup is told twice, by the shell and by the kernel, and ends it in order all the same', () => {
  const heard: string[] = [];
  const hearNoMore = hearEnd(() => heard.push('ended'));
  const listener = process.listeners('SIGHUP').at(-1);
  listener?.('SIGHUP');
  listener?.('SIGHUP');
  expect(heard).toEqual(['ended']);
  hearNoMore();
});

test.each([
  [undefined, false],
  ["'unbroker' work", true],
  ['unbroker work --concurrency 5 2>&1', true],
  ['npm run -s build && unbroker serve', true],
  ['./node_modules/.bin/unbroker work', true],
  ['unbroker work > log 2>&1 &', false],
  ['nohup unbroker work', false],
  ['vitest run', false],
  ['node unbroker-worker.js', false],
])('a script of npm (%s) has the command in its foreground: %s', (script, is) => {
  expect(startedByNpm(script)).toBe(is);
});

describe('started by npm', () => {
  const parent = process.ppid;
  beforeEach(() => {
    vi.useFakeTimers();
    vi.stubEnv('npm_lifecycle_script', "'unbroker' work");
  });
  afterEach(() => {
    vi.useRealTimers();
    vi.unstubAllEnvs();
    vi.restoreAllMocks();
  });
  const parentIs = (pid: number) => vi.spyOn(process, 'ppid', 'get').mockReturnValue(pid);

  test('it is terminated when npm is gone, once', () => {
    const heard: string[] = [];
    parentIs(parent);
    const hearNoMore = hearEnd(
      () => heard.push('interrupted'),
      () => heard.push('terminated'),
    );
    vi.advanceTimersByTime(10_000);
    expect(heard).toEqual([]);
    parentIs(1);
    vi.advanceTimersByTime(10_000);
    expect(heard).toEqual(['terminated']);
    hearNoMore();
  });

  test('a signal to all of the group is no second one', () => {
    const heard: string[] = [];
    parentIs(parent);
    const hearNoMore = hearEnd(() => heard.push('told'));
    parentIs(1);
    vi.advanceTimersByTime(1_000);
    process.listeners('SIGTERM').at(-1)?.('SIGTERM');
    vi.advanceTimersByTime(10_000);
    expect(heard).toEqual(['told']);
    hearNoMore();
    expect(vi.getTimerCount()).toBe(0);
  });
});
