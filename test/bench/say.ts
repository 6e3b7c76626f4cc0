/** To stderr: standard output is the result's. */
export function say(line: string): void {
  process.stderr.write(`[bench] ${line}\n`);
}
