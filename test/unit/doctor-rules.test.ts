/** Judgements of what no test server can be brought to: exhausted ids, full queues, clocks apart, slots left behind. */
import { expect, test } from 'vitest';
import {
  ago,
  judgeConnections,
  judgeDeadRows,
  judgeHorizon,
  judgeNotifyQueue,
  judgePrepared,
  judgeServer,
  judgeSettings,
  judgeSlots,
  judgeXidAge,
  type Status,
} from '../../src/doctor/rules.js';

test.each<[number, number, Status]>([
  [499_999_999, 0, 'ok'],
  [500_000_000, 0, 'warn'],
  [1_000_000_000, 0, 'bad'],
  [0, 500_000_000, 'warn'],
])('%i transactions and %i multixacts since the oldest frozen row: %s', (xidAge, multixactAge, status) => {
  expect(judgeXidAge({ xidAge, multixactAge }).status).toBe(status);
});

test.each<[number, Status]>([
  [59_999, 'ok'],
  [60_000, 'warn'],
  [600_000, 'bad'],
])('a transaction open for %i ms: %s', (transactionMs, status) => {
  const row = {
    pid: 7,
    applicationName: '',
    backendType: 'client backend',
    state: 'active',
    waitsFor: null,
    transactionMs,
    queryMs: 1,
    xidAge: 1,
    query: null,
  };
  expect(judgeHorizon([row])).toMatchObject({
    status,
    found: expect.stringContaining('pid 7 (no application_name, active)'),
  });
  expect(judgePrepared([{ name: 'p', owner: 'o', preparedMs: transactionMs }]).status).toBe(status);
});

test('a standby that feeds back has no transaction of its own: its age in transactions counts', () => {
  const row = {
    pid: 8,
    applicationName: 'standby',
    backendType: 'walsender',
    state: null,
    waitsFor: null,
    transactionMs: null,
    queryMs: null,
    xidAge: 60_000_000,
    query: null,
  };
  expect(judgeHorizon([row])).toMatchObject({
    status: 'bad',
    found: 'held by pid 8 (standby, walsender), 60,000,000 xids old',
  });
});

test('dead rows: many and a large share, not one alone', () => {
  const row = { estimatedRows: 0, bytes: 0, options: null, vacuumedMs: null, autovacuumedMs: null };
  expect(judgeDeadRows({ ...row, live: 0, dead: 40_000 }).status).toBe('ok');
  expect(judgeDeadRows({ ...row, live: 10_000_000, dead: 600_000 }).status).toBe('ok');
  expect(judgeDeadRows({ ...row, live: 600_000, dead: 600_000 }).status).toBe('bad');
  expect(judgeDeadRows({ ...row, live: 100_000, dead: 60_000 }).status).toBe('warn');
  expect(judgeDeadRows({ ...row, live: null, dead: null }).found).toBe('0 dead (0.00%), vacuumed never');
});

test('slots: left behind, holding rows, holding the log', () => {
  const slot = { name: 's', active: true, xidAge: null, walStatus: 'reserved', walBytes: 0 };
  expect(judgeSlots([]).status).toBe('ok');
  expect(judgeSlots([slot, { ...slot, xidAge: 10 }]).status).toBe('ok');
  expect(judgeSlots([slot, { ...slot, name: 'left', active: false, xidAge: 10 }])).toMatchObject({
    status: 'warn',
    found: 'held back by left',
  });
  expect(judgeSlots([{ ...slot, xidAge: 50_000_000 }]).status).toBe('bad');
  expect(judgeSlots([{ ...slot, walBytes: 2e10 }]).status).toBe('warn');
  expect(judgeSlots([{ ...slot, walStatus: 'lost' }]).status).toBe('warn');
});

test('queue, connections, clocks, settings', () => {
  expect(judgeNotifyQueue({ used: 0.5 }).status).toBe('bad');
  expect(judgeNotifyQueue({ used: 0.05 }).status).toBe('ok');
  expect(judgeConnections({ used: 80, max: 97 }).status).toBe('warn');
  expect(judgeConnections({ used: 97, max: 97 }).status).toBe('bad');
  const server = { version: '15.1', standby: false, readOnly: false, seesAll: true, nowMs: 10_000 };
  const statuses = (row: typeof server, clockMs = 10_000) => judgeServer(row, clockMs).map((f) => f.status);
  expect(statuses(server)).toEqual(['ok', 'ok', 'ok']);
  expect(statuses(server, 4_000)).toEqual(['ok', 'ok', 'warn']);
  expect(statuses({ ...server, standby: true })).toEqual(['bad', 'ok', 'ok']);
  const off = judgeSettings(
    ['fsync', 'full_page_writes', 'synchronous_commit', 'autovacuum'].map((name) => ({ name, value: 'off' })),
  );
  expect(off.filter(({ status }) => status === 'bad')).toHaveLength(4);
});

test('every finding that is not well says what to do next', () => {
  expect(judgeNotifyQueue({ used: 0.01 }).next).toBeNull();
  expect(judgeNotifyQueue({ used: 0.2 }).next).toMatch(/\.$/);
});

test('times for people', () => {
  expect([null, 0, 119_400, 120_000, 7_199_000, 7_200_000, 200_000_000].map(ago)).toEqual([
    'never',
    '0s',
    '119s',
    '2m',
    '120m',
    '2h',
    '2d',
  ]);
});
