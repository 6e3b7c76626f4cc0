import { defineConfig } from 'vitest/config';
import LongestFirst from './test/support/longest-first.js';

/**
 * Every test. Those of pure modules share their processes, which spares a start of Node for each file; the others, against
 * real servers that test/support starts when a test asks for one, have one each. They wait for a third of their time, so two
 * cores take three of them.
 */
export default defineConfig({
  test: {
    reporters: ['default', './test/support/summary-reporter.ts'],
    maxWorkers: 3,
    sequence: { sequencer: LongestFirst },
    projects: [
      {
        extends: true,
        test: { name: 'unit', include: ['test/unit/**/*.test.ts'], isolate: false },
      },
      {
        extends: true,
        test: {
          name: 'servers',
          include: ['test/**/*.test.ts'],
          exclude: ['test/unit/**', 'test/codemods/fixtures/**', 'test/bench/**', '**/node_modules/**'],
          globalSetup: ['test/support/vitest-global-setup.ts'],
        },
      },
    ],
    pool: 'forks',
    fileParallelism: true,
    testTimeout: 120_000,
    hookTimeout: 240_000,
  },
});
