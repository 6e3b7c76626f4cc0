/**
 * What ends a command that runs until it is told: Ctrl-C, a supervisor's SIGTERM, and the hangup of a terminal that was closed or
 * a connection that was lost, which by default would end it in the middle of its work. What ending means is the command's.
 */

/** Answers how to hear them no more. */
export function hearEnd(interrupted: () => void, terminated: () => void = interrupted): () => void {
  let hungUp = false;
  // Once: a shell passes on its terminal's hangup, and the kernel says it again when the shell is gone. A second signal ends at once.
  const hangUp = (): void => {
    if (!hungUp) terminated();
    hungUp = true;
  };
  const heard = { SIGINT: interrupted, SIGTERM: terminated, SIGHUP: hangUp };
  const each = Object.entries(heard) as [keyof typeof heard, () => void][];
  for (const [signal, listener] of each) process.on(signal, listener);
  return () => {
    for (const [signal, listener] of each) process.off(signal, listener);
  };
}
