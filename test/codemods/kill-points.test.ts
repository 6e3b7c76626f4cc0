/**
 * One library of each family, killed at every answer before and after its rewrite: a callback's transaction, one that
 * is ended by hand, and a new one around autocommitted writes. All of them: `npm run -s faults -- codemod`.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  disagreeing,
  killedEverywhere,
  openPlace,
  openWorld,
  type Place,
  refusedAtCommit,
  type World,
} from './kill-points.js';

let world: World;

beforeAll(async () => {
  world = await openWorld();
});

afterAll(() => world?.close());

describe.each([
  ['pg-promise', 'callback'],
  ['kysely', 'byHand'],
  ['postgres-js', 'autocommit'],
])('%s, %s', (library, shape) => {
  let place: Place;

  beforeAll(async () => {
    place = await openPlace(library);
  });

  afterAll(() => place?.remove());

  test('before: the row and the message disagree somewhere', { timeout: 240_000 }, async () => {
    const books = await killedEverywhere(world, place, shape, `${library} before`);
    expect(books.at(-1)).toMatchObject({ killedAt: null, rows: 1, messages: 1, jobs: 0 });
    expect(disagreeing(books, 'messages')).not.toEqual([]);
  });

  test('after: the row and the job agree wherever it dies', { timeout: 240_000 }, async () => {
    place.rewrite();
    const books = await killedEverywhere(world, place, shape, `${library} after`);
    expect(books.at(-1)).toMatchObject({ killedAt: null, rows: 1, jobs: 1, messages: 0 });
    expect(books.length).toBeGreaterThan(4);
    expect(disagreeing(books, 'jobs')).toEqual([]);
    expect(books.filter((b) => b.lines !== b.rows || b.messages !== 0)).toEqual([]);
    const refused = await refusedAtCommit(world, place, shape, library);
    expect(refused).toMatchObject({ rows: 0, lines: 0, jobs: 0, messages: 0 });
  });
});
