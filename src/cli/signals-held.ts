/**
 * Work that a Ctrl-C must not cut in two: without a listener the default action ends the process in the middle of a
 * synchronous step. It is for work of milliseconds only, and does not say whether a signal came.
 */
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

export function signalsHeld<T>(work: () => T): T {
  const hold = (): void => undefined;
  for (const signal of SIGNALS) process.on(signal, hold);
  try {
    return work();
  } finally {
    for (const signal of SIGNALS) process.off(signal, hold);
  }
}
