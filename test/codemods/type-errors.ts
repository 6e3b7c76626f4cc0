/**
 * The type errors of folders of sources, before or after a rewrite, found by the compiler that a caller has. Folders that
 * cannot see each other share one program: reading and relating the packages' types is what costs.
 */
import { existsSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import ts from 'typescript';
import { filesOf, REPOSITORY } from './fixture.js';

const parsed = new Map<string, ts.SourceFile | undefined>();
const COMPILER: ts.CompilerOptions = {
  target: ts.ScriptTarget.ES2022,
  module: ts.ModuleKind.Preserve,
  moduleResolution: ts.ModuleResolutionKind.Bundler,
  strict: true,
  noUncheckedIndexedAccess: true,
  noUnusedLocals: true,
  allowJs: true,
  checkJs: true,
  skipLibCheck: true,
  esModuleInterop: true,
  allowImportingTsExtensions: true,
  experimentalDecorators: true,
  jsx: ts.JsxEmit.Preserve,
  noEmit: true,
  types: ['node'],
  typeRoots: [join(REPOSITORY, 'node_modules', '@types')],
};

/** Diagnostics of the sources in a folder, one text each; `unbroker/enqueue` is this repository's own. */
export function diagnosticsOf(folder: string): string[] {
  return compile([folder], aliasesOf(folder))(folder);
}

/**
 * The same for any of `folders`. Those with path aliases, or with declarations that every file of a program sees, have a
 * program of their own, made when they are asked for.
 */
export function diagnosticsTogether(folders: readonly string[]): (folder: string) => string[] {
  const together = new Set(folders.filter((folder) => !standsAlone(folder)));
  const ask = compile([...together], {});
  return (folder) => (together.has(folder) ? ask(folder) : diagnosticsOf(folder));
}

const sourcesOf = (folder: string): [path: string, text: string][] =>
  [...filesOf(folder)].filter(([path]) => /\.[cm]?[jt]sx?$/.test(path));

/** Something in it would hold for other folders' files, too, or the other way round. */
function standsAlone(folder: string): boolean {
  return (
    existsSync(join(folder, 'tsconfig.json')) ||
    sourcesOf(folder).some(([, text]) => {
      const isModule = /^\s*(?:import|export)\b|\brequire\(|\bmodule\.exports\b|\bexports\./m.test(text);
      return !isModule || /\bdeclare (?:global|module)\b/.test(text);
    })
  );
}

function compile(folders: readonly string[], aliases: ts.CompilerOptions): (folder: string) => string[] {
  const roots = folders.flatMap((folder) => sourcesOf(folder).map(([path]) => join(folder, path)));
  const options = { ...COMPILER, ...aliases };
  const host = ts.createCompilerHost(options);
  const readSource = host.getSourceFile.bind(host);
  const isInside = (name: string): boolean => folders.some((folder) => name.startsWith(folder));
  host.getSourceFile = (name, languageVersion) => {
    if (isInside(name)) return readSource(name, languageVersion);
    if (!parsed.has(name)) parsed.set(name, readSource(name, languageVersion));
    return parsed.get(name);
  };
  const paths = {
    ...options.paths,
    'unbroker/enqueue': [join(REPOSITORY, 'src', 'enqueue.ts')],
    'unbroker/transactions': [join(REPOSITORY, 'adapters', 'transactions', 'index.ts')],
  };
  const program = ts.createProgram({ rootNames: roots, options: { ...options, paths }, host });
  return (folder) => {
    const own = program.getSourceFiles().filter(({ fileName }) => fileName.startsWith(folder));
    const found = own.flatMap((file) => [
      ...program.getSyntacticDiagnostics(file),
      ...program.getSemanticDiagnostics(file),
    ]);
    return [...program.getOptionsDiagnostics(), ...found, ...program.getGlobalDiagnostics()].map(
      (d) =>
        `${d.file === undefined ? '' : relative(folder, d.file.fileName)}: TS${d.code} ${ts.flattenDiagnosticMessageText(d.messageText, ' ')}`,
    );
  };
}

/** The path aliases of the folder's own tsconfig.json. */
function aliasesOf(folder: string): ts.CompilerOptions {
  const path = join(folder, 'tsconfig.json');
  if (!existsSync(path)) return {};
  const { config } = ts.readConfigFile(path, (name) => readFileSync(name, 'utf8')) as {
    config: { compilerOptions?: { paths?: Record<string, string[]> } };
  };
  const paths = Object.entries(config.compilerOptions?.paths ?? {}).map(
    ([k, v]) => [k, v.map((p) => join(folder, p))] as const,
  );
  return { paths: Object.fromEntries(paths) };
}

/** What is in `after` and not in `before`, counting repeats. */
export function added(before: readonly string[], after: readonly string[]): string[] {
  const left = [...before];
  return after.filter((text) => {
    const at = left.indexOf(text);
    if (at >= 0) left.splice(at, 1);
    return at < 0;
  });
}
