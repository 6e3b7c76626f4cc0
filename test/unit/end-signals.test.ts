/** Which signals end a command in order. */
import { expect, test } from 'vitest';
import { hearEnd } from '../../src/cli/end-signals.js';

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
