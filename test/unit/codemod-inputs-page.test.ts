/** The page of what codemods meet names a site, a file left alone or a test for each line; all of them have to be there. */
import { existsSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

const below = new URL('../', import.meta.url);
const page = readFileSync(new URL('../docs/lookup/codemod-inputs.md', below), 'utf8');
const lines = page
  .split('\n')
  .filter((line) => line.startsWith('| ') && !/^\| (?:written|there) /.test(line));
const named = lines.flatMap((line) => {
  const [, where = '', what = ''] = /\| `([\w/-]+)`: ([^|]+) \|$/.exec(line) ?? [];
  return where === '' ? [] : [{ where, what }];
});

function isThere({ where, what }: { where: string; what: string }): boolean {
  if (where.includes('/')) {
    const file = new URL(`${where}.test.ts`, below);
    return existsSync(file) && readFileSync(file, 'utf8').includes(what);
  }
  const folder = new URL(`codemods/fixtures/${where}/`, below);
  if (!existsSync(new URL('expect.json', folder))) return false;
  const { sites } = JSON.parse(readFileSync(new URL('expect.json', folder), 'utf8')) as { sites: string[] };
  const left = /^(\S+) untouched$/.exec(what)?.[1];
  if (left === undefined) return sites.includes(what);
  return existsSync(new URL(`input/${left}`, folder)) && !sites.some((s) => s.startsWith(`${left}:`));
}

test('each line of the page is shown by something that is there', () => {
  expect(named.length).toBe(lines.length);
  expect(named.length).toBeGreaterThan(40);
  expect(named.filter((line) => !isThere(line))).toEqual([]);
});
