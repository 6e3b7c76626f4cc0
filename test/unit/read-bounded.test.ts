/** Files that are named on the command line: whole up to the limit, and no device without an end. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { readBounded } from '../../src/cli/read-bounded.js';

const folder = mkdtempSync(join(tmpdir(), 'unbroker-read-'));
afterAll(() => rmSync(folder, { recursive: true }));

test('a text as it is, with characters that lie over the end of a chunk', () => {
  const path = join(folder, 'text');
  const text = `${'x'.repeat(65_535)}é😀\n`;
  writeFileSync(path, text);
  const bytes = Buffer.byteLength(text);
  expect(readBounded(path, bytes)).toBe(text);
  expect(() => readBounded(path, bytes - 1)).toThrow(expect.objectContaining({ code: 'EFBIG' }));
});

test('a device that never ends, a folder, nothing', () => {
  expect(() => readBounded('/dev/zero', 1_000_000)).toThrow(expect.objectContaining({ code: 'EFBIG' }));
  expect(() => readBounded(folder, 10)).toThrow(expect.objectContaining({ code: 'EISDIR' }));
  expect(() => readBounded(join(folder, 'none'), 10)).toThrow(expect.objectContaining({ code: 'ENOENT' }));
});
