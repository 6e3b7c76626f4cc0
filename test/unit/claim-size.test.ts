/** How many jobs a claim may ask for by the length of what the last ones brought. */
import { expect, test } from 'vitest';
import { ClaimPace } from '../../src/jobs/claim-pace.js';
import { claimedMany } from '../../src/jobs/claimed.js';

const MIB = 1_024 * 1_024;
const MANY = 1_000;
const demand = (kind: string, limit = MANY) => ({ kind, limit, park: false });
const job = (kind: string, length: number) => ({ kind, payloadText: 'x'.repeat(length), body: null });

/** Of a worker with 2,000 slots: claims of so many of each kind, each of which brings as many jobs of the kind's length. */
function asked(
  pace: ClaimPace,
  claims: number,
  lengths: Readonly<Record<string, number>>,
  kinds = Object.keys(lengths),
  ms = (_length: number): number => 1,
): number[] {
  return Array.from({ length: claims }, () => {
    const bounded = pace.bounded(
      pace.total(2_000, 0),
      kinds.map((kind) => demand(kind)),
    );
    let left = bounded.total;
    const brought = bounded.demands.flatMap(({ kind, limit }) => {
      const length = lengths[kind];
      const count = length === undefined ? 0 : Math.min(limit, left);
      left -= count;
      return Array.from({ length: count }, () => ({ kind, payloadText: null, body: sized(length ?? 0) }));
    });
    pace.size.broughtFew(brought, ms(brought.reduce((sum, { body }) => sum + body.length, 0)));
    return bounded.asked;
  });
}

/** As long, but not there. */
const sized = (length: number): Buffer => ({ length }) as Buffer;

test('the first claim is of a hundred, and each is of twice as many as the last while jobs are short', () => {
  expect(asked(new ClaimPace(2_000, 200), 6, { a: 20 })).toEqual([100, 200, 400, 800, 1_000, 1_000]);
});

test('after long jobs at once as many as are 16 MiB, and after short ones within a few claims a thousand', () => {
  const pace = new ClaimPace(2_000, 200);
  asked(pace, 6, { a: 20 });
  expect(asked(pace, 3, { a: MIB })).toEqual([1_000, 16, 16]);
  expect(asked(pace, 8, { a: 20 })).toEqual([16, 32, 64, 128, 256, 512, 1_000, 1_000]);
});

test('a job that is longer than all that a claim may bring comes alone', () => {
  const pace = new ClaimPace(2_000, 200);
  asked(pace, 1, { a: 40 * MIB });
  expect(asked(pace, 2, { a: 40 * MIB })).toEqual([1, 1]);
});

test('beside a kind of long jobs one of short ones keeps its places, as claims begin with each in turn', () => {
  const pace = new ClaimPace(2_000, 200);
  const lengths = { long: MIB, short: 20 };
  const turn = (): number[] => [
    ...asked(pace, 1, lengths, ['long', 'short']),
    ...asked(pace, 1, lengths, ['short', 'long']),
  ];
  expect(turn()).toEqual([100, 16]);
  for (let turns = 0; turns < 6; turns += 1) turn();
  expect(Math.min(...turn())).toBeGreaterThan(900);
  expect(pace.bounded(MANY, [demand('long'), demand('short')]).demands).toEqual([
    ...[demand('long', 16), demand('short', MANY)],
  ]);
});

test('many kinds of long jobs share one claim, and a kind that brings nothing takes nobody anything', () => {
  const pace = new ClaimPace(2_000, 200);
  const kinds = ['a', 'b', 'c', 'd'];
  const lengths = Object.fromEntries(kinds.map((kind) => [kind, MIB]));
  asked(pace, 2, lengths);
  expect(asked(pace, 2, lengths)).toEqual([16, 16]);
  expect(asked(pace, 2, { a: MIB }, kinds)).toEqual([16, 16]);
});

test('what a claim brings is told by its texts and bodies, whole or one by one', () => {
  const rows = [
    { n: 2, text: 'x'.repeat(100), body: null, token: '1' },
    { n: 1, text: 'y'.repeat(60), body: null, token: '1' },
    { n: 1, text: 'z'.repeat(40), body: Buffer.alloc(4 * MIB), token: '1' },
  ];
  const many = claimedMany(rows, ['a']);
  expect([many.count, many.length]).toEqual([4, 200 + 4 * MIB]);
  const pace = new ClaimPace(2_000, 200);
  pace.size.broughtMany(many, [demand('a')], 1);
  expect([pace.size.most, pace.size.mostOf('a')]).toEqual([15, 15]);
  pace.size.broughtFew([job('b', 4 * MIB)], 1);
  expect([pace.size.most, pace.size.mostOf('b'), pace.size.mostOf('a')]).toEqual([4, 4, 15]);
});

test('no more wait for a slot than one claim may bring', () => {
  const pace = new ClaimPace(200, 200);
  expect([pace.ahead(20), pace.ahead(400)]).toEqual([20, 100]);
  pace.size.broughtFew([job('a', MIB)], 1);
  expect(pace.ahead(400)).toBe(16);
});

test('an answer that came too late is asked for in halves, until it comes; a lost database changes nothing', () => {
  const pace = new ClaimPace(2_000, 200);
  asked(pace, 6, { a: 20 });
  pace.lost(false);
  expect(pace.bounded(MANY, [demand('a')]).asked).toBe(MANY);
  const late = Array.from({ length: 9 }, () => {
    pace.lost(true);
    return pace.bounded(MANY, [demand('a')]).asked;
  });
  expect(late).toEqual([100, 50, 25, 12, 6, 3, 1, 1, 1]);
});

test('over a slow way a claim asks for what comes within seconds, and goes on doing so', () => {
  const pace = new ClaimPace(2_000, 200);
  // A mebibyte a second.
  const ms = (length: number): number => (length / MIB) * 1_000;
  asked(pace, 20, { a: MIB }, ['a'], ms);
  for (const claim of asked(pace, 20, { a: MIB }, ['a'], ms)) {
    expect(claim).toBeGreaterThanOrEqual(1);
    expect(claim).toBeLessThanOrEqual(4);
  }
  expect(asked(pace, 12, { a: MIB }).at(-1)).toBe(16);
  const middling = new ClaimPace(2_000, 200);
  asked(middling, 6, { a: 400 });
  expect(asked(middling, 2, { a: 400 }, ['a'], () => 4_000)).toEqual([1_000, 500]);
});

test('what takes as long however few it brings is no slow way: short jobs are claimed by the hundred', () => {
  for (const length of [0, 20, 400]) {
    const pace = new ClaimPace(2_000, 200);
    expect(Math.min(...asked(pace, 50, { a: length }, ['a'], () => 5_000))).toBeGreaterThanOrEqual(100);
  }
});

test('a claim that brings nothing teaches nothing', () => {
  const pace = new ClaimPace(2_000, 200);
  pace.size.broughtFew([], 1);
  pace.size.broughtMany(
    claimedMany([{ n: 0, text: null, body: null, token: null }], ['a']),
    [demand('a')],
    1,
  );
  expect([pace.size.most, pace.size.mostOf('a')]).toEqual([100, 100]);
});
