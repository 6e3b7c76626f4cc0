/** Whole numbers that come as options. */
import { expect, test } from 'vitest';
import { wholeOption } from '../../src/cli/whole-option.js';

test.each([
  ['1', 1],
  ['1000', 1_000],
  ['007', 7],
])('%s is within 1 and 1,000', (text, number) => {
  expect(wholeOption(text, '--limit', 1, 1_000)).toBe(number);
});

test.each([
  '0',
  '1001',
  '-1',
  '',
  ' 1',
  '1 ',
  '1e2',
  '1.5',
  '0x10',
  '+1',
  'ten',
  '99999999999999999999',
  '１',
])('%j is none, and what it must be is said', (text) => {
  expect(() => wholeOption(text, '--limit', 1, 1_000)).toThrow(
    expect.objectContaining({
      code: 'config-invalid',
      message: expect.stringContaining('--limit is not valid'),
      hint: 'It must be a whole number from 1 to 1000.',
    }),
  );
});

test('below zero where that is allowed; no zero has a sign', () => {
  expect(wholeOption('-5', '--priority', -10, 10)).toBe(-5);
  expect(() => wholeOption('-0', '--port', 0, 65_535)).toThrow('--port is not valid');
});
