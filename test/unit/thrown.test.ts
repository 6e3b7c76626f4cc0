/** What is told of something that was thrown, whatever it is: the log's part without a message, the row's with its causes. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { UnbrokerError } from '../../src/errors.js';
import { errorFields, messageOf, placeOf } from '../../src/thrown.js';

const MAX = 2_000;
const SECRET = 'card 4111';

const chain = (length: number): Error =>
  Array.from({ length }).reduce<Error>(
    (cause, _, at) => new Error(`level ${length - at}`, { cause }),
    new Error('root'),
  );

function cyclic(): Error {
  const first = new Error('first');
  const second = new Error('second', { cause: first });
  first.cause = second;
  return first;
}

const throwing = (name: string): Error =>
  Object.defineProperty(new Error('x'), name, {
    get: () => {
      throw new Error(SECRET);
    },
  });

const hostile = new Proxy(
  {},
  {
    get: () => {
      throw new Error(SECRET);
    },
    getPrototypeOf: () => {
      throw new Error(SECRET);
    },
    ownKeys: () => {
      throw new Error(SECRET);
    },
  },
);
const revoked = Proxy.revocable({}, {});
revoked.revoke();

describe('the message with its causes', () => {
  test.each<[string, unknown, string | undefined]>([
    ['an error alone', new Error('no'), 'no'],
    ['a cause', new Error('charge failed', { cause: new TypeError('no') }), 'charge failed: no'],
    ['a cause that is a text', new Error('charge failed', { cause: 'no' }), 'charge failed: no'],
    ['a cause that is a number', new Error('charge failed', { cause: 7 }), 'charge failed: 7'],
    [
      'a cause without words',
      new Error('a', { cause: Object.assign(new Error(), { code: 'E1' }) }),
      'a: Error E1',
    ],
    [
      'a cause that was repeated',
      new Error('charge failed: no', { cause: new Error('no') }),
      'charge failed: no',
    ],
    [
      'what is below a cause that was repeated',
      new Error('charge failed: no', { cause: new Error('no', { cause: new Error('away') }) }),
      'charge failed: no: away',
    ],
    [
      'words that only look like it',
      new Error('nothing is here', { cause: new Error('no') }),
      'nothing is here: no',
    ],
    [
      'several at once',
      new AggregateError([new Error('a'), new Error('b'), new Error('a')], 'all failed'),
      'all failed: a; b',
    ],
    ['several at once without a word for all', new AggregateError([new Error('a'), 'b'], ''), 'a; b'],
    ['a chain of nine', chain(9), 'level 1: level 2: level 3: level 4: level 5: level 6'],
    ['a circle', cyclic(), 'first: second'],
    ['its own cause', Object.assign(new Error('self'), { cause: undefined }), 'self'],
    [
      'an object',
      { status: 500, body: SECRET },
      'a value that is not an Error was thrown: an object with status, body',
    ],
    ['an object with a message', { message: 'no', cause: new Error('away') }, 'no: away'],
    [
      'an object without a prototype',
      Object.create(null),
      'a value that is not an Error was thrown: an object',
    ],
    [
      'one of ours, with the next step',
      new UnbrokerError('x-y', 'It is old', { hint: 'Run: x.' }),
      'It is old. Run: x.',
    ],
    ['nothing', undefined, 'a value that is not an Error was thrown: undefined'],
    ['a function', () => SECRET, 'a value that is not an Error was thrown: a function'],
    ['a text', 'oops', 'oops'],
    ['a message that throws', throwing('message'), undefined],
    ['a cause that throws', throwing('cause'), 'x'],
    ['a cause that cannot be read', new Error('x', { cause: revoked.proxy }), 'x: unreadable'],
    ['a proxy that throws', hostile, undefined],
    ['a revoked proxy', revoked.proxy, undefined],
  ])('%s', (_name, error, message) => expect(messageOf(error, MAX)).toBe(message));

  test('a long message leaves room for its cause, and many causes end', () => {
    const long = messageOf(new Error('m'.repeat(5_000_000), { cause: new Error('away') }), MAX);
    expect(long).toHaveLength(MAX);
    expect(long).toMatch(/m: away$/);
    const wide = (depth: number): Error =>
      depth === 0
        ? new Error('leaf')
        : new AggregateError(
            Array.from({ length: 100 }, (_, i) => Object.assign(wide(depth - 1), { i })),
            `d${depth}`,
          );
    expect(messageOf(wide(2), MAX)?.length).toBeLessThanOrEqual(MAX);
    expect(errorFields(wide(2)).causes).toHaveLength(20);
    const ten = new AggregateError(
      Array.from({ length: 30 }, (_, i) => new Error(`e${i}`)),
      'all',
    );
    expect(messageOf(ten, MAX)).toBe('all: e0; e1; e2; e3; e4; e5; e6; e7; e8; e9');
  });
});

describe('what a log hears', () => {
  test('classes and codes down to the fifth cause, and no word', () => {
    const refused = Object.assign(new Error(SECRET), { code: 'ECONNREFUSED' });
    const both = new AggregateError(
      [refused, Object.assign(new Error(SECRET), { code: 'ENETUNREACH' })],
      SECRET,
    );
    expect(errorFields(new TypeError(SECRET, { cause: both }))).toEqual({
      error: 'TypeError',
      causes: [
        { error: 'AggregateError' },
        { error: 'Error', code: 'ECONNREFUSED' },
        { error: 'Error', code: 'ENETUNREACH' },
      ],
    });
    expect(errorFields(chain(9)).causes).toHaveLength(5);
    expect(errorFields(new Error(SECRET))).toEqual({ error: 'Error' });
  });

  test('what throws when it is read: a class, or that it has none', () => {
    const odd = ['cause', 'name', 'code', 'errors', 'stack'].map(throwing);
    for (const error of [hostile, revoked.proxy, ...odd]) {
      expect(errorFields(error)).toEqual({ error: expect.stringMatching(/^(Error|unreadable)$/) });
      expect(() => placeOf(error)).not.toThrow();
    }
  });

  test('names and codes are short, and a code that is an object is none', () => {
    const error = Object.assign(new Error('x'), { name: 'N'.repeat(5_000_000), code: { secret: SECRET } });
    expect(errorFields(error)).toEqual({ error: 'N'.repeat(100) });
    expect(errorFields({ code: 'C'.repeat(5_000_000) })).toEqual({ error: 'object', code: 'C'.repeat(100) });
  });

  test('property: nothing that is thrown makes it throw, and all of it is short', () => {
    const thrown = fc.letrec((tie) => ({
      any: fc.oneof(fc.anything({ withBigInt: true, withNullPrototype: true }), tie('error')),
      error: fc
        .tuple(
          fc.string({ unit: 'binary', maxLength: 3_000 }),
          tie('any'),
          fc.array(tie('any'), { maxLength: 12 }),
        )
        .map(([message, cause, errors]) => new AggregateError(errors, message, { cause })),
    })).any;
    fc.assert(
      fc.property(thrown, (error) => {
        expect(messageOf(error, MAX)?.length ?? 0).toBeLessThanOrEqual(MAX);
        expect(JSON.stringify(errorFields(error)).length).toBeLessThan(10_000);
        expect((placeOf(error) ?? '').length).toBeLessThanOrEqual(200);
      }),
      { numRuns: 1_000 },
    );
  });
});

describe('the place', () => {
  const withStack = (message: string, ...frames: string[]): Error =>
    Object.assign(new Error(message), {
      stack: [`Error: ${message}`, ...frames.map((frame) => `    at ${frame}`)].join('\n'),
    });
  const OWN = 'async send (file:///app/handlers.mjs:3:9)';
  const NODE = 'node:internal/deps/undici/undici:13510:13';
  const PACKAGE = 'Client.query (/app/node_modules/pg/lib/client.js:1:2)';

  test.each<[string, unknown, string | undefined]>([
    [
      'the first that is the author’s',
      withStack('m', NODE, PACKAGE, OWN, 'main (file:///app/main.mjs:1:1)'),
      OWN,
    ],
    ['a package’s, where there is no other', withStack('m', PACKAGE, NODE), PACKAGE],
    [
      'Windows',
      withStack('m', 'q (C:\\app\\node_modules\\pg\\x.js:1:2)', 'h (C:\\app\\h.js:1:2)'),
      'h (C:\\app\\h.js:1:2)',
    ],
    ['a line of the message that looks like one', withStack(`m\n    at ${SECRET}:1:1`, NODE, OWN), OWN],
    [
      'the same in a message that was changed since',
      Object.assign(withStack(`m\n    at ${SECRET}:1:1\nand so on`, OWN), { message: 'changed' }),
      OWN,
    ],
    ['no stack', 'text', undefined],
    ['a stack that is none', { stack: { at: SECRET } }, undefined],
  ])('%s', (_name, error, place) => {
    expect(placeOf(error)).toBe(place);
  });

  test('of a cause, where the error itself comes from a package', () => {
    const error = withStack('m', NODE, PACKAGE);
    error.cause = withStack('m', OWN);
    expect(placeOf(error)).toBe(OWN);
  });

  test('ours is not the author’s: what a handler called with the wrong thing', () => {
    const error = withStack(
      'm',
      `progressText (${new URL('../../src/jobs/handler.ts', import.meta.url)}:229:9)`,
      OWN,
    );
    expect(placeOf(error)).toBe(OWN);
  });

  test('a real one', () => {
    expect(placeOf(new Error('x'))).toMatch(/thrown\.test\.ts:\d+:\d+\)?$/);
  });
});
