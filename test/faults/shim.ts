/**
 * The HTTP door killed under its clients, and its database too: clients repeat each request under the same
 * Idempotency-Key until they are answered. Whatever was accepted is a row, and no request is two.
 */
import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { SILENT } from '../../src/log.js';
import { createShims } from '../../src/shims/index.js';
import { cliFile } from '../support/cli.js';
import { jobsDatabase } from '../support/jobs.js';
import { compareBooks, Journal, readJournals, type SixNumbers } from '../support/journal.js';
import { freePort } from '../support/ports.js';
import { type PostgresServer, startPostgres } from '../support/services.js';
import { until } from '../support/until.js';
import { deliveryKills } from './delivery.js';
import { duplicatePosts } from './duplicates.js';
import { Supervised } from './processes.js';
import { slowClients } from './slow-clients.js';

const TEMPLATES = fileURLToPath(new URL('../legacy/notification/templates', import.meta.url));
const CLIENTS = 8;

export interface ShimFaults extends SixNumbers {
  readonly points: number;
  readonly extra: number;
  readonly deaths: { readonly shim: number; readonly database: number };
}

/** kill -9 of the door, kill -9 and immediate stops of its database, `cycles` times, under load. */
export async function shimKills(server: PostgresServer, cycles: number): Promise<ShimFaults> {
  const db = await jobsDatabase({ server });
  const folder = mkdtempSync(join(tmpdir(), 'unbroker-shim-'));
  const config = {
    notify: { templates: TEMPLATES, email: { urlEnv: 'SMTP_URL', from: 'Shop <shop@example.org>' } },
    serve: {},
  };
  writeFileSync(join(folder, 'unbroker.config.json'), JSON.stringify(config));
  const port = await freePort();
  const door = new Supervised(
    cliFile.endsWith('.ts') ? fileURLToPath(new URL('run-typescript.mjs', import.meta.url)) : cliFile,
    { DATABASE_URL: db.url, SMTP_URL: 'smtp://127.0.0.1:9', UNBROKER_LOG_LEVEL: 'silent', RUN_FILE: cliFile },
    ['serve', '--port', String(port)],
    folder,
  );
  const url = `http://127.0.0.1:${port}`;
  const path = join(folder, 'journal');
  const journal = new Journal(path);
  let ending = false;
  let acknowledged = 0;

  const send = async (key: string): Promise<boolean> => {
    const answer = await fetch(`${url}/notifications`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'idempotency-key': key },
      body: JSON.stringify({
        to: 'ann@example.org',
        template: 'order-paid',
        data: { orderId: key, total: '1' },
      }),
      signal: AbortSignal.timeout(10_000),
    });
    await answer.arrayBuffer();
    // 409: the first of this key is still under way, or died there.
    if (answer.status >= 400 && ![409, 429, 503].includes(answer.status))
      throw new Refused(`${answer.status}`);
    return answer.status < 300;
  };
  const client = async (): Promise<void> => {
    while (!ending) {
      const key = randomUUID();
      journal.attempt(key);
      for (let tries = 0; tries < 400; tries += 1) {
        const accepted = await send(key).catch((error: unknown) => {
          if (error instanceof Refused) throw error;
          return false;
        });
        if (accepted) {
          journal.acknowledge(key);
          acknowledged += 1;
          break;
        }
        await sleep(20 + Math.random() * 80);
      }
      await sleep(5);
    }
  };

  try {
    await until('the door is open', async () => (await fetch(`${url}/readyz`)).ok);
    const clients = Promise.all(Array.from({ length: CLIENTS }, client));
    const deaths = { shim: 0, database: 0 };
    // On a busy machine the door takes longer to open than there is between two kills.
    await until('requests are accepted', () => acknowledged >= 2 * CLIENTS);
    for (let cycle = 0; cycle < cycles; cycle += 1) {
      await sleep(300 + Math.random() * 700);
      if (cycle % 4 === 3) {
        deaths.database += 1;
        if (Math.random() < 0.5) await server.kill();
        else await server.stop('immediate');
        await server.start();
      } else {
        deaths.shim += 1;
        await door.kill();
      }
    }
    await until('the door is open again', async () => (await fetch(`${url}/readyz`)).ok);
    ending = true;
    await clients;
    journal.close();
    const { rows } = await db.pool.query<{ key: string }>(
      `select payload #>> '{data,orderId}' as key from unbroker.jobs`,
    );
    const six = compareBooks(
      readJournals([path]),
      rows.map(({ key }) => key),
    );
    return { points: cycles, deaths, ...six, extra: six.unexpected + six.duplicated };
  } finally {
    ending = true;
    await Promise.allSettled([door.end(), db.close()]);
    rmSync(folder, { recursive: true });
  }
}

class Refused extends Error {}

/** `npm run faults -- shim [--long]`. */
export async function faultsShim({ long }: { readonly long: boolean }): Promise<object> {
  const server = await startPostgres({ controllable: true });
  try {
    const doors = await shimKills(server, long ? 400 : 100);
    const deliveries = await deliveryKills(server, 50);
    const duplicates = await duplicatePosts(server, 1_000);
    const slow = await slowClients(server, 10_000);
    const load = long ? await underRestarts(server, 60_000) : null;
    return {
      ...doors,
      points: doors.points + deliveries.points,
      lost: doors.lost + deliveries.lost + (load?.lost ?? 0),
      extra: doors.extra + deliveries.twice + (load?.extra ?? 0),
      failed: slow.failed + duplicates.failed,
      deliveries,
      duplicates,
      slow,
      ...(load === null ? {} : { load }),
    };
  } finally {
    await server.close();
  }
}

export interface RestartFaults {
  readonly accepted: number;
  readonly refused: number;
  readonly lost: number;
  readonly extra: number;
  readonly seconds: number;
}

/** 32 clients for a while, each request once and with its own key; Postgres is restarted twice under them. */
export async function underRestarts(server: PostgresServer, forMs: number): Promise<RestartFaults> {
  const db = await jobsDatabase({ server });
  const shims = createShims(
    {
      pool: db.pool,
      store: db.store,
      serve: { kinds: ['load.test'] },
      notify: undefined,
      directory: tmpdir(),
      log: SILENT,
    },
    '127.0.0.1',
  );
  const url = await shims.listen({ host: '127.0.0.1', port: 0 });
  const accepted = new Set<string>();
  let refused = 0;
  const startedAt = performance.now();
  const client = async (): Promise<void> => {
    while (performance.now() - startedAt < forMs) {
      const key = randomUUID();
      const answer = await fetch(`${url}/notifications`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', 'idempotency-key': key },
        body: JSON.stringify({ to: 'ann@example.org', body: 'x', reference: key }),
        signal: AbortSignal.timeout(40_000),
      }).catch(() => null);
      await answer?.arrayBuffer();
      if (answer !== null && answer.status === 202) accepted.add(key);
      else {
        refused += 1;
        await sleep(50);
      }
    }
  };
  try {
    const clients = Promise.all(Array.from({ length: 32 }, client));
    for (const part of [1, 2]) {
      await sleep((forMs * part) / 3 - (performance.now() - startedAt));
      await server.stop(part === 1 ? 'fast' : 'immediate');
      await server.start();
    }
    await clients;
    const { rows } = await db.pool.query<{ key: string; count: number }>(
      `select payload ->> 'reference' as key, count(*)::int as count from unbroker.jobs group by 1`,
    );
    const stored = new Map(rows.map(({ key, count }) => [key, count]));
    // A refused one may be stored all the same, its answer lost; never twice.
    return {
      accepted: accepted.size,
      refused,
      lost: [...accepted].filter((key) => !stored.has(key)).length,
      extra: [...stored.values()].filter((count) => count > 1).length,
      seconds: Math.round((performance.now() - startedAt) / 1_000),
    };
  } finally {
    await shims.close({ deadlineMs: 1_000 });
    await db.close();
  }
}
