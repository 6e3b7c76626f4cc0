/** What a team's own module may export, and in which form it may be written. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { loadModule, reason } from '../../src/cli/load-module.js';

const folder = mkdtempSync(join(tmpdir(), 'load-module-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const load = (name: string, text: string): Promise<unknown> => {
  writeFileSync(join(folder, name), text);
  return loadModule(join(folder, name));
};

test.each<[string, string, unknown]>([
  ['a.ts', 'const a: number = 1; export default { a }; export const b = 2;', { a: 1 }],
  ['b.cjs', 'module.exports = { a: 1 };', { a: 1 }],
  ['c.cjs', 'exports.__esModule = true; exports.default = { a: 1 };', { a: 1 }],
  ['d.cts', 'export = { a: 1 };', { a: 1 }],
  ['e.json', '{ "a": 1 }', { a: 1 }],
  ['f.mjs', 'export const a = 1;', { a: 1 }],
  ['g.mjs', 'export default Promise.resolve({ a: 1 });', { a: 1 }],
  ['h.mjs', 'export default null;', null],
  ['i.mjs', 'export default undefined;', undefined],
  ['j.mjs', '', {}],
])('%s: %s', async (name, text, exported) => {
  const loaded = await load(name, text);
  expect(typeof loaded === 'object' && loaded !== null ? { ...loaded } : loaded).toEqual(exported);
});

test.each([
  ['k.ts', `import 'not-installed-anywhere'; export default {};`, 'not-installed-anywhere'],
  ['l.ts', 'export default {', 'ParseError'],
  ['m.mjs', `throw new Error('at postgres://u:hunter2@h/d\\nand more')`, 'postgres://…@h/d'],
  ['n.mjs', 'throw null', 'null'],
])('%s says why it cannot be loaded, in one line without a password', async (name, text, said) => {
  const why = reason(await load(name, text).catch((error: unknown) => error));
  expect(why).toContain(said);
  expect(why).not.toMatch(/hunter2|\n/);
});
