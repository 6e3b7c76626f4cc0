/** What a worker says when it starts of options that are taken and mostly not meant. */
import pg from 'pg';
import { expect, test } from 'vitest';
import type { Queryable } from '../../src/jobs/job.js';
import { defineKind } from '../../src/jobs/kind.js';
import { createWorker, type WorkerOptions } from '../../src/jobs/worker.js';
import { SILENT } from '../../src/log.js';

type Line = readonly [level: string, fields: object, text: string];

/** What is said of a database that is not there: at the first start alone, and before it is asked anything. */
async function said(options: Partial<WorkerOptions>): Promise<Line[]> {
  const lines: Line[] = [];
  const note = (level: string) => (fields: object, text: string) => void lines.push([level, fields, text]);
  const log = { ...SILENT, info: note('info'), warn: note('warn') };
  const worker = createWorker({ db: away, handlers: { a: () => 1 }, upkeepMs: 0, ...options, log });
  worker.start();
  const first = [...lines];
  worker.start();
  expect(lines).toEqual(first);
  await worker.stop({ deadlineMs: 0 });
  return first;
}

const away: Queryable = { query: () => Promise.reject(new Error('away')) };
const nowhere = { host: '127.0.0.1', port: 1 };

test.each([1, 2])('a pool of %d: said, with the next step', async (max) => {
  const [line, ...more] = await said({ db: new pg.Pool({ ...nowhere, max }) });
  expect(line).toEqual(['warn', { max }, expect.stringMatching(/wait for each other.*max: 3 or more$/)]);
  expect(more).toEqual([]);
});

test('one connection: said, and that it does not come back', async () => {
  // Without a connection pg's own would let each question wait.
  const [line] = await said({ db: Object.assign(new pg.Client(nowhere), away) });
  expect(line).toEqual(['warn', {}, expect.stringMatching(/one connection.*works no more.*max: 3 or more$/)]);
});

test('nothing is said of three, of what pg takes by default, nor of what is not pg’s', async () => {
  for (const db of [new pg.Pool({ ...nowhere, max: 3 }), new pg.Pool(nowhere), away])
    expect(await said({ db })).toEqual([]);
  expect(await said({ db: Object.assign({ connect: () => {} }, away) })).toEqual([]);
});

const handlers = { 'card.charge': () => 1, 'sms.send': () => 1 };

test('a kind that may have more slots than its worker: said; as many are no mistake', async () => {
  const handle = () => 1;
  const handlers = { a: { handle, concurrency: 11 }, b: { handle, concurrency: 10 }, c: handle };
  expect(await said({ handlers })).toEqual([
    ['warn', { kind: 'a', concurrency: 11 }, expect.stringMatching(/\(10\).*concurrency: 11 or more$/)],
  ]);
  expect(await said({ handlers, concurrency: 11 })).toEqual([]);
});

test('limits of a kind that is nearly a handler’s: which was meant', async () => {
  const lines = await said({ handlers, kinds: { 'card.chrage': { maxRunning: 5 } } });
  expect(lines).toEqual([
    ['warn', { kind: 'card.chrage' }, expect.stringContaining('; did you mean card.charge?')],
  ]);
});

test('limits of a kind that another worker serves are no warning, also beside a name like it with its own', async () => {
  const kinds = {
    'mail.send': { maxRunning: 1 },
    'sms.send': { maxRunning: 1 },
    'mms.send': { maxRunning: 1 },
  };
  const lines = await said({ handlers, kinds });
  expect(lines.map(([level, fields]) => [level, fields])).toEqual([
    ['info', { kind: 'mail.send' }],
    ['info', { kind: 'mms.send' }],
  ]);
  expect(await said({ handlers, kinds: { 'sms.send': { maxRunning: 1 } } })).toEqual([]);
});

const kindSays = async (options: object): Promise<Line[]> =>
  said({ handlers: { a: { handle: () => 1, ...options } as never } });

test.each([
  ['maxAttempts', /Give each job its maxAttempts: enqueue\(/],
  ['maxAttempt', /Give each job its maxAttempts: enqueue\(/],
  ['retries', /Give each job its maxAttempts: enqueue\(/],
  ['timeoutMs', /no time limit.*AbortSignal\.timeout/],
  ['Timeout', /no time limit.*AbortSignal\.timeout/],
  ['backoff', /retryPolicy/],
  ['maxRunning', /kinds: \{ <kind>: \{ maxRunning, rate \} \}/],
  ['leaseMs', /Give leaseMs to the worker/],
  ['orderingKey', /Give each job its orderingKey/],
])('%s of a kind is passed over, which is said with where it belongs', async (option, place) => {
  const [line, ...more] = await kindSays({ [option]: 3 });
  expect(line).toEqual(['warn', { kind: 'a', option }, expect.stringMatching(place)]);
  expect(more).toEqual([]);
});

test('what a handler keeps for itself is no warning: of a value it is said, of what it works with nothing', async () => {
  class Charger {
    readonly client = { send: () => 1 };
    handle = () => this.client.send();
  }
  expect(await said({ handlers: { a: new Charger() } })).toEqual([]);
  expect(
    await kindSays({ label: 'x', concurrency: 2, constructor: Charger, maxAttempts: undefined }),
  ).toEqual([
    ['info', { kind: 'a', option: 'label' }, expect.stringMatching(/passed over\. Options are handle, conc/)],
  ]);
});

test('of a kind with a schema, too', async () => {
  const anything = { '~standard': { version: 1, validate: (value: unknown) => ({ value }) } } as const;
  const kind = defineKind('a', anything);
  const lines = await said({ handlers: kind.handle(() => 1, { maxAttempts: 3 } as never) });
  expect(lines).toEqual([
    ['warn', { kind: 'a', option: 'maxAttempts' }, expect.stringContaining('enqueue(')],
  ]);
  const define = defineKind as (...all: readonly unknown[]) => unknown;
  expect(() => define('a', anything, { maxAttempts: 3 })).toThrow(
    /kind a go to \.handle\(handler, options\)/,
  );
});
