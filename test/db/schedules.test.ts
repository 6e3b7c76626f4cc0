/**
 * Schedules as a caller has them: made, changed, fired, missed, paused, ended; what is refused leaves nothing behind.
 * Slots are set in the table, or the clock is passed; nothing is waited for.
 */
import { afterAll, beforeEach, describe, expect, test } from 'vitest';
import { UnbrokerError } from '../../src/errors.js';
import { Firing, type FiringOptions } from '../../src/jobs/firing.js';
import type { Misfire, Queryable, Schedule } from '../../src/jobs/job.js';
import type { Fired } from '../../src/jobs/schedule-store.js';
import { readMigrations } from '../../src/migrate.js';
import { createSchedules, type ScheduleOptions } from '../../src/schedules.js';
import { jobsDatabase } from '../support/jobs.js';

const db = await jobsDatabase();
afterAll(() => db.close());
beforeEach(() => db.clear());

const {
  schedule,
  unschedule,
  pauseSchedule,
  resumeSchedule,
  triggerSchedule,
  findSchedule,
  listSchedules,
  nextRuns,
  scheduleHistory,
} = createSchedules();

const put = (options: Partial<ScheduleOptions> = {}): Promise<Schedule & { created: boolean }> =>
  schedule(db.pool, {
    name: 'report',
    kind: 'report.daily',
    ...(options.everyMs === undefined ? { cron: '0 9 * * *' } : {}),
    ...options,
  });

/** A firing whose clock is told; `fired` collects what it did. */
function firingAt(clock: string | (() => Date), more: Partial<FiringOptions> = {}) {
  const fired: Fired[] = [];
  const firing = new Firing({
    store: db.store,
    db: db.pool,
    onFired: (schedules) => fired.push(...schedules),
    clock: typeof clock === 'string' ? () => new Date(clock) : clock,
    ...more,
  });
  return { firing, fired };
}

/** Sets the next slot of a schedule. */
async function due(name: string, runAt: string): Promise<void> {
  await db.pool.query(
    `update unbroker.jobs set run_at = $2, slots_until = $2 where dedupe_key = 'schedule:' || $1`,
    [name, runAt],
  );
}

const slotsOf = async (name: string): Promise<string[]> =>
  (await scheduleHistory(db.pool, name, { limit: 1_000 })).map(({ runAt }) => runAt.toISOString()).reverse();

const nextOf = async (name: string): Promise<string | undefined> =>
  (await findSchedule(db.pool, name))?.nextRunAt?.toISOString();

const count = async (): Promise<number> =>
  Number((await db.pool.query<{ count: string }>('select count(*) from unbroker.jobs')).rows[0]?.count);

describe('firing', () => {
  test('a slot becomes a job, and the schedule goes on', async () => {
    const made = await put({
      timeZone: 'Europe/Paris',
      payload: { to: 'board', n: [1, 2] },
      priority: 7,
      maxAttempts: 3,
      headers: { trace: 'x' },
      retryPolicy: { type: 'fixed', delayMs: 5 },
      source: 'crontab:17',
    });
    await due('report', '2025-07-01T07:00:00Z');
    const { firing, fired } = firingAt('2025-07-01T07:00:00.250Z');
    await firing.sweep();
    const [job] = await scheduleHistory(db.pool, 'report');
    expect(fired).toEqual([
      { id: made.id, name: 'report', kind: 'report.daily', ended: false, jobs: [job?.id] },
    ]);
    expect(job).toMatchObject({
      kind: 'report.daily',
      state: 'ready',
      payloadText: '{"n": [1, 2], "to": "board"}',
      priority: 7,
      maxAttempts: 3,
      attempts: 0,
      runAt: new Date('2025-07-01T07:00:00Z'),
      dedupeKey: `slot:${made.id}:2025-07-01T07:00:00.000Z`,
      source: 'schedule:report',
      headers: { trace: 'x', schedule: { name: 'report', at: '2025-07-01T07:00:00.000Z' } },
    });
    expect(await nextOf('report')).toBe('2025-07-02T07:00:00.000Z');
    // The job can be claimed, the schedule cannot.
    expect((await db.claim('report.daily')).map(({ id, retryPolicy }) => ({ id, retryPolicy }))).toEqual([
      { id: job?.id, retryPolicy: { type: 'fixed', delayMs: 5 } },
    ]);
    expect(await db.claim('report.daily')).toEqual([]);
  });

  test('the same payload, digit by digit, and bytes that jsonb cannot hold', async () => {
    await put({ payloadText: '{"order": 9007199254740993}' });
    await put({ name: 'bytes' });
    await db.pool.query(
      `update unbroker.jobs set payload = null, body = '\\x00ff', content_type = 'a/b' where dedupe_key = 'schedule:bytes'`,
    );
    await due('report', '2025-07-01T09:00:00Z');
    await due('bytes', '2025-07-01T09:00:00Z');
    await firingAt('2025-07-01T09:00:01Z').firing.sweep();
    expect((await scheduleHistory(db.pool, 'report'))[0]?.payloadText).toBe('{"order": 9007199254740993}');
    expect(await db.claim('report.daily', { total: 9 })).toContainEqual(
      expect.objectContaining({ payloadText: null, body: Buffer.from([0, 255]), contentType: 'a/b' }),
    );
  });

  test('not a moment early; how long until the next is told', async () => {
    await put();
    await due('report', '2025-07-01T09:00:00.500Z');
    expect(await firingAt('2025-07-01T09:00:00.100Z').firing.sweep()).toBe(400);
    expect(await firingAt('2025-07-01T08:00:00Z').firing.sweep()).toBe(1_000);
    expect(await slotsOf('report')).toEqual([]);
    await firingAt('2025-07-01T09:00:00.500Z').firing.sweep();
    expect(await slotsOf('report')).toHaveLength(1);
  });

  test.each<[Misfire, string[]]>([
    ['skip', []],
    ['once', ['2025-07-03T09:00:00.000Z']],
    ['all', ['2025-07-01T09:00:00.000Z', '2025-07-02T09:00:00.000Z', '2025-07-03T09:00:00.000Z']],
  ])('down over three slots: %s', async (misfire, expected) => {
    await put({ misfire });
    await due('report', '2025-07-01T09:00:00Z');
    const { firing } = firingAt('2025-07-03T12:00:00Z');
    await firing.sweep();
    await firing.sweep();
    expect(await slotsOf('report')).toEqual(expected);
    expect(await nextOf('report')).toBe('2025-07-04T09:00:00.000Z');
  });

  test('all makes up for a thousand at most', async () => {
    await put({ misfire: 'all', cron: '* * * * *' });
    await due('report', '2025-07-01T00:00:00Z');
    await firingAt('2025-07-08T00:00:30Z').firing.sweep();
    const slots = await slotsOf('report');
    expect([slots.length, slots[0], slots.at(-1)]).toEqual([
      1_000,
      '2025-07-01T00:00:00.000Z',
      '2025-07-01T16:39:00.000Z',
    ]);
    expect(await nextOf('report')).toBe('2025-07-08T00:01:00.000Z');
  });

  test('over a gap once, at its end; in a repeated hour once', async () => {
    await put({ cron: '30 2 * * *', timeZone: 'America/New_York', misfire: 'all' });
    await put({ name: 'half past one', cron: '30 1 * * *', timeZone: 'America/New_York', misfire: 'all' });
    await due('report', '2025-03-08T07:30:00Z');
    await due('half past one', '2025-11-01T05:30:00Z');
    await firingAt('2025-03-10T12:00:00Z').firing.sweep();
    expect(await slotsOf('report')).toEqual([
      '2025-03-08T07:30:00.000Z',
      '2025-03-09T07:00:00.000Z',
      '2025-03-10T06:30:00.000Z',
    ]);
    await unschedule(db.pool, 'report');
    await firingAt('2025-11-03T12:00:00Z').firing.sweep();
    expect(await slotsOf('half past one')).toEqual([
      '2025-11-01T05:30:00.000Z',
      '2025-11-02T05:30:00.000Z',
      '2025-11-03T06:30:00.000Z',
    ]);
    const { rows } = await db.pool.query(
      `select to_char(run_at at time zone 'America/New_York', 'HH24:MI') as wall from unbroker.jobs
       where source = 'schedule:report' order by run_at`,
    );
    expect(rows).toEqual([{ wall: '02:30' }, { wall: '03:00' }, { wall: '02:30' }]);
  });

  test('ten thousand due at once: a hundred a statement, each once', async () => {
    await put();
    await due('report', '2025-07-01T09:00:00Z');
    await db.pool.query(
      `insert into unbroker.jobs (kind, payload, dedupe_key, cron, time_zone, misfire, run_at, slots_until, tz_version)
       select 'bulk', 'null', 'schedule:bulk-' || i, cron, time_zone, misfire, run_at, slots_until, tz_version
       from unbroker.jobs, generate_series(1, 9999) as i`,
    );
    const sizes: number[] = [];
    const { firing } = firingAt('2025-07-01T09:00:01Z', {
      onFired: (schedules) => sizes.push(schedules.length),
    });
    let sweeps = 0;
    while ((await firing.sweep()) === 0) sweeps += 1;
    expect(sizes.reduce((sum, n) => sum + n, 0)).toBe(10_000);
    expect(Math.max(...sizes)).toBe(100);
    expect(sweeps).toBe(5);
    const { rows } = await db.pool.query(
      `select count(*)::int as jobs, count(distinct source)::int as schedules from unbroker.jobs where cron is null`,
    );
    expect(rows).toEqual([{ jobs: 10_000, schedules: 10_000 }]);
  }, 120_000);

  test('a thousand jobs a statement, when many are missed', async () => {
    for (let i = 0; i < 5; i += 1) {
      await put({ name: `s${i}`, cron: '* * * * *', misfire: 'all' });
      await due(`s${i}`, '2025-07-01T09:00:00Z');
    }
    const sizes: number[] = [];
    const { firing } = firingAt('2025-07-01T15:39:30Z', {
      onFired: (schedules) => sizes.push(schedules.reduce((sum, { jobs }) => sum + jobs.length, 0)),
    });
    await firing.sweep();
    expect(sizes).toEqual([800, 800, 400]);
  });

  test('what cannot be read is left alone and hinders nobody', async () => {
    await put();
    await put({ name: 'broken' });
    await put({ name: 'elsewhere' });
    await db.pool.query(`update unbroker.jobs set cron = '61 * * * *' where dedupe_key = 'schedule:broken'`);
    await db.pool.query(
      `update unbroker.jobs set time_zone = 'Mars/Base' where dedupe_key = 'schedule:elsewhere'`,
    );
    for (const name of ['broken', 'elsewhere']) await due(name, '2025-06-01T09:00:00Z');
    await due('report', '2025-07-01T09:00:00Z');
    const codes: string[] = [];
    const { firing } = firingAt('2025-07-01T09:00:01Z', {
      onUnreadable: (_id, { code }) => codes.push(code),
    });
    await firing.sweep();
    await firing.sweep();
    expect(await slotsOf('report')).toHaveLength(1);
    expect(codes.sort()).toEqual(['schedule-invalid', 'time-zone-unknown']);
    expect((await findSchedule(db.pool, 'broken'))?.nextRunAt).toEqual(new Date('2025-06-01T09:00:00Z'));
  });

  test('a table full of jobs does not make the look slower: it walks its own index', async () => {
    await put();
    await db.pool.query(
      `insert into unbroker.jobs (kind, run_at) select 'a', now() - interval '1 day' from generate_series(1, 20000)`,
    );
    await db.pool.query('analyze unbroker.jobs');
    const asked: string[] = [];
    const spy: Queryable = {
      query(text, values) {
        asked.push(text);
        return db.pool.query(text, values);
      },
    };
    await firingAt('2025-07-01T09:00:00Z', { db: spy }).firing.sweep();
    const look = asked.at(-1) as string;
    const { rows } = await db.pool.query(`explain (format json) ${look}`, [new Date(), 100, []]);
    expect(JSON.stringify(rows)).toContain('"jobs_schedule_due"');
    expect(JSON.stringify(rows)).not.toContain('Seq Scan');
  });
});

describe('making and changing', () => {
  test('made once, found by its name, changed under its id', async () => {
    const made = await put({ timeZone: 'europe/berlin' });
    expect(made).toMatchObject({
      created: true,
      name: 'report',
      kind: 'report.daily',
      cron: '0 9 * * *',
      timeZone: 'Europe/Berlin',
      misfire: 'once',
      paused: false,
      endAt: null,
    });
    expect(made.nextRunAt?.getTime()).toBeGreaterThan(Date.now());
    const changed = await put({ kind: 'other', cron: '0 10 * * *', misfire: 'all', payload: 1 });
    expect(changed).toMatchObject({
      created: false,
      id: made.id,
      kind: 'other',
      timeZone: 'UTC',
      payloadText: '1',
    });
    expect(await findSchedule(db.pool, 'report')).toEqual({ ...changed, created: undefined });
    expect(await count()).toBe(1);
  });

  test('the same rule put again, as each deploy does, keeps the slot that was missed', async () => {
    await put();
    await due('report', '2025-07-01T09:00:00Z');
    await put({ payload: 'new' });
    expect(await nextOf('report')).toBe('2025-07-01T09:00:00.000Z');
    await firingAt(() => new Date()).firing.sweep();
    expect((await scheduleHistory(db.pool, 'report')).map(({ payloadText }) => payloadText)).toEqual([
      '"new"',
    ]);
  });

  test.each<[string, Partial<ScheduleOptions>]>([
    ['another expression', { cron: '0 10 * * *' }],
    ['another zone', { timeZone: 'Asia/Tokyo' }],
    ['a start ahead', { startAt: new Date('2090-01-01T00:00:00Z') }],
  ])('%s begins anew', async (_what, change) => {
    await put();
    await due('report', '2025-07-01T09:00:00Z');
    const changed = await put(change);
    expect(changed.nextRunAt?.getTime()).toBeGreaterThan(Date.now());
    expect(changed.slotsUntil.getTime()).toBeGreaterThan(Date.now() - 60_000);
  });

  test('a start ahead is kept, and taken back when it is put without', async () => {
    const startAt = new Date('2090-01-01T00:00:00Z');
    expect((await put({ startAt })).nextRunAt).toEqual(new Date('2090-01-01T09:00:00Z'));
    expect((await put({ startAt })).nextRunAt).toEqual(new Date('2090-01-01T09:00:00Z'));
    await pauseSchedule(db.pool, 'report');
    expect((await resumeSchedule(db.pool, 'report'))?.nextRunAt).toEqual(new Date('2090-01-01T09:00:00Z'));
    expect((await put()).nextRunAt?.getTime()).toBeLessThan(Date.now() + 86_400_000);
  });

  test('a start on a slot is a slot; an end on a slot is none', async () => {
    const startAt = new Date('2090-01-01T09:00:00Z');
    const endAt = new Date('2090-01-03T09:00:00Z');
    await put({ startAt, endAt });
    expect(await nextRuns(db.pool, 'report', 9)).toEqual([startAt, new Date('2090-01-02T09:00:00Z')]);
  });

  test('an interval', async () => {
    expect(await put({ everyMs: 90_000 })).toMatchObject({ cron: '@every 90000ms' });
    await due('report', '2025-07-01T09:00:00Z');
    await firingAt('2025-07-01T09:04:00Z').firing.sweep();
    expect(await slotsOf('report')).toEqual(['2025-07-01T09:03:00.000Z']);
    expect(await nextOf('report')).toBe('2025-07-01T09:04:30.000Z');
  });

  test('in the caller’s transaction: there with its commit, gone with its rollback', async () => {
    const session = await db.session();
    await session.query('begin');
    await schedule(session, { name: 'a', kind: 'k', cron: '@daily', timeZone: 'Europe/Paris' });
    expect(await findSchedule(db.pool, 'a')).toBeNull();
    await session.query('rollback');
    expect(await findSchedule(db.pool, 'a')).toBeNull();
  });

  test('the same name from twenty callers at once is one schedule', async () => {
    const all = await Promise.all(Array.from({ length: 20 }, (_, i) => put({ payload: i })));
    expect(all.filter(({ created }) => created)).toHaveLength(1);
    expect(new Set(all.map(({ id }) => id)).size).toBe(1);
    expect(await count()).toBe(1);
  });

  test('a job’s dedupe key and a schedule’s name are strangers', async () => {
    await put();
    const [id] = await db.put('report.daily', [1], { dedupeKey: 'report' });
    expect(await db.job(id as string)).toMatchObject({ dedupeKey: 'report', payloadText: '1' });
  });

  test('in another schema', async () => {
    const other = await jobsDatabase({ schema: 'other' });
    try {
      const there = createSchedules('other');
      await there.schedule(other.pool, { name: 'a', kind: 'k', cron: '@daily' });
      expect(await there.listSchedules(other.pool)).toHaveLength(1);
    } finally {
      await other.close();
    }
  });
});

describe('refused, and nothing is written', () => {
  const code = async (options: Partial<ScheduleOptions>): Promise<string> => {
    const error = await put(options).catch((e: unknown) => e);
    expect(await count()).toBe(0);
    if (error instanceof UnbrokerError) return error.code;
    return error instanceof TypeError ? 'TypeError' : String(error);
  };

  test.each<[string, Partial<ScheduleOptions>]>([
    ['schedule-invalid', { cron: '60 * * * *' }],
    ['schedule-invalid', { cron: '@reboot' }],
    ['schedule-invalid', { everyMs: 10 }],
    ['schedule-invalid', { everyMs: Number.NaN }],
    ['schedule-invalid', { cron: '@daily', everyMs: 5_000 }],
    ['schedule-invalid', { name: '' }],
    ['schedule-invalid', { name: 'x'.repeat(201) }],
    ['schedule-invalid', { name: 'a\nb' }],
    ['schedule-invalid', { name: 'a\ud800' }],
    ['schedule-invalid', { misfire: 'twice' as Misfire }],
    ['schedule-invalid', { startAt: new Date('nonsense') }],
    ['schedule-invalid', { timezone: 'Europe/Berlin' } as never],
    ['schedule-invalid', { timeZone: 5 } as never],
    ['schedule-invalid', { paused: 'no' } as never],
    ['schedule-invalid', { dedupeKey: 'x' } as never],
    ['schedule-invalid', { endAt: '2030-01-01' as unknown as Date }],
    ['schedule-never', { cron: '0 0 30 2 *' }],
    [
      'schedule-never',
      { startAt: new Date('2090-01-02T00:00:00Z'), endAt: new Date('2090-01-02T00:00:00Z') },
    ],
    ['time-zone-unknown', { timeZone: 'Mars/Base' }],
    ['time-zone-unknown', { timeZone: '+02:00' }],
    ['time-zone-unknown', { timeZone: '' }],
    ['TypeError', { kind: '' }],
    ['TypeError', { payload: { when: new Date() } }],
    ['TypeError', { payload: '\u0000' }],
    ['TypeError', { priority: 40_000 }],
    ['TypeError', { maxAttempts: 0 }],
  ])('%s: %j', async (expected, options) => {
    expect(await code(options)).toBe(expected);
  });

  test.each<[string, string, unknown]>([
    [
      'it has no options',
      "Give, after the pool or transaction, name, kind and cron, for example '0 7",
      undefined,
    ],
    ['it has no options', 'name, kind and cron', null],
    [
      'nothing says when it fires',
      "Give cron, for example '0 7 * * *', or everyMs",
      { name: 'n', kind: 'k' },
    ],
    ['its cron is not a text', 'Give cron, for example', { name: 'n', kind: 'k', cron: 5 }],
    [
      'its cron is not a text',
      'Give cron, for example',
      { name: 'n', kind: 'k', cron: null, everyMs: 5_000 },
    ],
    ['its everyMs is not a number', 'Give cron, for example', { name: 'n', kind: 'k', everyMs: '5000' }],
    ['it has both', 'Give one of them', { name: 'n', kind: 'k', cron: '@daily', everyMs: 5_000 }],
    ['chron is no option', 'orderingKey; did you mean cron?', { name: 'n', kind: 'k', chron: '@daily' }],
    ['colour is no option', 'orderingKey.', { name: 'n', kind: 'k', colour: '@daily' }],
  ])('%s, with the next step: %s', async (said, hint, options) => {
    const error = await schedule(db.pool, options as ScheduleOptions).catch((e: unknown) => e);
    expect(error).toMatchObject({ code: 'schedule-invalid', message: expect.stringContaining(said) });
    expect((error as UnbrokerError).hint).toContain(hint);
    expect(await count()).toBe(0);
  });

  test('zones that only one of the two knows', async () => {
    const { rows } = await db.pool.query<{ name: string }>(
      'select lower(name) as name from pg_timezone_names',
    );
    const postgres = new Set(rows.map(({ name }) => name));
    // ICU reads three-letter names of its own; Postgres has names for the machine.
    expect(postgres.has('act')).toBe(false);
    expect(await code({ timeZone: 'ACT' })).toBe('time-zone-unknown');
    for (const zone of ['Factory', 'posix/Europe/Paris', 'localtime'])
      expect(await code({ timeZone: zone })).toBe('time-zone-unknown');
  });

  test('aliases are taken, old and new', async () => {
    for (const timeZone of [
      'Europe/Kiev',
      'Europe/Kyiv',
      'EST5EDT',
      'US/Eastern',
      'Asia/Calcutta',
      'Etc/GMT-2',
    ])
      expect(await put({ timeZone })).toMatchObject({ timeZone });
  });

  test('the table itself refuses a half-made schedule', async () => {
    const insert = `insert into unbroker.jobs (kind, cron, misfire, time_zone, slots_until, dedupe_key)`;
    await expect(
      db.pool.query(`${insert} values ('a', '* * * * *', 'once', null, now(), 'schedule:a')`),
    ).rejects.toThrow('jobs_schedule');
    await expect(
      db.pool.query(`${insert} values ('a', '* * * * *', 'twice', 'UTC', now(), 'schedule:a')`),
    ).rejects.toThrow('jobs_schedule');
    await expect(
      db.pool.query(`${insert} values ('a', '* * * * *', 'once', 'UTC', now(), 'a')`),
    ).rejects.toThrow('jobs_schedule');
    await expect(
      db.pool.query(`${insert} values ('a', null, 'once', 'UTC', now(), 'schedule:a')`),
    ).rejects.toThrow('jobs_schedule');
  });
});

describe('pausing, ending, looking', () => {
  test('paused: no slot fires; resumed: those that passed are dropped', async () => {
    await put({ misfire: 'all' });
    await due('report', '2025-07-01T09:00:00Z');
    expect(await pauseSchedule(db.pool, 'report')).toMatchObject({ paused: true });
    await firingAt('2025-07-03T12:00:00Z').firing.sweep();
    expect(await slotsOf('report')).toEqual([]);
    const resumed = await resumeSchedule(db.pool, 'report');
    expect(resumed).toMatchObject({ paused: false });
    expect(resumed?.nextRunAt?.getTime()).toBeGreaterThan(Date.now());
    await firingAt(() => new Date()).firing.sweep();
    expect(await slotsOf('report')).toEqual([]);
    // Twice is once.
    expect(await resumeSchedule(db.pool, 'report')).toEqual(resumed);
  });

  test('changing a paused schedule leaves it paused, unless it says otherwise', async () => {
    await put({ paused: true });
    await due('report', '2025-07-01T09:00:00Z');
    expect(await put({ payload: 2 })).toMatchObject({ paused: true });
    const resumed = await put({ paused: false });
    expect(resumed.paused).toBe(false);
    expect(resumed.nextRunAt?.getTime()).toBeGreaterThan(Date.now());
  });

  test('triggered: a job now, beside the slots, even while paused', async () => {
    await put({ payload: 5, paused: true });
    const before = await nextOf('report');
    const id = (await triggerSchedule(db.pool, 'report')) as string;
    const again = (await triggerSchedule(db.pool, 'report')) as string;
    expect(again).not.toBe(id);
    expect(await db.job(id)).toMatchObject({
      payloadText: '5',
      source: 'schedule:report',
      dedupeKey: null,
      headers: { schedule: { name: 'report', triggered: true } },
    });
    expect(await nextOf('report')).toBe(before);
  });

  test('its last slot fired, a schedule has ended; put again it lives', async () => {
    await put({ misfire: 'all' });
    await due('report', '2025-07-01T09:00:00Z');
    await db.pool.query(`update unbroker.jobs set ends_at = '2025-07-03T09:00:00Z'`);
    const { firing, fired } = firingAt('2025-07-09T00:00:00Z');
    await firing.sweep();
    expect(await slotsOf('report')).toEqual(['2025-07-01T09:00:00.000Z', '2025-07-02T09:00:00.000Z']);
    expect(fired[0]?.ended).toBe(true);
    expect(await findSchedule(db.pool, 'report')).toMatchObject({ nextRunAt: null });
    expect(await nextRuns(db.pool, 'report')).toEqual([]);
    expect((await put()).nextRunAt).not.toBeNull();
  });

  test('put when its end has passed, as an old deploy does, it is ended and no error', async () => {
    expect(await put({ endAt: new Date('2025-01-01T00:00:00Z') })).toMatchObject({
      created: true,
      nextRunAt: null,
    });
    await firingAt(() => new Date()).firing.sweep();
    expect(await slotsOf('report')).toEqual([]);
  });

  test('removed, its jobs stay; of a name that is not there every answer says so', async () => {
    await put();
    await triggerSchedule(db.pool, 'report');
    expect(await unschedule(db.pool, 'report')).toBe(true);
    expect(await scheduleHistory(db.pool, 'report')).toHaveLength(1);
    expect(await unschedule(db.pool, 'report')).toBe(false);
    for (const act of [pauseSchedule, resumeSchedule, triggerSchedule, findSchedule, nextRuns])
      expect(await act(db.pool, 'report')).toBeNull();
  });

  test('listed by name, page by page, by kind and source; jobs list and stats know nothing of them', async () => {
    for (const name of ['c', 'a', 'b'])
      await put({ name, ...(name === 'b' ? { kind: 'other', source: 'trio:schedule:b' } : {}) });
    const names = async (filter: Parameters<typeof listSchedules>[1]) =>
      (await listSchedules(db.pool, filter)).map(({ name }) => name);
    expect(await names({})).toEqual(['a', 'b', 'c']);
    expect(await names({ limit: 1, afterName: 'a' })).toEqual(['b']);
    expect(await names({ kind: 'other' })).toEqual(['b']);
    expect(await names({ source: 'trio:' })).toEqual(['b']);
    expect(await db.store.list(db.pool)).toEqual([]);
    expect(await db.store.stats(db.pool)).toEqual([]);
  });

  test('history is newest first, page by page', async () => {
    await put({ misfire: 'all' });
    await due('report', '2025-07-01T09:00:00Z');
    await firingAt('2025-07-03T12:00:00Z').firing.sweep();
    const [newest, ...older] = await scheduleHistory(db.pool, 'report', { limit: 2 });
    expect(newest?.runAt).toEqual(new Date('2025-07-03T09:00:00Z'));
    const rest = await scheduleHistory(db.pool, 'report', { beforeId: older.at(-1)?.id as string });
    expect(rest.map(({ runAt }) => runAt)).toEqual([new Date('2025-07-01T09:00:00Z')]);
  });
});

describe('newer tzdata', () => {
  test('keeps the wall time of slots that were computed with the older', async () => {
    await put({ timeZone: 'Europe/Paris', cron: '0 9 1 7 *' });
    // As if the older tzdata had put Paris an hour elsewhere.
    await db.pool.query(
      `update unbroker.jobs set run_at = '2090-07-01T08:00:00Z', slots_until = '2090-01-01T00:00:00Z', tz_version = '2019a'`,
    );
    await firingAt('2090-02-01T00:00:00Z').firing.sweep();
    expect(await nextOf('report')).toBe('2090-07-01T07:00:00.000Z');
    const { rows } = await db.pool.query('select tz_version from unbroker.jobs');
    expect(rows).toEqual([{ tz_version: process.versions['tz'] }]);
  });

  test('a slot that it moved into the past fires', async () => {
    await put({ timeZone: 'Europe/Paris' });
    await db.pool.query(
      `update unbroker.jobs set run_at = '2025-07-01T08:00:00Z', slots_until = '2025-06-30T07:00:00Z', tz_version = '2019a'`,
    );
    await firingAt('2025-07-01T07:30:00Z').firing.sweep();
    expect(await slotsOf('report')).toEqual(['2025-07-01T07:00:00.000Z']);
  });

  test('older processes leave the slots of newer ones, and of their own, alone', async () => {
    await put();
    for (const version of ['2019a', '2099z']) {
      await db.pool.query(`update unbroker.jobs set run_at = '2090-07-01T08:30:00Z', tz_version = $1`, [
        version,
      ]);
      await firingAt('2025-07-01T07:30:00Z', { tzVersion: '2019a' }).firing.sweep();
      expect(await nextOf('report')).toBe('2090-07-01T08:30:00.000Z');
    }
  });
});

test('the migration may run twice, as after one that was cut off', async () => {
  await put();
  const text = readMigrations().find(({ name }) => name === '005_schedules')?.text ?? '';
  // As migrate does: statement by statement, outside a transaction.
  for (const statement of text.replaceAll('{schema}', '"unbroker"').split(/;\s*\n/))
    if (statement.replace(/^--.*$/gm, '').trim() !== '') await db.pool.query(statement);
  expect(await listSchedules(db.pool)).toHaveLength(1);
});
