/**
 * Kinds with a schema, with the validators that teams have: what types an enqueue and its handler, what is refused at
 * the enqueue, and what becomes of a row that somebody else put in wrongly.
 */
import * as v from 'valibot';
import { afterAll, beforeEach, describe, expect, expectTypeOf, test } from 'vitest';
import { z } from 'zod';
import { defineKind, enqueue, enqueueMany, PayloadInvalid } from '../../src/enqueue.js';
import type { HandlerJob } from '../../src/jobs/handler.js';
import { jobsDatabase } from '../support/jobs.js';
import { startWorker, type TestWorker } from '../support/workers.js';

const db = await jobsDatabase();
let worker: TestWorker | undefined;
afterAll(async () => {
  await worker?.close();
  await db.close();
});
beforeEach(async () => {
  await worker?.close();
  worker = undefined;
  await db.pool.query('truncate unbroker.jobs');
});

const zodKind = defineKind('receipt', z.object({ orderId: z.number().int(), due: z.iso.date().optional() }));
const valibotKind = defineKind('receipt', v.object({ orderId: v.pipe(v.number(), v.integer()) }));
/** Callers write a text, the handler gets a number and a default. */
const parsing = defineKind(
  'parsing',
  z.object({ cents: z.string().transform(Number), currency: z.string().default('EUR') }),
);

const count = async (): Promise<number> =>
  (await db.pool.query<{ n: number }>('select count(*)::int as n from unbroker.jobs')).rows[0]?.n ?? -1;

describe.each([
  ['zod', zodKind],
  ['valibot', valibotKind],
] as const)('%s', (_name, kind) => {
  test('what fits is stored, what does not is refused before a statement is sent', async () => {
    const session = await db.session();
    await session.query('begin');
    const { id } = await enqueue(session, kind, { orderId: 17 });
    const wrong = { orderId: 'secret-17' } as unknown as { orderId: number };
    const refused = await enqueue(session, kind, wrong).catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(PayloadInvalid);
    expect(refused).toBeInstanceOf(TypeError);
    expect(String(refused)).toBe(
      'PayloadInvalid: the payload does not fit the schema of receipt at: orderId',
    );
    expect(JSON.stringify(refused)).not.toContain('secret');
    expect((refused as PayloadInvalid).issues[0]?.message).toMatch(/number/i);
    // The transaction is still usable: nothing of the refused one reached the server.
    await session.query('commit');
    expect((await db.job(id)).payloadText).toBe('{"orderId": 17}');
    expect(await count()).toBe(1);
  });

  test('of a list all are checked before the first is sent', async () => {
    const bad = kind.job({ orderId: 1.5 });
    await expect(enqueueMany(db.pool, [kind.job({ orderId: 1 }), bad])).rejects.toThrow(PayloadInvalid);
    expect(await count()).toBe(0);
    const stored = await enqueueMany(db.pool, [kind.job({ orderId: 1 }, { priority: 3 }), { kind: 'plain' }]);
    expect(await db.job(stored[0]?.id ?? '')).toMatchObject({ kind: 'receipt', priority: 3 });
  });

  test('a row that does not fit is dead at its first attempt; the next one runs', async () => {
    const [bad, good] = (await db.put('receipt', [{ orderId: 'hunter2' }, { orderId: 4 }])) as [
      string,
      string,
    ];
    const seen: number[] = [];
    const handlers = kind.handle((job) => {
      seen.push(job.payload.orderId);
    });
    worker = startWorker({ url: db.url, handlers });
    await worker.untilEnded(2);
    const job = await db.job(bad);
    expect(job).toMatchObject({ state: 'dead', attempts: 1 });
    expect(job.errors).toMatchObject([
      { name: 'payload-invalid', message: "the payload does not fit the kind's schema at: orderId" },
    ]);
    expect((await db.job(good)).state).toBe('done');
    expect(seen).toEqual([4]);
  });
});

test('the row keeps what the caller gave, the handler gets what the schema makes of it', async () => {
  const { id } = await enqueue(db.pool, parsing, { cents: '1250' });
  expect((await db.job(id)).payloadText).toBe('{"cents": "1250"}');
  const seen: unknown[] = [];
  worker = startWorker({
    url: db.url,
    handlers: parsing.handle(
      (job) => {
        expectTypeOf(job.payload).toEqualTypeOf<{ cents: number; currency: string }>();
        seen.push(job.payload);
      },
      { concurrency: 2 },
    ),
  });
  await worker.untilEnded(1);
  expect(seen).toEqual([{ cents: 1250, currency: 'EUR' }]);
});

test('types follow the schema', () => {
  const wrong = () => {
    // @ts-expect-error a text is no number
    void enqueue(db.pool, zodKind, { orderId: '17' });
    // @ts-expect-error a text is no number
    valibotKind.job({ orderId: '17' });
    // @ts-expect-error the handler's payload has no such field
    zodKind.handle((job) => job.payload.missing);
    // A name takes anything, as before.
    void enqueue(db.pool, 'receipt', { orderId: '17' });
  };
  expect(wrong).toBeTypeOf('function');
  expectTypeOf(parsing.handle)
    .parameter(0)
    .parameter(0)
    .toEqualTypeOf<HandlerJob<{ cents: number; currency: string }>>();
});

test('what is no schema is refused when the kind is defined', () => {
  for (const wrong of [{}, null, undefined, { '~standard': {} }, () => true])
    expect(() => defineKind('a', wrong as never)).toThrow(/kind a is not a Standard Schema/);
});
