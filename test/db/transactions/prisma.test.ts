/** Prisma 7, with a client that is generated here: a plain one and an extended one, and their types. */
import { execFile } from 'node:child_process';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { beforeAll, expect, it } from 'vitest';
import { describeLibrary, type Library } from './contract.js';
import { generatePrismaClient } from './prisma/generate.js';

const folder = join(import.meta.dirname, 'prisma');
const tsc = createRequire(import.meta.url).resolve('typescript/bin/tsc');

interface Opened {
  openPrisma(url: string): Library;
  openExtendedPrisma(url: string): Library;
}

/** By a path that the compiler does not follow: on a clean clone the generated client is not there yet. */
async function load(): Promise<Opened> {
  await generatePrismaClient();
  return (await import(pathToFileURL(join(folder, 'open.ts')).href)) as Opened;
}

beforeAll(generatePrismaClient);

describeLibrary('Prisma', async (url) => (await load()).openPrisma(url));
describeLibrary('Prisma, extended', async (url) => (await load()).openExtendedPrisma(url));

it("Prisma: the client's own transaction types are taken", async () => {
  const compiled = await promisify(execFile)(process.execPath, [tsc, '-p', folder]).catch(
    (error: { stdout: string }) => error,
  );
  expect(compiled.stdout).toBe('');
}, 120_000);
