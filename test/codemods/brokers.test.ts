/** The six broker libraries without their types: the same verdicts, traced by imports and annotations alone. */
import { expect, test, vi } from 'vitest';
import { readPublication } from '../../adapters/rabbitmq/publication.js';
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

test('what --target relay writes is what the relay.amqp handler reads', () => {
  const workspace = openFixture('relay');
  try {
    const read = workspace.plan().sites.map((site) => {
      if (!site.applied) return site.reason;
      const evaluate = new Function('id', 'region', 'label', `return ${site.payload}`);
      const payload: unknown = evaluate(7, 'north', Buffer.from([0, 255]));
      expect(site.kind).toBe('relay.amqp');
      const job = { id: '1', payloadText: JSON.stringify(payload), body: null, headers: {} };
      const { exchange, routingKey, body } = readPublication(job);
      return [exchange, routingKey, body.toString('latin1')];
    });
    expect(read).toEqual([
      ['parcels', 'parcel.sent.north', '{"id":7}'],
      ['', 'labels', '\u0000\u00ff'],
      'unmappable-option',
    ]);
  } finally {
    workspace.remove();
  }
});
