/**
 * What is left of a job that failed, for who has to find out why: the log says where and of which class, down to the
 * causes, and quotes nothing; the row has the words. And what an author got wrong is called what it is.
 */
import { once as heard } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { afterAll, afterEach, beforeEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { Discard, defineKind, RetryAfter, Snooze } from '../../src/index.js';
import type { Handler } from '../../src/jobs/handler.js';
import type { Job } from '../../src/jobs/job.js';
import { SILENT } from '../../src/log.js';
import { jobsDatabase } from '../support/jobs.js';
import { lateRetries, startWorker, type TestWorker } from '../support/workers.js';

const db = await jobsDatabase();
const workers: TestWorker[] = [];
afterAll(() => db.close());
beforeEach(() => db.clear());
afterEach(async () => {
  await Promise.all(workers.splice(0).map((worker) => worker.close()));
});

interface Line extends Record<string, unknown> {
  readonly level: string;
  readonly text: string;
}

/** One job of kind `a` runs once; its row after that, and what the log had of it. */
async function once(
  handler: Handler,
  payload: unknown = 1,
): Promise<{ job: Job; lines: Line[]; log: string }> {
  const [id] = (await db.put('a', [payload])) as [string];
  const lines: Line[] = [];
  const note = (level: string) => (fields: object, text: string) =>
    void lines.push({ level, text, ...fields });
  const log = {
    ...SILENT,
    debug: note('debug'),
    info: note('info'),
    warn: note('warn'),
    error: note('error'),
  };
  const kinds = typeof handler === 'function' ? { a: { handle: handler } } : { a: handler };
  const worker = startWorker({ url: db.url, log, handlers: lateRetries(kinds) });
  workers.push(worker);
  await worker.untilEnded(1);
  await worker.stop({ deadlineMs: 0 });
  return {
    job: await db.job(id),
    lines: lines.filter((line) => line['job'] === id),
    log: JSON.stringify(lines),
  };
}

/** Nobody listens there any more. */
async function closedPort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await heard(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  return port;
}

const throwing = (make: () => unknown) =>
  once(async function charges() {
    await null;
    throw make();
  });

describe('a handler that throws', () => {
  test('its own place is in the log, and nothing of its message', async () => {
    const { job, lines, log } = await throwing(() => new RangeError('card 4111'));
    expect(lines).toEqual([
      {
        level: 'warn',
        text: 'a handler threw',
        ...{ job: job.id, kind: 'a', attempt: 1, outcome: 'retry', delayMs: 600_000, error: 'RangeError' },
        at: expect.stringMatching(/failures\.test\.ts:\d+:\d+\)?$/),
      },
    ]);
    expect(job.errors).toMatchObject([{ name: 'RangeError', message: 'card 4111' }]);
    expect(log).not.toContain('4111');
  });

  test('a fetch that fails: what refused it, and the line that called it', async () => {
    const { job, lines } = await once(async () => {
      await fetch(`http://127.0.0.1:${await closedPort()}/`);
    });
    expect(lines).toMatchObject([
      {
        error: 'TypeError',
        causes: [{ error: 'Error', code: 'ECONNREFUSED' }],
        at: expect.stringContaining('failures.test.ts'),
      },
    ]);
    expect(job.errors[0]?.message).toMatch(/^fetch failed: connect ECONNREFUSED 127\.0\.0\.1:\d+$/);
  });

  test('Discard: its reason, which is a code, and the cause that it was given', async () => {
    const refused = Object.assign(new Error('no such card 4111'), { code: 'card_declined' });
    const { job, lines, log } = await throwing(
      () => new Discard('refused', 'card-refused', { cause: refused }),
    );
    expect(lines).toMatchObject([
      { error: 'Discard', reason: 'card-refused', causes: [{ error: 'Error', code: 'card_declined' }] },
    ]);
    expect(job.errors).toMatchObject([{ name: 'card-refused', message: 'refused: no such card 4111' }]);
    expect(log).not.toContain('4111');
  });
});

test.each(['no card 4111', 'ann@example.org', 'x'.repeat(61), 4111 as never])(
  'a reason that does not look like a code (%s) stays in the row',
  async (reason) => {
    const { lines, log } = await throwing(() => new Discard('refused', reason));
    expect(lines).toMatchObject([{ error: 'Discard', outcome: 'discard' }]);
    expect(log).not.toContain('reason');
    expect(log).not.toContain(reason);
  },
);

describe('what no handler threw', () => {
  const schema = z.object({ to: z.string() });

  test('a payload that does not fit is called that', async () => {
    const { job, lines } = await once(defineKind('a', schema).handle(() => 1)['a'] as Handler, { to: 17 });
    expect(lines).toMatchObject([
      {
        level: 'warn',
        text: 'a payload does not fit the schema of its kind, so its handler was not called. unbroker jobs show says where',
        ...{ outcome: 'discard', reason: 'payload-invalid' },
      },
    ]);
    expect(job.errors).toMatchObject([
      { name: 'payload-invalid', message: expect.stringMatching(/ at: to$/) },
    ]);
  });

  test('what its handler throws is not', async () => {
    const kind = defineKind('a', schema).handle(() => {
      throw new RangeError('no');
    });
    expect((await once(kind['a'] as Handler, { to: 'ann' })).lines).toMatchObject([
      { text: 'a handler threw', error: 'RangeError', at: expect.stringContaining('failures.test.ts') },
    ]);
  });

  test('a schema that throws is', async () => {
    const broken = z.unknown().refine(() => {
      throw new TypeError('x of undefined');
    });
    const { lines } = await once({ handle: () => 1, schema: broken });
    expect(lines).toMatchObject([
      { text: expect.stringMatching(/^the schema of a kind threw/), outcome: 'retry', error: 'TypeError' },
    ]);
  });

  test('an import that came too late is', async () => {
    const [id] = (await db.put('a', [1], {
      headers: { origin: { dialect: 'celery', expiresAt: '2020-01-01T00:00:00Z' } },
    })) as [string];
    const { lines } = await once(() => 1).then(async ({ log }) => ({ lines: JSON.parse(log) as Line[] }));
    expect(lines.filter((line) => line['job'] === id)).toMatchObject([
      { text: expect.stringMatching(/^a job had expired/), reason: 'expired', outcome: 'discard' },
    ]);
  });
});

describe('a delay that is none', () => {
  test.each<[string, unknown]>([
    ['nothing', undefined],
    ['NaN', Number.NaN],
    ['a date', new Date()],
    ['a text', '5m'],
    ['the past', -1],
    ['for ever', Number.POSITIVE_INFINITY],
  ])('Snooze of %s fails the attempt, and says what to give', async (_name, delayMs) => {
    for (const snooze of [
      () => {
        throw new Snooze(delayMs as number);
      },
      (_job: unknown, context: { snooze(delayMs: number): never }) => context.snooze(delayMs as number),
    ]) {
      const { job, lines } = await once(snooze);
      expect(lines).toMatchObject([{ error: 'TypeError', at: expect.stringContaining('failures.test.ts') }]);
      expect(job).toMatchObject({ attempts: 1 });
      expect(job.errors[0]?.message).toMatch(/^Snooze takes .* ms.*; got /);
    }
  });

  test('RetryAfter of what is no number, too; of NaN it waits as the kind says', async () => {
    expect((await throwing(() => new RetryAfter('5m' as never, 'busy'))).job.errors).toMatchObject([
      { name: 'TypeError', message: expect.stringMatching(/^RetryAfter takes .* ms.*; got /) },
    ]);
    expect((await throwing(() => new RetryAfter(Number.NaN, 'busy'))).job.errors).toMatchObject([
      { name: 'RetryAfter', message: 'busy' },
    ]);
  });
});

describe('a result that is not kept', () => {
  const cyclic: Record<string, unknown> = {};
  cyclic['self'] = cyclic;
  test.each<[string, unknown, string, string]>([
    ['a BigInt', { n: 10n }, 'not JSON', 'it is not JSON'],
    ['a function', () => 1, 'not JSON', 'it is not JSON'],
    ['a cycle', cyclic, 'not JSON', 'it is not JSON'],
    ['10 MB', 'x'.repeat(10_000_000), 'too large', 'it is larger than 16384 bytes'],
    ['half a surrogate pair', 'secret\ud800', 'NUL or lone surrogate', 'half a surrogate pair is in it'],
    ['NUL', { 'secret\u0000': 1 }, 'NUL or lone surrogate', 'NUL or half'],
  ])('%s: done, a note in its place, and a word in the log', async (_name, result, unstorable, why) => {
    const { job, lines, log } = await once(() => result);
    expect(job).toMatchObject({ state: 'done', attempts: 1, result: { unstorable } });
    expect(lines).toMatchObject([
      { level: 'warn', text: expect.stringMatching(`^a result was not kept, the job is done: .*${why}`) },
    ]);
    expect(log).not.toContain('secret');
  });

  test('said once a minute for each kind and cause, however many there are', async () => {
    await db.put('a', Array(50).fill(1));
    const { log } = await once(() => 10n);
    expect(log.match(/a result was not kept/g)).toHaveLength(1);
  });

  test('a snooze that the handler caught: done, and said', async () => {
    const { job, lines, log } = await once((_job, { snooze }) => {
      try {
        snooze(1_000);
      } catch {
        // As a catch around all of a handler does.
      }
    });
    expect(job.state).toBe('done');
    expect(lines).toMatchObject([{ level: 'warn', text: expect.stringMatching(/called snooze, caught/) }]);
    expect(log.match(/called snooze/g)).toHaveLength(1);
  });

  test('an error that was returned instead of thrown: done, and said', async () => {
    const { job, lines } = await once(() => new Discard('no'));
    expect(job.state).toBe('done');
    expect(lines).toMatchObject([
      { level: 'warn', error: 'Discard', text: expect.stringMatching(/returned an error.*throw it/) },
    ]);
  });
});
