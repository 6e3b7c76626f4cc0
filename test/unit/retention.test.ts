/** Which finished rows may go, whatever the mixture of kinds, and wherever a walk is cut into steps. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { checkConfig } from '../../src/config.js';
import { type FinishedRow, KeepRules, type Retention, RetentionWalk } from '../../src/jobs/retention.js';
import { checkRetention } from '../../src/jobs/worker-options.js';

const row = (id: number, kind: string, ageMs: number, state: FinishedRow['state'] = 'done'): FinishedRow => ({
  id: String(id),
  kind,
  state,
  ageMs,
  finishedAtText: `t-${ageMs}`,
});

const idsOf = (walk: RetentionWalk, rows: readonly FinishedRow[]): string[] =>
  walk.take(rows).map(({ id }) => id);

test('the newest of each kind stay, dead ones go by age alone', () => {
  const rules = new KeepRules({
    default: { maxAgeMs: 100 },
    kinds: { few: { maxCount: 1, maxAgeMs: undefined }, long: { maxAgeMs: 1_000 } },
  });
  expect(rules).toMatchObject({ minAgeMs: 0, counts: true, agesMs: [100, 1_000] });
  const walk = new RetentionWalk(rules);
  expect(
    idsOf(walk, [
      row(1, 'few', 10),
      row(2, 'few', 11, 'dead'),
      row(3, 'few', 12),
      row(4, 'other', 13),
      row(5, 'few', 101, 'dead'),
      row(6, 'long', 102),
      row(7, 'other', 103),
      row(8, 'long', 1_001),
    ]),
  ).toEqual(['3', '5', '7', '8']);
  expect(walk.position).toMatchObject({ id: '8' });
});

test('by any mixture and in any steps: exactly the newest maxCount of a kind stay', () => {
  const rows = fc.array(fc.constantFrom('a', 'b', 'c'), { maxLength: 60 });
  fc.assert(
    fc.property(rows, fc.integer({ min: 0, max: 9 }), fc.integer({ min: 1, max: 20 }), (kinds, max, step) => {
      const all = kinds.map((kind, at) => row(at, kind, at));
      const walk = new RetentionWalk(new KeepRules({ kinds: { a: { maxCount: max }, b: { maxAgeMs: 30 } } }));
      const gone = new Set<string>();
      for (let at = 0; at < all.length; at += step)
        for (const id of idsOf(walk, all.slice(at, at + step))) gone.add(id);
      const stays = all.filter(({ id }) => !gone.has(id));
      const of = (list: readonly FinishedRow[], kind: string) => list.filter((each) => each.kind === kind);
      expect(of(stays, 'a')).toEqual(of(all, 'a').slice(0, max));
      expect(of(stays, 'b')).toEqual(of(all, 'b').filter(({ ageMs }) => ageMs <= 30));
      expect(of(stays, 'c')).toEqual(of(all, 'c'));
    }),
  );
});

test('an age for all is the default’s; nothing limited needs nothing; bounds hold', () => {
  expect(new KeepRules({ default: { maxAgeMs: 5 } })).toMatchObject({
    minAgeMs: 5,
    counts: false,
    agesMs: [5],
  });
  expect(new KeepRules({ kinds: { a: { maxAgeMs: 9 }, b: { maxAgeMs: 9 } } }).agesMs).toEqual([9]);
  const rules = { default: { maxAgeMs: 5 } };
  expect(checkRetention({ retention: rules })).toEqual({ retention: rules });
  expect(checkRetention({ retentionMs: 7 })).toEqual({ retention: { default: { maxAgeMs: 7 } } });
  expect(checkRetention({ retentionMs: 7, retention: rules })).toEqual({ retention: rules });
  expect(checkRetention({ retention: { kinds: { a: {} } } })).toEqual({});
  expect(checkRetention({})).toEqual({});
  expect(checkRetention({ retentionMs: 7, retention: { kinds: { a: { maxCount: 1 } } } })).toEqual({
    retention: { default: { maxAgeMs: 7 }, kinds: { a: { maxCount: 1 } } },
  });
  const bad: Retention[] = [
    { default: { maxAgeMs: -1 } },
    { kinds: { a: { maxCount: Number.NaN } } },
    { kinds: { a: { maxAgeMs: Number.POSITIVE_INFINITY } } },
  ];
  for (const retention of bad) expect(() => checkRetention({ retention })).toThrow(/out of range/);
});

test('the config takes it, and nothing like it', () => {
  const retention = { default: { maxAgeMs: 1 }, kinds: { 'page.view': { maxCount: 5 } } };
  expect(checkConfig({ worker: { retention } }).worker?.retention).toEqual(retention);
  expect(() => checkConfig({ worker: { retention: { kind: {} } } })).toThrow(
    /retention\.kind is not a known key/,
  );
  expect(() => checkConfig({ worker: { retention: { kinds: { a: { maxCount: -1 } } } } })).toThrow(
    /kinds\.a\.maxCount/,
  );
});
