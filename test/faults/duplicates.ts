/**
 * One request sent a thousand times under one Idempotency-Key, eight at once, through a proxy that cuts every third answer
 * off after the commit: one row, and every answer that arrives is the same to the byte.
 */
import { tmpdir } from 'node:os';
import { SILENT } from '../../src/log.js';
import { createShims } from '../../src/shims/index.js';
import { startCuttingProxy } from '../http/cutting-proxy.js';
import { rawPost, sendRaw } from '../http/shim-world.js';
import { jobsDatabase } from '../support/jobs.js';
import type { PostgresServer } from '../support/services.js';

export interface DuplicateFaults {
  readonly sent: number;
  /** Answers that never arrived. */
  readonly cut: number;
  readonly rows: number;
  readonly distinctAnswers: number;
  readonly failed: number;
}

export async function duplicatePosts(server: PostgresServer, count: number): Promise<DuplicateFaults> {
  const db = await jobsDatabase({ server });
  const shims = createShims(
    { pool: db.pool, store: db.store, serve: {}, notify: undefined, directory: tmpdir(), log: SILENT },
    '127.0.0.1',
  );
  const url = await shims.listen({ host: '127.0.0.1', port: 0 });
  let sent = 0;
  const proxy = await startCuttingProxy({ host: '127.0.0.1', port: Number(new URL(url).port) }, () => {
    sent += 1;
    return sent % 3 === 1;
  });
  const body = JSON.stringify({ to: 'ann@example.org', body: 'x' });
  const answers = new Set<string>();
  let left = count;
  let cut = 0;
  const client = async (): Promise<void> => {
    while (left > 0) {
      left -= 1;
      const { status, headers, ...answer } = await sendRaw(proxy.port, [
        rawPost('/notifications', body, { 'idempotency-key': 'same' }),
      ]);
      if (status === 0) cut += 1;
      else answers.add(JSON.stringify({ status, ...headers, date: '', body: answer.body }));
    }
  };
  try {
    await Promise.all(Array.from({ length: 8 }, client));
    const { rows } = await db.pool.query<{ n: number }>('select count(*)::int as n from unbroker.jobs');
    const stored = rows[0]?.n ?? -1;
    const kept = stored === 1 && answers.size === 1 && cut >= Math.floor(count / 4);
    return { sent: count, cut, rows: stored, distinctAnswers: answers.size, failed: kept ? 0 : 1 };
  } finally {
    await proxy.close();
    await shims.close({ deadlineMs: 1_000 });
    await db.close();
  }
}
