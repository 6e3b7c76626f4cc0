/**
 * Workers killed between a provider's taking a message and their mark: at the moment it is in, and a little before and
 * after. Whatever the worker never learnt is parked for a person; nothing is sent a second time.
 */

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { cliFile } from '../support/cli.js';
import { jobsDatabase } from '../support/jobs.js';
import type { PostgresServer } from '../support/services.js';
import { until } from '../support/until.js';
import { Supervised } from './processes.js';

export interface DeliveryFaults {
  /** Kills while a provider had a message that was not marked. */
  readonly points: number;
  readonly jobs: number;
  readonly done: number;
  /** Begun and never confirmed: for a person. */
  readonly parked: number;
  /** Neither sent nor parked. */
  readonly lost: number;
  /** Messages that a provider got more than once. */
  readonly twice: number;
}

const LEASE_MS = 600;

export async function deliveryKills(server: PostgresServer, points: number): Promise<DeliveryFaults> {
  const db = await jobsDatabase({ server });
  const folder = mkdtempSync(join(tmpdir(), 'unbroker-delivery-'));
  const taken: string[] = [];
  let kills = 0;
  let armed = false;
  let kill: () => void = () => undefined;
  const provider: Server = createServer((request, response) => {
    request.resume().on('end', () => {
      taken.push(String(request.headers['idempotency-key']));
      if (!armed) {
        response.end('{"id":"p"}');
        return;
      }
      armed = false;
      kills += 1;
      // Before the answer, or up to 8 ms after it: the mark may be under way, or done.
      const afterMs = kills % 3 === 0 ? 0 : Math.random() * 8;
      if (afterMs > 0) response.end('{"id":"p"}');
      setTimeout(() => kill(), afterMs);
    });
  });
  provider.on('clientError', (_error, socket) => socket.destroy());
  await new Promise<void>((resolve) => provider.listen(0, '127.0.0.1', resolve));
  const { port } = provider.address() as AddressInfo;
  writeFileSync(
    join(folder, 'unbroker.config.json'),
    JSON.stringify({
      notify: { sms: { url: `http://127.0.0.1:${port}` }, allowedNetworks: ['127.0.0.0/8'] },
      worker: { leaseMs: LEASE_MS, pollMs: 10, concurrency: 3 },
    }),
  );
  const worker = new Supervised(
    cliFile.endsWith('.ts') ? fileURLToPath(new URL('run-typescript.mjs', import.meta.url)) : cliFile,
    { DATABASE_URL: db.url, UNBROKER_LOG_LEVEL: 'silent', RUN_FILE: cliFile },
    ['work', '--no-listen'],
    folder,
  );
  kill = () => void worker.kill();
  try {
    while (kills < points) {
      const before = kills;
      armed = true;
      await db.put(
        'notify.sms',
        Array.from({ length: 4 }, (_, n) => ({ to: `+1555${before}${n}`, body: 'hi' })),
      );
      await until('a worker was killed', () => kills > before, { withinMs: 60_000 });
    }
    await until(
      'all is settled',
      async () => {
        const { ready = 0, running = 0 } = await db.states();
        return ready + running === 0;
      },
      { withinMs: 120_000 },
    );
    await sleep(LEASE_MS);
    const { done = 0, dead = 0 } = await db.states();
    const { rows } = await db.pool.query<{ id: string; state: string; name: string | null }>(
      `select id::text, state, errors -> -1 ->> 'name' as name from unbroker.jobs`,
    );
    const sent = new Map<string, number>();
    for (const id of taken) sent.set(id, (sent.get(id) ?? 0) + 1);
    const lost = rows.filter(({ id, name }) => !sent.has(id) && name !== 'ambiguous-delivery').length;
    const twice = [...sent.values()].filter((count) => count > 1).length;
    return { points: kills, jobs: rows.length, done, parked: dead, lost, twice };
  } finally {
    await Promise.allSettled([worker.end(), db.close()]);
    provider.closeAllConnections();
    await new Promise<void>((resolve) => provider.close(() => resolve()));
    rmSync(folder, { recursive: true, force: true });
  }
}
