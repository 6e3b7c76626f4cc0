/** The exact JSON reader: agrees with JSON.parse on everything it takes, keeps every slice, refuses the listed. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { JsonError, objectText, PRINTED_OBJECT, readJson, toPlain } from '../../src/json-text.js';

const problemOf = (text: string, limits?: { maxDepth: number; maxKeys: number }): string => {
  try {
    readJson(text, limits);
    return 'none';
  } catch (error) {
    return error instanceof JsonError ? error.problem : String(error);
  }
};

/** toPlain's objects have no prototype; compare what they say. */
const said = (value: unknown): unknown => JSON.parse(JSON.stringify(value));

describe('readJson', () => {
  it('reads what JSON.parse reads, and keeps the text', () => {
    fc.assert(
      fc.property(fc.json({ maxDepth: 8 }), (text) => {
        const padded = ` \n${text}\t`;
        const problem = problemOf(padded);
        // Duplicate keys cannot come out of fc.json; what jsonb cannot hold may.
        if (problem === 'unstorable' || problem === 'forbidden-key') return;
        expect(problem).toBe('none');
        const node = readJson(padded);
        expect(node.raw).toBe(text.trim());
        expect(said(toPlain(node))).toEqual(JSON.parse(text));
      }),
      { numRuns: 2_000 },
    );
  });

  it('agrees with JSON.parse on what is not JSON', () => {
    const broken = fc
      .json({ maxDepth: 3 })
      .chain((text) =>
        fc.tuple(
          fc.constant(text),
          fc.nat(text.length),
          fc.constantFrom('', ',', '"', '\\', '{', '}', '[', ']', ':', '0', '-', '.', 'e', '\u0001', 'x'),
        ),
      );
    fc.assert(
      fc.property(broken, ([text, at, insert]) => {
        const changed = text.slice(0, at) + insert + text.slice(at + (insert === '' ? 1 : 0));
        let valid = true;
        try {
          JSON.parse(changed);
        } catch {
          valid = false;
        }
        const problem = problemOf(changed);
        if (valid) expect(['none', 'duplicate-key', 'forbidden-key', 'unstorable']).toContain(problem);
        else expect(['syntax', 'empty', 'duplicate-key', 'forbidden-key', 'unstorable']).toContain(problem);
      }),
      { numRuns: 5_000 },
    );
  });

  it('never ends in anything but its own error, whatever comes', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 60 }), (text) => {
        expect(problemOf(text)).toMatch(/^[a-z-]+$/);
      }),
      { numRuns: 5_000 },
    );
  });

  it('gives each member the slice it was written as', () => {
    const node = readJson('{ "a" : 1.10 , "b":[ 9007199254740993,{"c":"\\u00e9"} ] }');
    expect(node.type === 'object' && node.members.get('a')?.raw).toBe('1.10');
    expect(node.type === 'object' && node.members.get('b')?.raw).toBe('[ 9007199254740993,{"c":"\\u00e9"} ]');
  });

  it.each([
    ['', 'empty'],
    [' ', 'empty'],
    ['{"a":1,"a":1}', 'duplicate-key'],
    ['{"a":1,"\\u0061":1}', 'duplicate-key'],
    ['{"__proto__":1}', 'forbidden-key'],
    ['{"constructor":{"prototype":1}}', 'forbidden-key'],
    ['{"constructor":{"name":1},"prototype":2}', 'none'],
    ['"\\u0000"', 'unstorable'],
    ['"\\ud800"', 'unstorable'],
    ['"\\ud83d\\ude00"', 'none'],
    ['-0', 'unstorable'],
    ['-0.00e7', 'unstorable'],
    ['-0.01', 'none'],
    ['1e131071', 'none'],
    ['1e131072', 'unstorable'],
    ['10e131071', 'unstorable'],
    ['1e-16383', 'none'],
    ['1e-16384', 'unstorable'],
    [`0.${'1'.repeat(16_384)}`, 'unstorable'],
    [`${'1'.repeat(131_073)}`, 'unstorable'],
    ['[1e131071,1e131071]', 'none'],
    [`[${Array.from({ length: 9 }, () => '1e131071').join()}]`, 'unstorable'],
    ['[1 2]', 'syntax'],
    ['tru', 'syntax'],
    ['nullx', 'syntax'],
  ])('%#: %s', (text, problem) => {
    expect(problemOf(text)).toBe(problem);
  });

  it('counts depth and keys to the limit and no further', () => {
    const limits = { maxDepth: 3, maxKeys: 2 };
    expect(problemOf('[[[1]]]', limits)).toBe('none');
    expect(problemOf('[[[[1]]]]', limits)).toBe('too-deep');
    expect(problemOf('[{"a":1},{"b":1}]', limits)).toBe('none');
    expect(problemOf('[{"a":1},{"b":1,"c":1}]', limits)).toBe('too-many-keys');
    expect(problemOf('['.repeat(1_000_000))).toBe('too-deep');
  });
});

describe('toPlain', () => {
  it('keeps numbers that a double cannot hold as their digits', () => {
    expect(
      said(
        toPlain(
          readJson(
            '[9007199254740991,9007199254740993,-9007199254740993,0.1,1.10,1e400,123456789012.1234567]',
          ),
        ),
      ),
    ).toEqual([
      9007199254740991,
      '9007199254740993',
      '-9007199254740993',
      0.1,
      1.1,
      '1e400',
      '123456789012.1234567',
    ]);
  });

  it('inherits nothing', () => {
    const plain = toPlain(readJson('{"a":{"toString":1}}')) as Record<string, object>;
    expect('constructor' in plain).toBe(false);
    expect('hasOwnProperty' in (plain['a'] as object)).toBe(false);
    expect('toString' in (plain['a'] as object)).toBe(true);
    expect(`${plain['a']}`).toBe(PRINTED_OBJECT);
  });
});

it('objectText puts texts together and leaves out what is not given', () => {
  expect(objectText({ a: '9007199254740993', 'b"': '"x"', c: undefined })).toBe(
    '{"a":9007199254740993,"b\\"":"x"}',
  );
});
