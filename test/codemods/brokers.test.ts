/** The six broker libraries without their types: the same verdicts, traced by imports and annotations alone. */
import { expect, test, vi } from 'vitest';
import { makePlan } from '../../codemods/index.js';
import { openFixture, verdicts } from './fixture.js';

// A compiler starts: on a loaded machine that takes its time.
vi.setConfig({ testTimeout: 120_000 });

test('verdicts do not need the installed packages', () => {
  const workspace = openFixture('broker-libraries');
  try {
    const options = {
      root: workspace.folder,
      paths: [],
      level: 'safe',
      inlineSql: false,
      todo: false,
    } as const;
    const plan = makePlan({ ...options, types: false });
    expect(verdicts(plan)).toEqual(workspace.expected.sites);
    expect(plan.degraded?.why).toContain('--no-types');
  } finally {
    workspace.remove();
  }
});
