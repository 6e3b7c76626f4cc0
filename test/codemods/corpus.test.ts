/**
 * The public call sites that the codemods were designed from (D: a site, N: a look-alike), each rebuilt as a small
 * fixture: where it stands, and what is said of it. Fixtures assert their verdicts; this asserts that none of these is lost.
 */
import { existsSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

interface Expected {
  readonly sites: readonly string[];
}

const corpus = JSON.parse(readFileSync(new URL('corpus.json', import.meta.url), 'utf8')) as Record<
  string,
  readonly [place: string, verdict: string]
>;

test.each(Object.entries(corpus))('%s', (_, [place, verdict]) => {
  const [fixture = '', ...rest] = place.split('/');
  const folder = new URL(`fixtures/${fixture}/`, import.meta.url);
  const { sites } = JSON.parse(readFileSync(new URL('expect.json', folder), 'utf8')) as Expected;
  const file = rest.join('/').replace(/:\d+$/, '');
  expect(existsSync(new URL(`input/${file}`, folder))).toBe(true);
  if (verdict === 'untouched') expect(sites.filter((s) => s.startsWith(`${file}:`))).toEqual([]);
  else expect(sites).toContain(`${rest.join('/')} ${verdict}`);
});
