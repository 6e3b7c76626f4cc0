/** docs/lookup/library.md against the code: whoever adds an option or an export writes it down. */
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { settingsOf } from '../../src/jobs/worker-options.js';

const root = new URL('../../', import.meta.url);
const page = readFileSync(new URL('docs/lookup/library.md', root), 'utf8');
const missing = (names: readonly string[]): string[] =>
  names.filter((name) => !new RegExp(`\\b${name}\\b`).test(page));

/** Names that the error for one that nobody knows lists. */
function known(options: object): string[] {
  try {
    settingsOf(options as never);
  } catch (error) {
    const [, names = ''] = /Options are ([^.;]*)/.exec((error as { hint: string }).hint) ?? [];
    return names.split(', ').map((name) => name.trim());
  }
  throw new Error('it was taken');
}

test('names every option of a worker and of a kind', () => {
  const db = { query: () => Promise.reject(new Error('away')) };
  const worker = known({ db, handlers: { a: () => 1 }, leaseM: 1 });
  const kind = known({ db, handlers: { a: { handle: () => 1, concurency: 1 } } });
  expect(worker).toContain('settleBatch');
  expect(kind).toContain('onDeadHead');
  expect(missing([...worker, ...kind])).toEqual([]);
});

test('names every value that the package exports', () => {
  const index = readFileSync(new URL('src/index.ts', root), 'utf8');
  const names = [...index.matchAll(/export (?!type )\{([^}]*)\}/g)]
    .flatMap(([, list = '']) => list.split(','))
    .map((name) => name.trim())
    .filter((name) => name !== '' && !name.startsWith('type '));
  expect(names).toContain('createWorker');
  expect(missing(names)).toEqual([]);
});
