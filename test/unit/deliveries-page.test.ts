/** The page of deliveries names a test for each line; a name that is no longer there would be a promise that nobody keeps. */
import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';

const root = new URL('../../', import.meta.url);
const page = readFileSync(new URL('docs/lookup/deliveries.md', root), 'utf8');
const named = [...page.matchAll(/\| `([\w/-]+)`: ([^|]+) \|$/gm)].map(([, file = '', name = '']) => ({
  file,
  name,
}));

test('each line names a test that is there', () => {
  expect(named.length).toBeGreaterThan(45);
  const missing = named.filter(({ file, name }) => {
    const path = fileURLToPath(new URL(`test/${file}.test.ts`, root));
    return !existsSync(path) || !readFileSync(path, 'utf8').includes(name);
  });
  expect(missing).toEqual([]);
});
