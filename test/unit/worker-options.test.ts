/** What createWorker refuses before it asks a database anything, and what callers' own functions may do to a worker. */
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test, vi } from 'vitest';
import type { Queryable } from '../../src/jobs/job.js';
import { Signal, within } from '../../src/jobs/signal.js';
import { createWorker, type WorkerOptions } from '../../src/jobs/worker.js';
import { deadlineOf } from '../../src/jobs/worker-options.js';
import { SILENT } from '../../src/log.js';

const away: Queryable = { query: () => Promise.reject(new Error('away')) };
const good = { db: away, handlers: { a: () => 1 } };
const kind = (more: object) => ({ handlers: { a: { handle: () => 1, ...more } } });
/** What JavaScript lets through. */
const create = (options: unknown) => createWorker(options as WorkerOptions);

test('what fits is taken: functions, instances with fields of their own, whatever pino adds', () => {
  class Receipt {
    readonly mailer = 1;
    readonly subject = 'a name that is no option';
    handle(): number {
      return this.mailer;
    }
  }
  const log = Object.assign(() => {}, SILENT, { level: 'info' });
  create({
    ...good,
    handlers: { a: new Receipt(), b: () => 1, ['ü'.repeat(200)]: () => 1 },
    log,
    listen: undefined,
  });
});

test.each<[string, unknown, string]>([
  ['nothing', undefined, 'no options'],
  ['a list', [], 'no options'],
  ['no database', { handlers: good.handlers }, 'no db'],
  ['a URL for a database', { ...good, db: 'postgres://localhost/app' }, 'db is not'],
  ['a database without query', { ...good, db: {} }, 'db is not'],
  [
    'TypeORM’s own handle',
    { ...good, db: { ...away, createQueryBuilder: () => 1 } },
    'db is a handle of TypeORM',
  ],
  ['no handlers', { db: away }, 'no handlers'],
  ['a list of handlers', { ...good, handlers: [() => 1] }, 'handlers is not'],
  ['a map of handlers', { ...good, handlers: new Map([['a', () => 1]]) }, 'handlers is empty'],
  ['null for a handler', { ...good, handlers: { a: null } }, 'handlers.a is not'],
  ['a kind without a name', { ...good, handlers: { '': () => 1 } }, 'kind in handlers'],
  ['a kind of 201 letters', { ...good, handlers: { ['k'.repeat(201)]: () => 1 } }, 'kind in handlers'],
  ['a kind with NUL', { ...good, handlers: { 'a\0': () => 1 } }, 'kind in handlers'],
  ['a kind with half a letter', { ...good, handlers: { '\ud800': () => 1 } }, 'kind in handlers'],
  ['half a job at once', { ...good, concurrency: 2.5 }, 'concurrency'],
  ['a text for a number', { ...good, concurrency: '5' }, 'concurrency'],
  ['a bigint', { ...good, leaseMs: 30_000n }, 'leaseMs'],
  ['half a job of a kind', { ...good, ...kind({ concurrency: 1.5 }) }, 'handlers.a.concurrency'],
  ['a schema that is none', { ...good, ...kind({ schema: {} }) }, 'handlers.a.schema'],
  ['an option misspelt', { ...good, concurency: 5 }, 'concurency is no option'],
  ['an option of objects', { ...good, constructor: 5 }, 'constructor is no option'],
  [
    'an option of a kind misspelt',
    { ...good, ...kind({ onLeaseExpire: 'park' }) },
    'onLeaseExpire is no option',
  ],
  ['a limit misspelt', { ...good, kinds: { a: { maxruning: 1 } } }, 'kinds.a.maxruning'],
  ['null for a limit', { ...good, kinds: { a: null } }, 'kinds.a is not'],
  ['null for a rate', { ...good, kinds: { a: { rate: null } } }, 'kinds.a.rate is not'],
  ['null for a retention', { ...good, retention: null }, 'retention is not'],
  ['null for what is kept', { ...good, retention: { kinds: { a: null } } }, 'retention of a is not'],
  [
    'what is kept, misspelt',
    { ...good, retention: { default: { maxAge: 5 } } },
    'retention of default.maxAge',
  ],
  ['a logger that is none', { ...good, log: {} }, 'log is not'],
  ['a listener that is none', { ...good, onEvent: 'x' }, 'onEvent is not'],
  ['a connection instead of how to open one', { ...good, listen: {} }, 'listen is not'],
  ['a word for a boolean', { ...good, keepDone: 'no' }, 'keepDone is not'],
])('%s: refused with exit 2, by name', (_what, options, said) => {
  expect(() => create(options)).toThrow(
    expect.objectContaining({
      code: 'worker-invalid',
      exitStatus: 2,
      message: expect.stringContaining(said),
    }),
  );
});

test('a misspelt option is told which was meant', () => {
  expect(() => create({ ...good, concurency: 5 })).toThrow(
    expect.objectContaining({ hint: expect.stringContaining('did you mean concurrency?') }),
  );
});

test('listeners and loggers that are async may fail: it is logged, or forgotten, and ends no process', async () => {
  const unheard = vi.fn();
  process.on('unhandledRejection', unheard);
  const error = vi.fn(async () => {
    throw new Error('no log');
  });
  const worker = create({
    ...good,
    log: { ...SILENT, error },
    onEvent: async () => {
      throw new RangeError('no listener');
    },
  });
  worker.start();
  await vi.waitFor(
    () => expect(error).toHaveBeenCalledWith({ error: 'RangeError' }, 'onEvent threw'),
    60_000,
  );
  await worker.stop({ deadlineMs: 0 });
  await sleep(1);
  process.off('unhandledRejection', unheard);
  expect(unheard).not.toHaveBeenCalled();
});

test('stopped is stopped: started again it says so, and it is not ready', async () => {
  const warn = vi.fn();
  const worker = create({ ...good, log: { ...SILENT, warn } });
  worker.start();
  await worker.stop({ deadlineMs: 0 });
  worker.start();
  expect(worker.ready).toBe(false);
  expect(warn).toHaveBeenCalledWith({}, expect.stringContaining('create another one'));
});

test.each<[string, unknown, string[]]>([
  ['nothing', undefined, []],
  ['no deadline', {}, []],
  ['a deadline that was not set', { deadlineMs: undefined }, []],
  ['a word', 'SIGTERM', ['the options of stop() are not an object']],
  ['null', null, ['the options of stop() are not an object']],
  ['a misspelt one', { deadline: 1 }, ['deadline is no option of stop()']],
  ['a text', { deadlineMs: '5000' }, ['deadlineMs of stop() is not a number']],
  ['no number', { deadlineMs: Number.NaN }, ['deadlineMs of stop() is not a number']],
])('stop() given %s waits 30 s, stops all the same, and says what was odd', async (_what, options, odd) => {
  const warn = vi.fn();
  const worker = create({ ...good, log: { ...SILENT, warn } });
  await worker.stop(options as { deadlineMs?: number });
  const next = 'give stop({ deadlineMs }), a number; without one it waits 30000 ms';
  expect(warn.mock.calls).toEqual(odd.map((text) => [{}, `${text}: ${next}`]));
  expect(deadlineOf(options, () => {})).toBe(30_000);
  // What is left of a time that is over.
  expect(deadlineOf({ deadlineMs: -1 }, warn)).toBe(-1);
  expect(warn).toHaveBeenCalledTimes(odd.length);
});

test('what is no promise is an answer; it leaves no rejection behind', async () => {
  expect(await within(5 as unknown as Promise<number>, 1_000)).toBe(5);
});

test('a wait without end is one, and no loop of a millisecond each', async () => {
  const timers = vi.spyOn(globalThis, 'setTimeout');
  const signal = new Signal();
  const waits = signal.wait(Number.POSITIVE_INFINITY);
  expect(timers).toHaveBeenCalledWith(expect.any(Function), 2 ** 31 - 1);
  timers.mockRestore();
  signal.fire();
  await waits;
});
