/**
 * What ends a command that runs until it is told: Ctrl-C, a supervisor's SIGTERM, and the hangup of a terminal that was closed or
 * a connection that was lost, which by default would end it in the middle of its work; and the end of the npm that started it.
 * What ending means is the command's.
 */

const PARENT_LOOK_MS = 1_000;

/** Answers how to hear them no more. */
export function hearEnd(interrupted: () => void, terminated: () => void = interrupted): () => void {
  let hungUp = false;
  let told = false;
  // Once: a shell passes on its terminal's hangup, and the kernel says it again when the shell is gone. A second signal ends at once.
  const hangUp = (): void => {
    if (!hungUp) terminated();
    hungUp = true;
  };
  const heard = { SIGINT: interrupted, SIGTERM: terminated, SIGHUP: hangUp };
  const each = Object.entries(heard).map(
    ([signal, act]) =>
      [
        signal as keyof typeof heard,
        (): void => {
          told = true;
          act();
        },
      ] as const,
  );
  for (const [signal, listener] of each) process.on(signal, listener);
  const lookNoMore = startedByNpm(process.env.npm_lifecycle_script)
    ? watchParent(() => {
        if (!told) terminated();
      })
    : undefined;
  return () => {
    lookNoMore?.();
    for (const [signal, listener] of each) process.off(signal, listener);
  };
}

/**
 * `npx unbroker work`, or a script that runs it in the foreground. A SIGTERM to that npm ends npm and its shell at once and
 * reaches nobody else: the worker went on without a parent, beside the one that its supervisor started next.
 */
export function startedByNpm(script: string | undefined): boolean {
  if (script === undefined || !/(^|[\s'"/;&|])unbroker['"]?(\s|$)/.test(script)) return false;
  const inBackground = /(^|[^&>])&([^&>]|$)|\b(nohup|setsid|disown)\b/.test(script);
  return !inBackground;
}

/** Acts once, at the second look that finds the parent gone: a signal to all of the group has been heard by then. */
function watchParent(gone: () => void): () => void {
  const parent = process.ppid;
  let looks = 0;
  const timer = setInterval(() => {
    looks = process.ppid === parent ? 0 : looks + 1;
    if (looks < 2) return;
    clearInterval(timer);
    gone();
  }, PARENT_LOOK_MS);
  timer.unref();
  return () => clearInterval(timer);
}
