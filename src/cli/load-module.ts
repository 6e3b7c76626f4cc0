/**
 * Loads a module of the team's own (config, handlers, contract) through jiti, since Node 20 cannot import TypeScript. Jiti
 * itself is loaded then: it took a fifth of the CPU of a start, and most commands have no use for it.
 */

import { printable, withoutSecrets } from './printable.js';

/**
 * The default export of the file at `path`, absolute; without one all that it exports. Rejects with whatever the module
 * throws.
 */
export async function loadModule(path: string): Promise<unknown> {
  const { createJiti } = await import('jiti');
  // Jiti's own way to the default export fails on null, with an error of its own.
  const loaded = await createJiti(import.meta.url, { interopDefault: false }).import(path);
  const exported = await defaultOf(loaded);
  // A module that was compiled to CommonJS has it one deeper.
  return isObject(exported) && exported['__esModule'] === true ? defaultOf(exported) : exported;
}

const defaultOf = (value: unknown): unknown =>
  isObject(value) && 'default' in value ? value['default'] : value;

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null;

/** First line of what the loader said, shortened: it names the file, the syntax error or the import that is missing. */
export function reason(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  return printable(withoutSecrets(text.split('\n')[0] ?? ''))
    .trim()
    .slice(0, 160);
}
