/** Text for a terminal: nothing steers it, no credential is in it. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { holdsPassword, printable, withoutSecrets } from '../../src/cli/printable.js';

test('control, escape and direction characters become visible, everything else stays', () => {
  expect(printable('a\u001b[31m\r\n\u0000\u202e é😀')).toBe('a\\u001b[31m\\u000d\\u000a\\u0000\\u202e é😀');
  fc.assert(
    fc.property(fc.string({ unit: 'binary' }), (text) => {
      // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what must not be there
      expect(printable(text)).not.toMatch(/[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]/);
    }),
  );
});

test.each([
  ['postgres://u:secret@h/d failed', 'postgres://…@h/d failed'],
  ['amqp://u:sec@ret/x@h', 'amqp://…@h'],
  ['"postgresql://secret@h"', '"postgresql://…@h"'],
  ['host=h password=secret user=u', 'host=h password=… user=u'],
  ['?sslmode=x&password=secret&y=1', '?sslmode=x&password=…&y=1'],
  ['token: secret.', 'token: …'],
  ['write postgres://user:password@host:5432/name', 'write postgres://user:password@host:5432/name'],
  ['https://example.com/path', 'https://example.com/path'],
  ['mail to a@example.com', 'mail to a@example.com'],
])('%s', (text, expected) => {
  expect(withoutSecrets(text)).toBe(expected);
});

test('long arguments cost no more than they are long', () => {
  const before = process.cpuUsage();
  for (const text of ['x'.repeat(200_000), 'a://'.repeat(2_000), 'a://b:'.repeat(2_000)]) {
    expect([holdsPassword(text), withoutSecrets(text)]).toEqual([false, text]);
  }
  const { user } = process.cpuUsage(before);
  // A tenth of a second as it is, minutes where a text was looked through anew from each of its letters.
  expect(user).toBeLessThan(20_000_000);
});

test.each([
  ['postgres://u:p@h', true],
  ['--url=amqps://u:p%40@h/v', true],
  ['postgres://u@h', false],
  ['http://[::1]:80/x', false],
  ['a@b:c', false],
  ['src/**/*.ts', false],
])('%s holds a password: %s', (argument, expected) => {
  expect(holdsPassword(argument)).toBe(expected);
});
