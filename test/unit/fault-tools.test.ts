/** The effects sink and the journal: what they say has happened has. */
import { appendFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { EffectsClient, startEffectsSink } from '../support/effects-sink.js';
import { compareBooks, Journal, readJournals } from '../support/journal.js';

const folder = mkdtempSync(join(tmpdir(), 'unbroker-tools-'));
afterAll(() => rmSync(folder, { recursive: true }));

test('an effect that was answered is in the file, in order; a sink that is gone answers nobody', async () => {
  const sink = await startEffectsSink();
  const client = new EffectsClient(sink.port);
  await Promise.all(
    Array.from({ length: 200 }, (_, n) =>
      client.record({ job: String(n), token: '1', attempt: 1, what: 'effect' }),
    ),
  );
  expect(sink.read().map(({ job }) => Number(job))).toEqual(Array.from({ length: 200 }, (_, n) => n));
  expect(sink.read()[0]).toMatchObject({ pid: process.pid, token: '1', what: 'effect' });
  await sink.close();
  await expect(client.record({ job: 'x', token: '1', attempt: 1, what: 'effect' })).rejects.toThrow('gone');
});

test('the six numbers tell lost, unexpected, duplicated and recovered apart', () => {
  const path = join(folder, 'journal');
  const journal = new Journal(path);
  for (const key of ['kept', 'lost', 'silent', 'failed']) journal.attempt(key);
  for (const key of ['kept', 'lost']) journal.acknowledge(key);
  journal.close();
  appendFileSync(path, 'k cut-off');
  const books = readJournals([path, join(folder, 'absent')]);
  expect(compareBooks(books, ['kept', 'silent', 'strange', 'kept'])).toEqual({
    ...{ attempted: 4, acknowledged: 2, lost: 1, unexpected: 1, duplicated: 1, recovered: 1 },
  });
});
