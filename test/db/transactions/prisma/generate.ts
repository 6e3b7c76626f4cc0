/**
 * Generates the Prisma client beside schema.prisma, as `prisma generate` does, with its generator alone: the command
 * line would bring a database, a studio and 160 MB along. Nothing is downloaded; a client that is up to date is kept.
 */
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

/** What is used of the generator; its ESM build names a file that is not there, so it is required. */
interface Generator {
  readonly PrismaClientTsGenerator: new () => { generate(options: object): Promise<void> };
  getDMMF(options: { datamodel: string }): Promise<object>;
}

const require = createRequire(import.meta.url);

export async function generatePrismaClient(): Promise<void> {
  const schemaPath = join(import.meta.dirname, 'schema.prisma');
  const datamodel = readFileSync(schemaPath, 'utf8');
  const { version } = require('@prisma/client/package.json') as { version: string };
  const wanted = createHash('sha256').update(version).update(datamodel).digest('hex');

  const output = join(import.meta.dirname, 'generated');
  const stamp = join(output, 'made-of');
  const upToDate = (): boolean => existsSync(stamp) && readFileSync(stamp, 'utf8') === wanted;
  if (upToDate()) return;

  const { PrismaClientTsGenerator, getDMMF } = require('@prisma/client-generator-ts') as Generator;
  const beside = `${output}.${process.pid}`;
  await new PrismaClientTsGenerator().generate({
    generator: {
      name: 'client',
      provider: { value: 'prisma-client', fromEnvVar: null },
      output: { value: beside, fromEnvVar: null },
      config: { importFileExtension: 'js', moduleFormat: 'esm' },
      binaryTargets: [],
      previewFeatures: [],
      sourceFilePath: schemaPath,
    },
    otherGenerators: [],
    datasources: [
      {
        ...{ name: 'db', provider: 'postgresql', activeProvider: 'postgresql' },
        ...{ schemas: [], sourceFilePath: schemaPath },
      },
    ],
    dmmf: await getDMMF({ datamodel }),
    ...{ datamodel, schemaPath, version },
  });
  writeFileSync(join(beside, 'made-of'), wanted);
  // Another run in this folder may have been quicker; its client may be in use already.
  if (upToDate()) return rmSync(beside, { recursive: true });
  rmSync(output, { recursive: true, force: true });
  renameSync(beside, output);
}
