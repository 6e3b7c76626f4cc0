/** The text that parameters are written as, read back by Postgres: nothing is lost, whatever the text holds. */
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { plainParameters } from '../../../adapters/transactions/parameters.js';
import { type FreshDatabase, freshDatabase } from '../../support/services.js';

const storable = fc.string({ unit: 'binary' }).filter((text) => !text.includes('\0'));
const awkward = fc.constantFrom(
  '',
  ' ',
  'NULL',
  'null',
  '"',
  '\\',
  '\\"',
  '{}',
  ',',
  '{a,b}',
  "'",
  '\n',
  'ä\u{1F600}',
);

describe('plain parameters', () => {
  let database: FreshDatabase;
  beforeAll(async () => {
    database = await freshDatabase();
  });
  afterAll(() => database.close());

  const readBack = async (type: string, value: unknown): Promise<unknown> => {
    const text = `select $1::text::${type} as value`;
    const { rows } = await database.pool.query<{ value: unknown }>(text, plainParameters([value]));
    return rows[0]?.value;
  };

  it('keeps lists of any texts and nulls', async () => {
    const item = fc.option(fc.oneof(storable, awkward), { nil: null });
    await fc.assert(
      fc.asyncProperty(fc.array(item), async (list) => {
        expect(await readBack('text[]', list)).toEqual(list);
      }),
      { numRuns: 300 },
    );
  });

  it('keeps numbers, dates, booleans, bytes and lists of lists', async () => {
    const numbers = [0, -1.5, 5e-324, 1.7976931348623157e308, null];
    expect(await readBack('float8[]', numbers)).toEqual(numbers);
    const dates = [new Date('1999-12-31T23:59:59.999Z'), null, new Date(0)];
    expect(await readBack('timestamptz[]', dates)).toEqual(dates);
    expect(await readBack('timestamptz', dates[0])).toEqual(dates[0]);
    expect(await readBack('boolean[]', [true, false, null])).toEqual([true, false, null]);
    const bytes = [Buffer.from([0, 255, 34, 92]), null, Buffer.alloc(0)];
    expect(await readBack('bytea[]', bytes)).toEqual(bytes);
    expect(await readBack('bigint[]', [2n ** 63n - 1n])).toEqual(['9223372036854775807']);
    expect(
      await readBack('text[]', [
        ['a', '{'],
        [null, '"'],
      ]),
    ).toEqual([
      ['a', '{'],
      [null, '"'],
    ]);
    expect(await readBack('text[]', [])).toEqual([]);
  });

  it('passes what Postgres takes as it is, and refuses what it does not', () => {
    const bytes = Buffer.from('x');
    expect(plainParameters(['a', 1, true, bytes, null, undefined])).toEqual([
      'a',
      1,
      true,
      bytes,
      null,
      null,
    ]);
    expect(plainParameters()).toEqual([]);
    for (const value of [{}, () => 0, Symbol('x')]) expect(() => plainParameters([value])).toThrow(TypeError);
  });
});
