import { defineConfig } from 'vitest/config';

/** Every test, against real servers that test/support starts when a test asks for one. */
export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    exclude: ['test/codemods/fixtures/**', 'test/bench/**', '**/node_modules/**'],
    globalSetup: ['test/support/vitest-global-setup.ts'],
    reporters: ['default', './test/support/summary-reporter.ts'],
    pool: 'forks',
    maxWorkers: 2,
    fileParallelism: true,
    testTimeout: 120_000,
    hookTimeout: 240_000,
  },
});
