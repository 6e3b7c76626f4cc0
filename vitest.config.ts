import { defineConfig } from 'vitest/config';

/**
 * Every test. Those of pure modules share their processes, which spares a start of Node for each file; the others, against
 * real servers that test/support starts when a test asks for one, have one each.
 */
export default defineConfig({
  test: {
    reporters: ['default', './test/support/summary-reporter.ts'],
    maxWorkers: 2,
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
