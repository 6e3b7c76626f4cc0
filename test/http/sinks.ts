/** The old system's sinks as real servers for one test file: what arrived, and failing on purpose. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Faults } from '../legacy/sinks/faults.js';
import { type Delivery, readJournal } from '../legacy/sinks/journal.js';
import { type StartedProcess, startScript } from '../support/processes.js';

export interface Sink {
  readonly url: string;
  received(): Delivery[];
  /** What the next deliveries meet. */
  faults(change: Partial<Faults>): Promise<void>;
  close(): Promise<void>;
}

const SINKS = join(import.meta.dirname, '..', 'legacy', 'sinks');

export async function startSmtpSink(): Promise<Sink> {
  return startSink('smtp.ts', /smtp-sink listening on (\S+)/, /smtp-sink control on (\S+)/);
}

export async function startHttpSink(): Promise<Sink> {
  return startSink('http.ts', /http-sink listening on (\S+)/, /http-sink listening on (\S+)/);
}

async function startSink(file: string, ready: RegExp, control: RegExp): Promise<Sink> {
  const folder = mkdtempSync(join(tmpdir(), 'unbroker-sink-'));
  const journal = join(folder, 'journal.ndjson');
  const process: StartedProcess = startScript(join(SINKS, file), [], {
    env: { JOURNAL: journal, PORT: '0' },
  });
  const [, url = ''] = await process.waitFor(ready);
  const [, controlUrl = ''] = await process.waitFor(control);
  return {
    url,
    received: () => readJournal(journal),
    async faults(change) {
      const response = await fetch(`${controlUrl}/_control`, {
        method: 'POST',
        body: JSON.stringify(change),
      });
      if (!response.ok) throw new Error(await response.text());
    },
    async close() {
      await process.kill('SIGTERM');
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
