/**
 * One read-only TypeScript program over the candidate files. It brings its own compiler (ts-morph's) and its own
 * standard library, takes the repository's files from the texts that were read, and lets nothing outside the
 * repository in except packages. It refuses to edit: edits are text, made after every question is answered.
 */

import { existsSync, readFileSync, realpathSync, statSync } from 'node:fs';
import { dirname, join, sep } from 'node:path';
import { Project, ts } from 'ts-morph';
import { bracketDepth, FILE_LIMITS, type Sources } from './files.js';
import { classOf, packageOfPath, packageOfSpecifier } from './packages.js';
import { Workspaces } from './workspaces.js';

const OPTIONS: ts.CompilerOptions = {
  target: ts.ScriptTarget.ES2023,
  lib: ['lib.es2023.d.ts'],
  module: ts.ModuleKind.Preserve,
  moduleResolution: ts.ModuleResolutionKind.Bundler,
  allowJs: true,
  checkJs: false,
  noEmit: true,
  skipLibCheck: true,
  strict: true,
  esModuleInterop: true,
  jsx: ts.JsxEmit.Preserve,
  experimentalDecorators: true,
  allowImportingTsExtensions: true,
  types: [],
  // Packages without types stay `any`: reading their JavaScript costs time and gives guesses.
  maxNodeModuleJsDepth: 0,
};

export interface Analysis {
  readonly program: ts.Program;
  readonly checker: ts.TypeChecker;
  /** The files the program was rooted at, parsed without errors. */
  readonly roots: readonly ts.SourceFile[];
  /** Files of the repository's own that the program holds, roots included. */
  readonly own: readonly ts.SourceFile[];
  /** Known packages (brokers, databases) that the code imports and that could not be resolved. */
  readonly unresolvedPackages: readonly string[];
  /** Relative path with `/`. */
  readonly pathOf: (file: ts.SourceFile) => string;
  readonly isTest: (file: ts.SourceFile) => boolean;
}

/** Makes programs over one repository; parsed files are kept between rounds. */
export class ProgramMaker {
  private readonly parsed = new Map<string, ts.SourceFile | undefined>();
  private readonly resolutions = new Map<string, Resolution>();
  private readonly unresolved = new Set<string>();
  private readonly root: string;
  private readonly workspaces: Workspaces;
  private previous: ts.Program | undefined;

  constructor(
    private readonly sources: Sources,
    /** false: packages are not looked up at all; fast, and everything from them is traced by its import. */
    private readonly types: boolean,
    /** `rows[0]` may be undefined. */
    private readonly checkedIndexes = false,
  ) {
    this.root = sources.root;
    this.workspaces = new Workspaces(sources.root, sources.files);
    for (const lib of standardLibrary()) this.parsed.set(lib.fileName, lib);
  }

  make(paths: readonly string[]): Analysis {
    const rootNames = paths.map((path) => join(this.root, path));
    const program = ts.createProgram({
      rootNames,
      options: { ...OPTIONS, noUncheckedIndexedAccess: this.checkedIndexes },
      host: this.host(),
      ...(this.previous === undefined ? {} : { oldProgram: this.previous }),
    });
    this.previous = program;
    const own = program.getSourceFiles().filter((f) => this.isOwn(f.fileName));
    const wanted = new Set(rootNames);
    return {
      program,
      checker: program.getTypeChecker(),
      roots: own.filter((f) => wanted.has(f.fileName)),
      own,
      unresolvedPackages: [...this.unresolved].sort(),
      pathOf: (file) => this.relative(file.fileName),
      isTest: (file) => this.sources.isTest(this.relative(file.fileName)),
    };
  }

  /** One of the repository's files, parsed once for every use. */
  parsedFile(path: string): ts.SourceFile | undefined {
    return this.sourceFile(join(this.root, path));
  }

  private relative(path: string): string {
    return path.startsWith(this.root + sep)
      ? path
          .slice(this.root.length + 1)
          .split(sep)
          .join('/')
      : path;
  }

  private isOwn(path: string): boolean {
    return path.startsWith(this.root + sep) && !path.includes('/node_modules/') && !DECLARATION.test(path);
  }

  private host(): ts.CompilerHost {
    return {
      getSourceFile: (name) => this.sourceFile(name),
      getDefaultLibFileName: () => `${LIB_FOLDER}/lib.es2023.d.ts`,
      getDefaultLibLocation: () => LIB_FOLDER,
      getCurrentDirectory: () => this.root,
      getCanonicalFileName: (name) => name,
      useCaseSensitiveFileNames: () => true,
      getNewLine: () => '\n',
      writeFile: () => undefined,
      fileExists: (name) => this.parsed.get(name) !== undefined || isFile(name),
      readFile: (name) => this.readText(name),
      directoryExists: (name) => existsSync(name),
      realpath: (name) => realPath(name),
      resolveModuleNameLiterals: (literals, containing) =>
        literals.map((literal) => ({ resolvedModule: this.resolve(literal.text, containing) })),
    };
  }

  private sourceFile(name: string): ts.SourceFile | undefined {
    if (this.parsed.has(name)) return this.parsed.get(name);
    const shared = name.startsWith(this.root + sep) ? undefined : packageFiles.get(name);
    const text = shared === undefined ? this.readText(name) : undefined;
    const file = shared ?? (text === undefined ? undefined : parse(name, text));
    this.parsed.set(name, file);
    if (file !== undefined && !name.startsWith(this.root + sep)) packageFiles.set(name, file);
    return file;
  }

  /** The repository's files come from the texts that were read and vetted; of other files only packages' are read. */
  private readText(name: string): string | undefined {
    const known = this.sources.files.get(this.relative(name));
    if (known !== undefined) return known.text;
    if (!name.includes('/node_modules/') && !name.startsWith(this.root + sep)) return undefined;
    try {
      const text = readFileSync(name, 'utf8');
      return bracketDepth(text) > FILE_LIMITS.maxNesting ? undefined : text;
    } catch {
      return undefined;
    }
  }

  private resolve(specifier: string, containing: string): ts.ResolvedModuleFull | undefined {
    const from = this.resolutionFor(dirname(containing));
    const bare = packageOfSpecifier(specifier);
    if (bare !== undefined && !this.types && from.options.paths === undefined) {
      const source = this.workspaces.resolve(specifier);
      return source === undefined ? this.miss(bare, containing) : ownModule(join(this.root, source));
    }
    const host = {
      ...ts.sys,
      fileExists: isFile,
      readFile: (n: string) => this.readText(n),
      realpath: realPath,
    };
    const found = ts.resolveModuleName(specifier, containing, from.options, host, from.cache).resolvedModule;
    // Built declarations of the repository's own packages say nothing about what their functions do.
    if (
      bare !== undefined &&
      this.sources.files.get(this.relative(found?.resolvedFileName ?? '')) === undefined
    ) {
      const source = this.workspaces.resolve(specifier);
      if (source !== undefined) return ownModule(join(this.root, source));
    }
    if (found === undefined) return this.miss(bare, containing);
    if (found.resolvedFileName.includes('/node_modules/')) {
      if (!this.types) return this.miss(bare, containing);
      if (/\.[cm]?js$/.test(found.resolvedFileName)) return this.miss(bare, containing);
      return found;
    }
    return found.resolvedFileName.startsWith(this.root + sep) ? found : undefined;
  }

  private miss(pkg: string | undefined, containing: string): undefined {
    const known = pkg !== undefined ? classOf(pkg) : undefined;
    if (
      pkg !== undefined &&
      known !== undefined &&
      known !== 'transport' &&
      packageOfPath(containing) === undefined
    ) {
      this.unresolved.add(pkg);
    }
    return undefined;
  }

  /** Path aliases of the nearest tsconfig.json or jsconfig.json, so that a monorepo resolves package by package. */
  private resolutionFor(directory: string): Resolution {
    const known = this.resolutions.get(directory);
    if (known !== undefined) return known;
    const config = configIn(directory);
    const inside = directory.startsWith(this.root + sep);
    const made =
      config !== undefined && !directory.includes('/node_modules/')
        ? newResolution(this.root, config)
        : inside
          ? this.resolutionFor(dirname(directory))
          : newResolution(this.root, undefined);
    this.resolutions.set(directory, made);
    return made;
  }
}

function ownModule(path: string): ts.ResolvedModuleFull {
  const extension = /\.[cm]?[jt]sx?$/.exec(path)?.[0] ?? ts.Extension.Ts;
  return { resolvedFileName: path, extension: extension as ts.Extension, isExternalLibraryImport: false };
}

interface Resolution {
  readonly options: ts.CompilerOptions;
  readonly cache: ts.ModuleResolutionCache;
}

function newResolution(root: string, config: string | undefined): Resolution {
  const options = config === undefined ? OPTIONS : { ...OPTIONS, ...pathAliases(config) };
  return { options, cache: ts.createModuleResolutionCache(root, (n) => n, options) };
}

/**
 * Whether the compiler of a directory holds `rows[0]` for something that may be undefined: by the nearest tsconfig.json or
 * jsconfig.json up to the root. Where there is none nobody's compiler objects, and what may be missing may be.
 */
export function checksIndexes(root: string, directory: string): boolean {
  for (let at = directory; ; at = dirname(at)) {
    const config = configIn(at);
    if (config !== undefined) return compilerOptions(config).noUncheckedIndexedAccess === true;
    if (at === root || !at.startsWith(root + sep)) return true;
  }
}

function configIn(directory: string): string | undefined {
  return ['tsconfig.json', 'jsconfig.json'].map((n) => join(directory, n)).find(isFile);
}

function pathAliases(config: string): ts.CompilerOptions {
  const { baseUrl, paths, pathsBasePath } = compilerOptions(config);
  if (paths === undefined && baseUrl === undefined) return {};
  return {
    ...(baseUrl === undefined ? {} : { baseUrl }),
    ...(paths === undefined ? {} : { paths }),
    ...(pathsBasePath === undefined ? {} : { pathsBasePath }),
  };
}

/** What it extends counts; no file but these is read. */
function compilerOptions(config: string): ts.CompilerOptions {
  const read = ts.readConfigFile(config, (name) => readFileSync(name, 'utf8'));
  if (read.config === undefined) return {};
  const host: ts.ParseConfigHost = {
    useCaseSensitiveFileNames: true,
    readDirectory: () => [],
    fileExists: isFile,
    readFile: (name) => (isFile(name) ? readFileSync(name, 'utf8') : undefined),
  };
  return ts.parseJsonConfigFileContent(read.config, host, dirname(config)).options;
}

/** Parses alone, without types. A text that overflows the parser's stack gives undefined. */
export function parse(name: string, text: string): ts.SourceFile | undefined {
  try {
    return ts.createSourceFile(
      name,
      text,
      { languageVersion: ts.ScriptTarget.ES2023, jsDocParsingMode: ts.JSDocParsingMode.ParseForTypeErrors },
      true,
    );
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}

/** Declarations of packages outside the root, parsed once a process: many roots may link to one store. */
const packageFiles = new Map<string, ts.SourceFile>();

let library: { readonly folder: string; readonly files: readonly ts.SourceFile[] } | undefined;
const DECLARATION = /\.d\.[cm]?ts$/;
const LIB_FOLDER = '/node_modules/typescript/lib';

/** ts-morph carries the standard library inside; a throw-away project is the public way to its parsed files. */
function standardLibrary(): readonly ts.SourceFile[] {
  if (library === undefined) {
    const project = new Project({
      useInMemoryFileSystem: true,
      compilerOptions: { lib: ['lib.es2023.d.ts'], target: ts.ScriptTarget.ES2023 },
    });
    project.createSourceFile('/empty.ts', '');
    const files = project
      .getProgram()
      .compilerObject.getSourceFiles()
      .filter((f) => f.fileName.startsWith(LIB_FOLDER));
    library = { folder: LIB_FOLDER, files };
  }
  return library.files;
}

function isFile(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isFile() ?? false;
}

function realPath(path: string): string {
  try {
    return realpathSync.native(path);
  } catch {
    return path;
  }
}
