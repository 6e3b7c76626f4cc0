/** In which order a claim asks for the kinds of a worker: small ones first, the others by turns. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Kinds } from '../../src/jobs/worker-kinds.js';

const kindsOf = (limits: Readonly<Record<string, number | undefined>>, concurrency: number): Kinds =>
  new Kinds(
    Object.entries(limits).map(
      ([kind, own]) => [kind, { handle: () => undefined, concurrency: own }] as const,
    ),
    new Map(),
    { concurrency, keepDone: true },
  );
const order = (kinds: Kinds): string[] => kinds.demands(0).map(({ kind }) => kind);

test('a kind whose own slots are no more than its share goes before the others, which take turns', () => {
  const kinds = kindsOf({ slow: undefined, quick: undefined, pair: 2, wide: 40 }, 50);
  const orders = Array.from({ length: 4 }, () => order(kinds));
  expect(orders.map(([first]) => first)).toEqual(Array(4).fill('pair'));
  expect(new Set(orders.map(([, second]) => second))).toEqual(new Set(['slow', 'quick', 'wide']));
});

test('what goes first leaves each of the others a share, and all but it begin in turn', () => {
  const given = fc.record({
    concurrency: fc.integer({ min: 1, max: 60 }),
    own: fc.array(fc.option(fc.integer({ min: 1, max: 60 }), { nil: undefined }), {
      minLength: 1,
      maxLength: 8,
    }),
  });
  fc.assert(
    fc.property(given, ({ concurrency, own }) => {
      const kinds = kindsOf(Object.fromEntries(own.map((limit, at) => [`k${at}`, limit])), concurrency);
      const share = concurrency / own.length;
      const small = own.filter((limit) => limit !== undefined && limit <= share) as number[];
      const others = own.length - small.length;
      expect(small.reduce((sum, limit) => sum + limit, 0)).toBeLessThanOrEqual(
        concurrency - others * share + 1e-9,
      );
      const leaders = new Set<string | undefined>();
      for (let turn = 0; turn < own.length; turn += 1) {
        const asked = kinds.demands(0);
        expect(asked).toHaveLength(own.length);
        const first = asked.slice(0, small.length).map(({ limit }) => limit);
        expect([...first].sort()).toEqual([...small].sort());
        leaders.add(asked[small.length]?.kind);
      }
      expect(leaders.size).toBe(Math.max(1, others));
    }),
  );
});
