/**
 * Loads a module of the team's own (config, handlers, contract) through jiti, since Node 20 cannot import TypeScript. Jiti
 * itself is loaded then: it took a fifth of the CPU of a start, and most commands have no use for it.
 */

/** The default export of the file at `path`, absolute. Rejects with whatever the module throws. */
export async function loadModule(path: string): Promise<unknown> {
  const { createJiti } = await import('jiti');
  return createJiti(import.meta.url, { interopDefault: true }).import(path, { default: true });
}
