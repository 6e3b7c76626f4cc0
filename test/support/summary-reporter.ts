/**
 * Prints `N passed, N failed` (and `, N skipped`) as the very last line of a run, for whoever reads only that. A file
 * that cannot be loaded, a hook that fails and an error nobody caught each count as one failure; so does a run
 * without a single test, because that is how a broken run looks.
 */
import { writeSync } from 'node:fs';
import type { Reporter, SerializedError, TestModule, TestSuite } from 'vitest/node';

interface Counts {
  passed: number;
  failed: number;
  skipped: number;
}

function countModule(module: TestModule, counts: Counts): void {
  counts.failed += module.errors().length > 0 ? 1 : 0;
  for (const suite of module.children.allSuites())
    counts.failed += (suite as TestSuite).errors().length > 0 ? 1 : 0;
  for (const test of module.children.allTests()) {
    const { state } = test.result();
    if (state === 'passed') counts.passed++;
    else if (state === 'failed') counts.failed++;
    // A test that was to run and did not (its hook failed, the run was interrupted) is no success.
    else if (state === 'pending') counts.failed++;
    else counts.skipped++;
  }
}

export default class SummaryReporter implements Reporter {
  #line = '0 passed, 1 failed';

  /** Written when the process ends: vitest and the services' teardown may print after the last test. */
  onInit(): void {
    process.once('exit', () => {
      if (!/ 0 failed/.test(this.#line) && !process.exitCode) process.exitCode = 1;
      printLast(`${this.#line}\n`);
    });
  }

  onTestRunEnd(modules: readonly TestModule[], unhandled: readonly SerializedError[]): void {
    const counts: Counts = { passed: 0, failed: unhandled.length, skipped: 0 };
    for (const module of modules) countModule(module, counts);
    if (counts.passed + counts.failed === 0) counts.failed = 1;
    const skipped = counts.skipped > 0 ? `, ${counts.skipped} skipped` : '';
    this.#line = `${counts.passed} passed, ${counts.failed} failed${skipped}`;
  }
}

/** Standard output may be a full pipe (EAGAIN) while the process is ending. */
function printLast(line: string): void {
  for (let attempt = 0; attempt < 1_000; attempt++) {
    try {
      writeSync(1, line);
      return;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') return;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5);
    }
  }
}
