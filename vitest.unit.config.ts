import { defineConfig } from 'vitest/config';

/** The tests that need no server: pure modules and the rules of the house. */
export default defineConfig({
  test: {
    include: ['test/unit/**/*.test.ts'],
    reporters: ['default', './test/support/summary-reporter.ts'],
    pool: 'forks',
    maxWorkers: 2,
    isolate: false,
    testTimeout: 120_000,
    hookTimeout: 240_000,
  },
});
