/**
 * The rules of the house that a reader cannot see in one file: who may import whom, which dependency stays behind
 * which fence, and that every error code is documented. It reads the sources and runs nothing of them.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { builtinModules } from 'node:module';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { MIGRATION_NAMES } from '../../src/migration-names.js';
import { codesIn, importsOf } from './sources.js';

const root = fileURLToPath(new URL('../..', import.meta.url));

/** Repository path of each source to its text. */
const sources = new Map(
  ['src', 'adapters', 'codemods']
    .flatMap((folder) =>
      readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' }).map((f) => `${folder}/${f}`),
    )
    .filter((file) => file.endsWith('.ts'))
    .sort()
    .map((file) => [file, readFileSync(join(root, file), 'utf8')]),
);

interface Imports {
  /** Repository paths, ending in `.ts`. */
  readonly own: readonly string[];
  /** Package names, without a subpath. Node's own modules are not among them. */
  readonly packages: readonly string[];
  readonly node: readonly string[];
}

const imports = new Map<string, Imports>();
for (const [file, text] of sources) {
  const all = importsOf(text);
  const relatives = all.filter((name) => name.startsWith('.'));
  const bare = all.filter((name) => !name.startsWith('.'));
  const isNode = (name: string): boolean => name.startsWith('node:') || builtinModules.includes(name);
  imports.set(file, {
    own: relatives.map((name) => relative('.', join(dirname(file), name)).replace(/\.js$/, '.ts')),
    packages: bare.filter((name) => !isNode(name)).map(packageOf),
    node: bare.filter(isNode).map((name) => name.replace('node:', '')),
  });
}

function packageOf(name: string): string {
  return name
    .split('/')
    .slice(0, name.startsWith('@') ? 2 : 1)
    .join('/');
}

const importsOfFile = (file: string): Imports => imports.get(file) as Imports;

/** `file` and everything of ours that it imports, however far. */
function closure(file: string, seen = new Set<string>()): Set<string> {
  if (seen.has(file)) return seen;
  seen.add(file);
  for (const own of imports.get(file)?.own ?? []) closure(own, seen);
  return seen;
}

const LEVELS: readonly (readonly [level: number, files: RegExp])[] = [
  [0, /^src\/(errors|jobs\/job)\.ts$/],
  [
    1,
    /^src\/(check|config|json-text|jobs\/(retry|settle|schedule|zone|held|(\w+-)?statements|schema-name|text))\.ts$/,
  ],
  [1, /^adapters\/rabbitmq\/(delivery|dialects\/.+)\.ts$/],
  [2, /^src\/(migrate|log|metrics|jobs\/(\w+-)?store)\.ts$/],
  [2, /^adapters\/rabbitmq\/broker\.ts$/],
  [3, /^src\/(jobs\/(worker|upkeep)|shims\/server)\.ts$/],
  [3, /^adapters\/rabbitmq\/(survey|freeze|drain|bridge|undo)\.ts$/],
  [4, /^src\/(cli\/.+|index)\.ts$/],
];

/** Named files have their level; every other has the level that its imports give it, at least that of pure modules. */
function levelOf(file: string): number {
  const known = levels.get(file);
  if (known !== undefined) return known;
  // Of a cycle, which another test names, whoever comes back to it.
  levels.set(file, 1);
  const named = LEVELS.find(([, files]) => files.test(file));
  const level = named?.[0] ?? Math.max(1, ...(imports.get(file)?.own ?? []).map(levelOf));
  levels.set(file, level);
  return level;
}
const levels = new Map<string, number>();

describe('layers', () => {
  test.each([...sources.keys()])('%s imports nothing above it', (file) => {
    const above = importsOfFile(file).own.filter((own) => levelOf(own) > levelOf(file));
    expect(above).toEqual([]);
  });

  test('only the command line imports the command line, and nobody the public door', () => {
    const entering = (target: RegExp, allowed: RegExp) =>
      [...imports]
        .filter(([file, { own }]) => !allowed.test(file) && own.some((path) => target.test(path)))
        .map(([file]) => file);
    expect(entering(/^src\/cli\//, /^src\/cli\//)).toEqual([]);
    expect(entering(/^src\/index\.ts$/, /^$/)).toEqual([]);
  });

  test('the statements of a side are run by the store of that side, and by no other file', () => {
    const sides = [...sources.keys()].filter((file) => /^src\/jobs\/\w+-statements\.ts$/.test(file));
    const readers = sides.map((side) => [...imports].filter(([, { own }]) => own.includes(side)));
    expect(readers.map((files) => files.map(([file]) => file))).toEqual(
      sides.map((side) => [side.replace('-statements.ts', '-store.ts')]),
    );
    expect(sides).toContain('src/jobs/claim-statements.ts');
  });

  test('relative imports name a file that is there', () => {
    const missing = [...imports].flatMap(([file, { own }]) =>
      own.filter((path) => !sources.has(path) && path !== 'package.json').map((path) => `${file} -> ${path}`),
    );
    expect(missing).toEqual([]);
  });

  test('there is no import cycle', () => {
    const cycles: string[] = [];
    const done = new Set<string>();
    const visit = (file: string, path: readonly string[]): void => {
      if (path.includes(file)) {
        cycles.push([...path.slice(path.indexOf(file)), file].join(' -> '));
        return;
      }
      if (done.has(file)) return;
      for (const own of imports.get(file)?.own ?? []) visit(own, [...path, file]);
      done.add(file);
    };
    for (const file of sources.keys()) visit(file, []);
    expect(cycles).toEqual([]);
  });

  test('pure modules have no clock and no I/O', () => {
    const effects = [
      'fs',
      'fs/promises',
      'net',
      'http',
      'https',
      'dns',
      'dns/promises',
      'child_process',
      'timers/promises',
      'worker_threads',
      'process',
    ];
    const offences: string[] = [];
    for (const [file, text] of sources) {
      if (!LEVELS.some(([level, files]) => level <= 1 && files.test(file))) continue;
      const { node, packages } = importsOfFile(file);
      for (const name of node) if (effects.includes(name)) offences.push(`${file} imports node:${name}`);
      for (const name of packages) if (name !== 'croner') offences.push(`${file} imports ${name}`);
      for (const clock of [
        'Date.now(',
        'new Date()',
        'performance.now(',
        'Math.random(',
        'setTimeout(',
        'process.env',
      ]) {
        if (withoutComments(text).includes(clock)) offences.push(`${file} uses ${clock}`);
      }
    }
    expect(offences).toEqual([]);
  });

  test('codemods are an island: of ours only errors.ts, and only the command line goes there', () => {
    const bridges = [...imports].flatMap(([file, { own }]) =>
      own
        .filter((path) => {
          if (file.startsWith('codemods/')) return !path.startsWith('codemods/') && path !== 'src/errors.ts';
          return path.startsWith('codemods/') && !file.startsWith('src/cli/');
        })
        .map((path) => `${file} -> ${path}`),
    );
    expect(bridges).toEqual([]);
  });

  test('there is no drawer for odds and ends', () => {
    expect([...sources.keys()].filter((file) => /(^|\/)(utils?|types|helpers|misc)\.ts$/.test(file))).toEqual(
      [],
    );
  });
});

/** Package to the files that may import it. */
const FENCES: Readonly<Record<string, RegExp>> = {
  pg: /^src\/cli\/|^adapters\/amqplib\/pool\.ts$/,
  amqplib: /^adapters\/rabbitmq\/broker\.ts$/,
  'ts-morph': /^codemods\//,
  commander: /^src\/cli\//,
  croner: /^src\/jobs\/schedule\.ts$/,
  fastify: /^src\/shims\/server\.ts$/,
  handlebars: /^src\/notify\//,
  nodemailer: /^adapters\/providers\//,
  pino: /^src\/cli\/json-log\.ts$/,
};

describe('fences', () => {
  test.each(Object.entries(FENCES))('%s stays behind its fence', (name, allowed) => {
    const outside = [...imports].filter(
      ([file, { packages }]) => packages.includes(name) && !allowed.test(file),
    );
    expect(outside.map(([file]) => file)).toEqual([]);
  });

  test('what is imported is a dependency, not a development one', () => {
    const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
      dependencies: Record<string, string>;
    };
    const undeclared = [...imports].flatMap(([file, { packages }]) =>
      packages
        // Types of a caller's own client: erased, and the caller has the package.
        .filter((name) => !(name in manifest.dependencies) && !file.startsWith('adapters/transactions/'))
        .map((name) => `${file} imports ${name}`),
    );
    expect(undeclared).toEqual([]);
  });

  test('the enqueue client costs its caller no third-party package', () => {
    const packages = [...closure('src/enqueue.ts')].flatMap((file) => importsOfFile(file).packages);
    expect(packages).toEqual([]);
  });
});

test('the migrations that a schema is held against are those that are there, numbered without a gap', () => {
  const files = readdirSync(join(root, 'migrations')).sort();
  expect(MIGRATION_NAMES.map((name) => `${name}.sql`)).toEqual(files);
  expect(MIGRATION_NAMES.map((name) => Number(name.slice(0, 3)))).toEqual(
    MIGRATION_NAMES.map((_, i) => i + 1),
  );
});

test('pages that a message sends its reader to are there, and in the package', () => {
  const named = [...sources].flatMap(([file, text]) =>
    [...withoutComments(text).matchAll(/\bdocs\/[a-z]+\/[a-z-]+\.md\b/g)].map(([page]) => ({ file, page })),
  );
  expect(named.length).toBeGreaterThan(0);
  expect(named.filter(({ page }) => !existsSync(join(root, page)))).toEqual([]);
  const { files } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { files: string[] };
  expect(files).toContain('docs');
});

describe('error codes', () => {
  const documented = documentedCodes();
  const used = [...sources].flatMap(([file, text]) => codesIn(file, text));

  test('every code in the sources is documented', () => {
    const missing = used.filter(({ pattern }) => !documented.some((code) => pattern.test(code)));
    expect(missing.map(({ file, shown }) => `${shown} (${file})`)).toEqual([]);
  });

  test('every documented code is in the sources', () => {
    expect(documented.filter((code) => !used.some(({ pattern }) => pattern.test(code)))).toEqual([]);
  });

  test('codes are kebab-case and documented once', () => {
    expect(documented.filter((code) => !/^[a-z]+(-[a-z]+)+$|^(unexpected|usage)$/.test(code))).toEqual([]);
    expect(documented).toEqual([...new Set(documented)]);
  });

  test('the reader of codes finds them at all', () => {
    expect(used.length).toBeGreaterThan(20);
  });
});

/** First cells of the table in docs/lookup/errors.md. */
function documentedCodes(): string[] {
  const page = readFileSync(join(root, 'docs/lookup/errors.md'), 'utf8');
  return [...page.matchAll(/^\| `([^`]+)` \|/gm)].map((match) => match[1] as string);
}

function withoutComments(text: string): string {
  return text.replace(/\/\*[\s\S]*?\*\//g, '').replace(/^\s*\/\/.*$/gm, '');
}
