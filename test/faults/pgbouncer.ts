/**
 * The suites of the table, the enqueue and the worker, with every pool of theirs led through PgBouncer in transaction mode;
 * the sessions by which a test holds a lock or watches another go past it. `npm run faults -- pgbouncer`.
 */
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { noPgBouncer, startPgBouncer } from '../support/pgbouncer.js';
import { startPostgres } from '../support/services.js';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const SUITES = [
  ...[
    'claim',
    'dedupe',
    'enqueue',
    'fence',
    'kinds',
    'leases',
    'operations',
    'operator',
    'ordering',
    'reaper',
  ],
  ...['retention', 'schedules', 'stop', 'unstorable', 'worker'],
].map((name) => `test/db/${name}.test.ts`);

/** It looks at the worker's own session, which behind a bouncer is nobody's. */
const LEFT_OUT = 'while a handler runs no transaction is open, and the claim is visible to all';

interface Report {
  readonly numPassedTests: number;
  readonly testResults: readonly {
    readonly name: string;
    readonly assertionResults: readonly {
      readonly fullName: string;
      readonly status: string;
      readonly failureMessages?: readonly string[];
    }[];
  }[];
}

export async function faultsPgBouncer(): Promise<object> {
  const missing = noPgBouncer();
  if (missing !== null) return { skipped: missing };
  const server = await startPostgres({ controllable: true });
  const folder = mkdtempSync(join(tmpdir(), 'unbroker-bouncer-'));
  try {
    const bouncer = await startPgBouncer(server.url);
    try {
      const output = join(folder, 'report.json');
      const env = {
        ...process.env,
        UNBROKER_TEST_DATABASE_URL: server.url,
        UNBROKER_TEST_POOLER: `127.0.0.1:${bouncer.port}`,
      };
      await runVitest(['run', ...SUITES, '--reporter=json', `--outputFile=${output}`], env);
      const report = JSON.parse(readFileSync(output, 'utf8')) as Report;
      const failures = report.testResults.flatMap(({ assertionResults }) =>
        assertionResults
          .filter(({ status, fullName }) => status === 'failed' && fullName !== LEFT_OUT)
          .map(({ fullName, failureMessages }) => `${fullName}: ${failureMessages?.[0]?.split('\n')[0]}`),
      );
      return {
        ...{
          suites: report.testResults.length,
          passed: report.numPassedTests,
          failed: failures.length,
        },
        ...{ leftOut: [LEFT_OUT], failures },
      };
    } finally {
      await bouncer.close();
    }
  } finally {
    await server.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** A failed test is in the report; it is not this command's failure to run. */
function runVitest(args: readonly string[], env: NodeJS.ProcessEnv): Promise<void> {
  const program = join(ROOT, 'node_modules', 'vitest', 'vitest.mjs');
  return new Promise((resolve) => {
    execFile(process.execPath, [program, ...args], { cwd: ROOT, env, maxBuffer: 64 * 1024 * 1024 }, () =>
      resolve(),
    );
  });
}
