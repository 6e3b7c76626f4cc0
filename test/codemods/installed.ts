/**
 * What a caller's repository has in its node_modules, made for a copy of one: unbroker as ESM and CommonJS, and a
 * generated Prisma client. Nothing is downloaded.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { build } from 'esbuild';

const REPOSITORY = join(import.meta.dirname, '..', '..');

/** `unbroker/enqueue` and `unbroker/transactions` as a caller has them installed. */
export async function installUnbroker(folder: string): Promise<void> {
  const target = join(folder, 'node_modules', 'unbroker');
  mkdirSync(target, { recursive: true });
  const door = (name: string): object => ({ import: `./${name}.mjs`, require: `./${name}.cjs` });
  const exports = { './enqueue': door('enqueue'), './transactions': door('transactions') };
  writeFileSync(join(target, 'package.json'), JSON.stringify({ name: 'unbroker', exports }));
  const entries = { enqueue: 'src/enqueue.ts', transactions: 'adapters/transactions/index.ts' };
  for (const [name, entry] of Object.entries(entries)) {
    for (const [format, end] of [
      ['esm', 'mjs'],
      ['cjs', 'cjs'],
    ] as const) {
      await build({
        entryPoints: [join(REPOSITORY, entry)],
        outfile: join(target, `${name}.${end}`),
        ...{ bundle: true, platform: 'node', format },
      });
    }
  }
}

/** The generator's client of a schema.prisma, as TypeScript in `output`. */
export async function generatePrisma(schemaPath: string, output: string): Promise<void> {
  const require = createRequire(import.meta.url);
  const datamodel = readFileSync(schemaPath, 'utf8');
  const { version } = require('@prisma/client/package.json') as { version: string };
  const { PrismaClientTsGenerator, getDMMF } = require('@prisma/client-generator-ts') as Generator;
  const datasource = { name: 'db', provider: 'postgresql', activeProvider: 'postgresql', schemas: [] };
  await new PrismaClientTsGenerator().generate({
    generator: {
      name: 'client',
      provider: { value: 'prisma-client', fromEnvVar: null },
      output: { value: output, fromEnvVar: null },
      config: { importFileExtension: 'js', moduleFormat: 'esm' },
      ...{ binaryTargets: [], previewFeatures: [], sourceFilePath: schemaPath },
    },
    otherGenerators: [],
    datasources: [{ ...datasource, sourceFilePath: schemaPath }],
    dmmf: await getDMMF({ datamodel }),
    ...{ datamodel, schemaPath, version },
  });
}

interface Generator {
  readonly PrismaClientTsGenerator: new () => { generate(options: object): Promise<void> };
  getDMMF(options: { datamodel: string }): Promise<object>;
}

/** Generates the client of schema.prisma and puts it where a caller imports it from: `@prisma/client`. */
export async function installPrismaClient(folder: string): Promise<void> {
  const output = join(folder, 'node_modules', '.generated');
  await generatePrisma(join(folder, 'schema.prisma'), output);
  const target = join(folder, 'node_modules', '@prisma', 'client');
  mkdirSync(target, { recursive: true });
  writeFileSync(
    join(target, 'package.json'),
    JSON.stringify({ name: '@prisma/client', type: 'module', main: 'index.js' }),
  );
  await build({
    entryPoints: [join(output, 'client.ts')],
    outfile: join(target, 'index.js'),
    ...{ bundle: true, platform: 'node', format: 'esm' },
    nodePaths: [join(REPOSITORY, 'node_modules')],
    banner: {
      js: "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);",
    },
  });
}
