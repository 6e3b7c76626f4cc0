/** Tables on terminals of any width: nothing is wider than the terminal, and nothing is lost. */
import { describe, expect, test } from 'vitest';
import { table } from '../../src/cli/output.js';

const HEAD = ['id', 'kind', 'state', 'attempts', 'run at', 'source', 'last error'];
const ROW = [
  ...['4711', 'notify.email', 'ready', '1/20', new Date('2026-11-30T10:22:05.123Z')],
  ...['rabbitmq:%2f/notification.work.email#1', 'Error'],
];
const widest = (text: string): number => Math.max(...text.split('\n').map((line) => [...line].length));

describe('a table', () => {
  test('into a pipe is as wide as it gets, one line a row', () => {
    const lines = table(HEAD, [ROW, ROW], undefined).split('\n');
    expect(lines).toHaveLength(6);
    expect(lines[3]).toContain('2026-11-30T10:22:05.123Z');
    expect(lines[3]).toContain('rabbitmq:%2f/notification.work.email#1');
  });

  test('on a terminal that is wide enough is the same', () => {
    expect(table(HEAD, [ROW], 200)).toBe(table(HEAD, [ROW], undefined));
  });

  test.each([120, 100, 96])('at %i columns has cells of several lines, cut where words end', (width) => {
    const text = table(HEAD, [ROW, ROW], width);
    expect(widest(text)).toBeLessThanOrEqual(width);
    expect(text).toContain('┌');
    const inColumn = (at: number): string =>
      text
        .split('\n')
        .filter((line) => line.startsWith('│'))
        .map((line) => line.split('│')[at + 1]?.trim())
        .join('');
    expect(inColumn(1)).toBe(`kind${'notify.email'.repeat(2)}`);
    expect(inColumn(5)).toBe(`source${'rabbitmq:%2f/notification.work.email#1'.repeat(2)}`);
  });

  test('parts its rows by lines only where the first cell has several', () => {
    const lines = (first: string): number =>
      table(
        ['a', 'b'],
        [
          [first, 'x '.repeat(20)],
          ['z', 'y'],
        ],
        30,
      ).match(/├/g)?.length ?? 0;
    expect([lines('one'), lines('one-two-three-four-five')]).toEqual([1, 2]);
  });

  test.each([60, 20, 1])('at %i columns, where no word would fit, is a block a row', (width) => {
    const text = table(HEAD, [ROW, ROW], width);
    expect(text.split('\n\n')).toHaveLength(2);
    expect(text).toMatch(/[^\n]\n$/);
    expect(text.split('\n').slice(0, 5)).toEqual([
      'id          4711',
      'kind        notify.email',
      'state       ready',
      'attempts    1/20',
      'run at      2026-11-30T10:22:05.123Z',
    ]);
  });

  test('shows no column that a row leaves empty in its block, and no row as nothing', () => {
    expect(table(['a', 'b'], [['x'.repeat(30), null]], 20)).toBe(`a  ${'x'.repeat(30)}\n`);
    expect(table(['aaaaaaaaaaaa', 'bbbbbbbbbbbb'], [], 20)).toBe('');
  });

  test('cannot steer the terminal, at any width', () => {
    for (const width of [undefined, 40, 10])
      expect(table(['a'], [['\u001b[2J']], width)).not.toContain('\u001b');
  });
});
