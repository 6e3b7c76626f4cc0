/**
 * Cron expressions, time zones, times and changes of clocks as clients write them, through the doors that take them
 * (`POST /schedules`, `PUT /schedules/{name}`): each is refused as listed and leaves no row, or means what is listed.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Firing } from '../../src/jobs/firing.js';
import { createStore } from '../../src/jobs/store.js';
import { type ShimWorld, startShimWorld } from './shim-world.js';

let world: ShimWorld;

beforeAll(async () => {
  world = await startShimWorld();
});
afterAll(() => world?.close());

const TARGET = { url: 'http://127.0.0.1:9/hook' };

interface Answer {
  readonly status: number;
  readonly body: Record<string, unknown>;
}

async function ask(method: string, path: string, body?: object): Promise<Answer> {
  const response = await fetch(`${world.url}${path}`, {
    method,
    ...(body === undefined
      ? {}
      : { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }),
  });
  const text = await response.text();
  return { status: response.status, body: text === '' ? {} : (JSON.parse(text) as Record<string, unknown>) };
}

let drawn = 0;
const newName = (): string => {
  drawn += 1;
  return `s-${drawn}`;
};

/** By both doors: this status, a problem that does not repeat what was sent, and no row more. */
async function refusedByBoth(status: number, body: Record<string, unknown>, code?: string): Promise<void> {
  const before = await world.jobCount();
  for (const [method, path] of [
    ['POST', '/schedules'],
    ['PUT', `/schedules/${newName()}`],
  ] as const) {
    const answer = await ask(method, path, { target: TARGET, ...body });
    expect([method, answer.status]).toEqual([method, status]);
    if (code !== undefined) expect(answer.body['code']).toBe(code);
    expect(answer.body['status']).toBe(status);
    for (const given of Object.values(body))
      if (typeof given === 'string' && given.length > 12)
        expect(JSON.stringify(answer.body)).not.toContain(given);
  }
  expect(await world.jobCount()).toBe(before);
}

/** Made under a new name; its slots ahead. */
async function slotsOf(body: object, count: number): Promise<{ made: Answer; slots: Date[] }> {
  const name = newName();
  const made = await ask('PUT', `/schedules/${name}`, { target: TARGET, ...body });
  expect(made).toMatchObject({ status: 201 });
  const { body: next } = await ask('GET', `/schedules/${name}/next-runs?count=${count}`);
  return { made, slots: (next['items'] as string[]).map((text) => new Date(text)) };
}

describe('expressions that never fire', () => {
  it.each(['0 0 30 2 *', '0 0 31 4,6 *', '0 0 31 2 *', '0 0 31 2,4,6,9,11 *', '0 0 0 30 2 *', '0 0 31W 2 *'])(
    '%s: 422, found out within a second',
    async (cron) => {
      const before = process.cpuUsage();
      await refusedByBoth(422, { cron }, 'schedule-never');
      // The servers run in this process; CPU, since a busy machine takes its time for everything.
      expect(process.cpuUsage(before).user).toBeLessThan(3_000_000);
    },
  );

  it('a rule whose first slot lies behind its end: 422', async () => {
    await refusedByBoth(422, { cron: '0 0 1 1 *', expiresAt: '2024-01-01T00:00:00Z' }, 'schedule-never');
  });
});

describe('expressions that cannot be read', () => {
  it.each([
    '*/0 * * * *',
    '*/-2 * * * *',
    '*/1.5 * * * *',
    '60 * * * *',
    '* 24 * * *',
    '* * 0 * *',
    '* * 32 * *',
    '* * * 0 *',
    '* * * 13 *',
    '* * * * 8',
    '-1 * * * *',
    '5-1 * * * *',
    '* 22-6 * * *',
    '* * * * FRI-MON',
    '1,,2 * * * *',
    ',1 * * * *',
    '1- * * * *',
    '1-2-3 * * * *',
    '1/ * * * *',
    '* * * * MONDAY',
    '* * * JANUARY *',
    '* * * * MON#6',
    '* * * * MON#0',
    '* * * * #2',
    '* * 15WW * *',
    '* * 32W * *',
    '* * L-40 * *',
    'L * * * *',
    '* W * * *',
    '* * * W *',
    '* * * *',
    '*',
    '* * * * * * *',
    '@reboot',
    '@never',
    '@every',
    '@every 0s',
    '@every -5s',
    '@every 1e3s',
    '@every 999999999999d',
    '@ daily',
    'H * * * *',
    '* * * * *; rm -rf /',
    '* * * * *\n0 0 * * *',
    '\u0661 * * * *',
    '\uff11 * * * *',
    '* * * * *\u0007',
    '% * * * *',
    '$(id) * * * *',
  ])('%j: 422', async (cron) => {
    await refusedByBoth(422, { cron }, 'schedule-invalid');
  });

  it.each([
    ['2,000 characters', `${'1,'.repeat(999)}1 * * * *`],
    ['a list of 5,000', `${'1,'.repeat(4_990)}1 * * * *`],
    ['one character past 500', `${'1,'.repeat(246)}1 * * * *`.padEnd(501)],
  ])('%s: 422', async (_name, cron) => {
    await refusedByBoth(422, { cron }, 'schedule-invalid');
  });

  it.each([
    ['a list of 10,000', { cron: `${'1,'.repeat(10_000)}1 * * * *` }],
    ['a number', { cron: 5 }],
    ['a list', { cron: ['* * * * *'] }],
    ['an object', { cron: {} }],
    ['empty', { cron: '' }],
    ['beside runAt', { cron: '* * * * *', runAt: '2030-01-01T00:00:00Z' }],
    ['beside delayMs', { cron: '* * * * *', delayMs: 1 }],
    ['beside both', { cron: '* * * * *', delayMs: 1, runAt: '2030-01-01T00:00:00Z' }],
    ['absent, as all times are', {}],
    ['null, as all times are', { cron: null, runAt: null, delayMs: null }],
  ])('%s: 400', async (_name, body) => {
    await refusedByBoth(400, body, 'invalid');
  });

  it('of exactly 500 characters it is taken, and stored in its one form', async () => {
    const list = Array.from({ length: 60 }, (_, minute) => minute).join(',');
    const cron = `${list} * * * *`.padEnd(500);
    const { made } = await slotsOf({ cron }, 1);
    expect(made.body['cron']).toBe(`${list} * * * *`);
  });
});

describe('what the forms mean', () => {
  /** The next slots must all fit, and no earlier one may be left out: each says which days, hours and minutes. */
  it.each<[string, string, (at: Date) => boolean, number]>([
    ['L is the last day', '0 12 L * *', (at) => at.getUTCDate() >= 28 && dayAfter(at).getUTCDate() === 1, 12],
    ['LW is the last weekday', '0 12 LW * *', (at) => isWeekday(at) && lastWeekday(at), 12],
    ['15W is the weekday next to the 15th', '0 12 15W * *', (at) => isWeekday(at) && near(at, 15), 12],
    ['1W does not leave the month', '0 12 1W * *', (at) => isWeekday(at) && at.getUTCDate() <= 3, 12],
    ['MON#2 is the second Monday', '0 12 * * MON#2', (at) => at.getUTCDay() === 1 && nth(at) === 2, 12],
    ['5L is the last Friday', '0 12 * * 5L', (at) => at.getUTCDay() === 5 && inLastWeek(at), 12],
    ['FRIL is, too', '0 12 * * FRIL', (at) => at.getUTCDay() === 5 && inLastWeek(at), 12],
    ['7 is Sunday', '0 12 * * 7', (at) => at.getUTCDay() === 0, 52],
    ['0 is Sunday', '0 12 * * 0', (at) => at.getUTCDay() === 0, 52],
    ['a step past the end is the start', '*/60 12 1 * *', (at) => at.getUTCMinutes() === 0, 12],
    ['? is *', '0 12 ? * MON', (at) => at.getUTCDay() === 1, 52],
    ['names in any case', '0 12 1 jAn-mAR *', (at) => at.getUTCMonth() <= 2, 3],
    ['six fields begin with seconds', '30 0 12 1 * *', (at) => at.getUTCSeconds() === 30, 12],
    ['day and weekday: either', '0 12 13 * FRI', (at) => at.getUTCDate() === 13 || at.getUTCDay() === 5, 60],
    ['@monthly', '@monthly', (at) => at.getUTCDate() === 1 && at.getUTCHours() === 0, 12],
    ['@WEEKLY', '@WEEKLY', (at) => at.getUTCDay() === 0 && at.getUTCHours() === 0, 52],
  ])('%s', async (_name, cron, fits, aYear) => {
    const { slots } = await slotsOf({ cron, timeZone: 'UTC' }, aYear);
    expect(slots).toHaveLength(aYear);
    for (const at of slots) expect([at.toISOString(), fits(at)]).toEqual([at.toISOString(), true]);
    const days = ((slots.at(-1) as Date).getTime() - (slots[0] as Date).getTime()) / 86_400_000;
    expect(days).toBeLessThan(370);
  });

  const dayAfter = (at: Date): Date => new Date(at.getTime() + 86_400_000);
  const isWeekday = (at: Date): boolean => at.getUTCDay() >= 1 && at.getUTCDay() <= 5;
  const lastWeekday = (at: Date): boolean => {
    let next = dayAfter(at);
    while (!isWeekday(next)) next = dayAfter(next);
    return next.getUTCMonth() !== at.getUTCMonth();
  };
  const near = (at: Date, day: number): boolean => Math.abs(at.getUTCDate() - day) <= 1;
  const nth = (at: Date): number => Math.ceil(at.getUTCDate() / 7);
  const inLastWeek = (at: Date): boolean =>
    new Date(at.getTime() + 7 * 86_400_000).getUTCMonth() !== at.getUTCMonth();
});

describe('changes of clocks', () => {
  it('30 2 * * * in New York, in the gap: once, at 03:00 local, the first instant there is', async () => {
    const { slots } = await slotsOf({ cron: '30 2 * 3 SUN', timeZone: 'America/New_York' }, 30);
    const second = slots.filter((at) => at.getUTCDate() >= 8 && at.getUTCDate() <= 14);
    expect(second.length).toBeGreaterThanOrEqual(5);
    for (const at of slots) {
      const day = at.getUTCDate();
      const hour = day < 8 ? '07:30' : day <= 14 ? '07:00' : '06:30';
      expect(at.toISOString().slice(11, 16)).toBe(hour);
    }
  });

  it('30 1 * * * in New York, in the repeated hour: once, the first time', async () => {
    const { slots } = await slotsOf({ cron: '30 1 * 11 SUN', timeZone: 'America/New_York' }, 30);
    const days = slots.map((at) => at.toISOString().slice(0, 10));
    expect(new Set(days).size).toBe(days.length);
    for (const at of slots)
      expect(at.toISOString().slice(11, 16)).toBe(at.getUTCDate() <= 7 ? '05:30' : '06:30');
  });

  it('*/30 * * * * goes on through both', async () => {
    const { slots } = await slotsOf({ cron: '*/30 * * * *', timeZone: 'America/New_York' }, 200);
    for (const [index, at] of slots.slice(1).entries())
      expect(at.getTime() - (slots[index] as Date).getTime()).toBe(1_800_000);
  });

  it('half an hour, as Lord Howe has it: 02:15 in the gap is 02:30 there', async () => {
    const { slots } = await slotsOf({ cron: '15 2 * 10 SUN', timeZone: 'Australia/Lord_Howe' }, 20);
    // The first Sunday of October, 02:00 +10:30, is followed by 02:30 +11.
    const first = slots.filter((at) => new Date(at.getTime() + 11 * 3_600_000).getUTCDate() <= 7);
    expect(first.length).toBeGreaterThanOrEqual(3);
    for (const at of first) expect(at.toISOString().slice(11, 16)).toBe('15:30');
  });
});

describe('zones', () => {
  it.each([
    'Mars/Base',
    'Europe/Nowhere',
    '+02:00',
    '-0500',
    'UTC+2',
    'GMT+25',
    'local',
    'localtime',
    'posixrules',
    'Factory',
    'ACT',
    'PST',
    ' Asia/Kathmandu',
    'Asia/Kathmandu ',
    'Asia / Kathmandu',
    '../etc/passwd',
    'Europe/../Europe/Paris',
    '/usr/share/zoneinfo/Europe/Paris',
    ':Europe/Paris',
    'posix/Europe/Paris',
    'right/Europe/Paris',
    'Europe/Paris\u0000',
    'Europe/Paris\n',
    'Europe/\u0420aris',
    'Europe',
    'EST5EDT,M3.2.0,M11.1.0',
    'x'.repeat(100),
  ])('%j: 422', async (timeZone) => {
    await refusedByBoth(422, { cron: '0 9 * * *', timeZone });
  });

  it.each([
    ['empty', ''],
    ['a number', 2],
    ['101 characters', 'x'.repeat(101)],
    ['a list', ['UTC']],
  ])('%s: 400', async (_name, timeZone) => {
    await refusedByBoth(400, { cron: '0 9 * * *', timeZone });
  });

  it.each([
    ['Europe/Kyiv', 'Europe/Kiev'],
    ['Europe/Kiev', 'Europe/Kyiv'],
    ['EST5EDT', 'America/New_York'],
    ['US/Eastern', 'America/New_York'],
    ['Asia/Calcutta', 'Asia/Kolkata'],
    ['Asia/Saigon', 'Asia/Ho_Chi_Minh'],
    ['europe/PARIS', 'Europe/Paris'],
    ['utc', 'Etc/UTC'],
    ['GMT', 'UTC'],
    ['Etc/GMT+5', 'Etc/GMT+5'],
    ['America/Argentina/Buenos_Aires', 'America/Buenos_Aires'],
  ])('%s is a name of %s', async (one, other) => {
    const rule = { cron: '0 9 * * MON' };
    const [a, b] = [
      await slotsOf({ ...rule, timeZone: one }, 60),
      await slotsOf({ ...rule, timeZone: other }, 60),
    ];
    expect(a.slots).toEqual(b.slots);
    expect(a.slots).toHaveLength(60);
  });

  it('what Postgres says of the slots is what was asked for', async () => {
    const { made, slots } = await slotsOf({ cron: '0 9 * * *', timeZone: 'Asia/Kathmandu' }, 3);
    const { rows } = await world.database.pool.query<{ clock: string }>(
      `select to_char(at at time zone $2, 'HH24:MI') as clock from unnest($1::timestamptz[]) as at`,
      [slots, made.body['timeZone']],
    );
    expect(rows.map(({ clock }) => clock)).toEqual(['09:00', '09:00', '09:00']);
  });
});

describe('times', () => {
  it.each([
    '2030-12-31T23:59:60Z',
    '2016-12-31T23:59:60Z',
    '2030-06-30T23:59:61Z',
    '2030-02-29T00:00:00Z',
    '2030-04-31T00:00:00Z',
    '2030-13-01T00:00:00Z',
    '2030-00-10T00:00:00Z',
    '2030-01-00T00:00:00Z',
    '2030-01-01T25:00:00Z',
    '2030-01-01T00:60:00Z',
    '+275760-09-13T00:00:00Z',
    '+275760-09-13T00:00:01Z',
    '275760-09-13T00:00:00Z',
    '-000001-01-01T00:00:00Z',
    '10000-01-01T00:00:00Z',
    '0000-01-01T00:00:00Z',
    '2030-01-01T00:00:00+99:00',
    '2030-01-01T00:00:00+24:00',
    '2030-01-01T00:00:00[Europe/Paris]',
    '2030-01-01T00:00:00.1234567890Z',
    '2030-01-01T00:00:00,5Z',
    '2030-W01-1',
    '2030-001',
    '20300101T000000Z',
    'Tue, 01 Jan 2030 00:00:00 GMT',
    '1893456000',
    'infinity',
    '-infinity',
    'now',
    'tomorrow',
    'epoch',
    '',
    ' 2030-01-01T00:00:00Z',
    '2030-01-01T00:00:00Z\n',
    '\u0662\u0660\u0663\u0660-01-01T00:00:00Z',
  ])('runAt %j: 400', async (runAt) => {
    await refusedByBoth(400, { runAt }, 'invalid');
    await refusedByBoth(400, { cron: '0 9 * * *', expiresAt: runAt }, 'invalid');
  });

  it.each<[string, string]>([
    ['2030-01-01T00:00:00Z', '2030-01-01T00:00:00.000Z'],
    ['2030-01-01t00:00:00z', '2030-01-01T00:00:00.000Z'],
    ['2030-01-01 00:00:00Z', '2030-01-01T00:00:00.000Z'],
    ['2030-01-01T00:00Z', '2030-01-01T00:00:00.000Z'],
    ['2030-01-01', '2030-01-01T00:00:00.000Z'],
    ['2030-01-01T02:00:00+02:00', '2030-01-01T00:00:00.000Z'],
    ['2030-01-01T02:00:00+0200', '2030-01-01T00:00:00.000Z'],
    ['2029-12-31T14:00:00-10:00', '2030-01-01T00:00:00.000Z'],
    ['2030-01-01T00:00:00.123456789Z', '2030-01-01T00:00:00.123Z'],
    ['2030-01-01T00:00:00', '2030-01-01T00:00:00.000Z'],
    ['2032-02-29T00:00:00Z', '2032-02-29T00:00:00.000Z'],
    ['9999-12-31T23:59:59Z', '9999-12-31T23:59:59.000Z'],
    ['1970-01-01T00:00:00Z', '1970-01-01T00:00:00.000Z'],
    ['0001-01-01T00:00:00Z', '0001-01-01T00:00:00.000Z'],
  ])('runAt %s is %s, and comes back so', async (runAt, meant) => {
    const made = await ask('POST', '/schedules', { runAt, target: TARGET });
    expect(made).toMatchObject({ status: 201, body: { runAt: meant } });
    expect((await ask('GET', `/schedules/${made.body['id']}`)).body['runAt']).toBe(meant);
  });

  it('both delayMs and runAt: the delay, as the old service took it', async () => {
    const at = Date.now();
    const made = await ask('POST', '/schedules', {
      runAt: '2099-01-01T00:00:00Z',
      delayMs: 3_600_000,
      target: TARGET,
    });
    const ms = Date.parse(String(made.body['runAt'])) - at;
    expect(Math.abs(ms - 3_600_000)).toBeLessThan(60_000);
  });

  it.each([2 ** 31 - 1, 2 ** 31, 2 ** 31 + 1, 2 ** 32 + 5, 10 * 366 * 86_400_000])(
    'a delay of %d ms is a stored time, not a timer',
    async (delayMs) => {
      const at = Date.now();
      const made = await ask('POST', '/schedules', { delayMs, target: TARGET });
      expect(made.status).toBe(201);
      expect(Math.abs(Date.parse(String(made.body['runAt'])) - at - delayMs)).toBeLessThan(60_000);
      const { rows } = await world.database.pool.query<{ state: string; attempts: number }>(
        'select state, attempts from unbroker.jobs where id = $1',
        [made.body['id']],
      );
      expect(rows).toEqual([{ state: 'ready', attempts: 0 }]);
    },
  );

  it.each([-1, 0.5, 1e300, 10 * 366 * 86_400_000 + 1, '5', true, [1], {}])(
    'a delay of %j: 400',
    async (delayMs) => {
      await refusedByBoth(400, { delayMs }, 'invalid');
    },
  );
});

describe('a scheduler that was down over three slots', () => {
  it.each<[string, string[]]>([
    ['skip', []],
    ['once', ['2025-07-01T11:00:00.000Z']],
    ['all', ['2025-07-01T09:00:00.000Z', '2025-07-01T10:00:00.000Z', '2025-07-01T11:00:00.000Z']],
  ])('%s', async (misfire, expected) => {
    const name = newName();
    const put = await ask('PUT', `/schedules/${name}`, { cron: '0 * * * *', misfire, target: TARGET });
    expect(put).toMatchObject({ status: 201, body: { misfire } });
    await due(name, '2025-07-01T09:00:00Z');
    await fireAt('2025-07-01T11:30:00Z');
    expect(await firedBy(name)).toEqual(expected);
    expect((await ask('GET', `/schedules/${name}`)).body['runAt']).toBe('2025-07-01T12:00:00.000Z');
  });

  it('over the gap of 2025-03-09 in New York: once, at 03:00 local, then at 02:30 again', async () => {
    const name = newName();
    const rule = { cron: '30 2 * * *', timeZone: 'America/New_York', misfire: 'all', target: TARGET };
    expect((await ask('PUT', `/schedules/${name}`, rule)).status).toBe(201);
    await due(name, '2025-03-08T07:30:00Z');
    await fireAt('2025-03-10T12:00:00Z');
    expect(await firedBy(name)).toEqual([
      '2025-03-08T07:30:00.000Z',
      '2025-03-09T07:00:00.000Z',
      '2025-03-10T06:30:00.000Z',
    ]);
  });

  it('newer tzdata: the slot that the older had computed is computed anew, the wall time kept', async () => {
    const name = newName();
    const rule = { cron: '0 9 * * *', timeZone: 'America/New_York', target: TARGET };
    await ask('PUT', `/schedules/${name}`, rule);
    // As an older file, without summer time, would have had it.
    await due(name, '2025-07-01T14:00:00Z', '2025-06-30T15:00:00Z');
    await world.database.pool.query(
      `update unbroker.jobs set tz_version = '1999a' where dedupe_key = 'schedule:' || $1`,
      [name],
    );
    await fireAt('2025-07-01T12:00:00Z');
    expect(await firedBy(name)).toEqual([]);
    expect((await ask('GET', `/schedules/${name}`)).body['runAt']).toBe('2025-07-01T13:00:00.000Z');
  });

  it('another policy: 400', async () => {
    await refusedByBoth(400, { cron: '@hourly', misfire: 'twice' }, 'invalid');
    await refusedByBoth(400, { cron: '@hourly', misfire: 'ALL' }, 'invalid');
  });
});

/** The next slot of a schedule, and up to when its slots are settled. */
async function due(name: string, runAt: string, slotsUntil = runAt): Promise<void> {
  const { rowCount } = await world.database.pool.query(
    `update unbroker.jobs set run_at = $2, slots_until = $3 where dedupe_key = 'schedule:' || $1`,
    [name, runAt, slotsUntil],
  );
  expect(rowCount).toBe(1);
}

/** What a worker's upkeep does, at a time that is told. */
async function fireAt(clock: string): Promise<void> {
  const firing = new Firing({
    store: createStore(),
    db: world.database.pool,
    clock: () => new Date(clock),
  });
  await firing.sweep();
  await firing.sweep();
}

async function firedBy(name: string): Promise<string[]> {
  const { body } = await ask('GET', `/schedules/${name}/history`);
  return (body['items'] as { runAt: string }[]).map(({ runAt }) => runAt).reverse();
}
