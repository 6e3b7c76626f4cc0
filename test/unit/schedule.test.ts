/** Cron expressions and zones without a database: what is refused, what each form means, what a change of clocks does. */
import { describe, expect, test } from 'vitest';
import { UnbrokerError } from '../../src/errors.js';
import type { Misfire } from '../../src/jobs/job.js';
import { decideFiring, nextAfter, parseRule, SCHEDULE_LIMITS, slotsAfter } from '../../src/jobs/schedule.js';
import { findZone } from '../../src/jobs/zone.js';

const at = (iso: string): number => Date.parse(iso);

/** The next slots as `MM-DD hh:mm` in the zone, so that a table can be read. */
function slots(cron: string, timeZone: string, from: string, count: number): string[] {
  return slotsAfter(parseRule(cron, timeZone), at(from), count, null).map((ms) =>
    new Date(ms).toLocaleString('sv-SE', { timeZone }).slice(5, 16),
  );
}

function refusal(act: () => unknown): UnbrokerError {
  try {
    act();
  } catch (error) {
    if (error instanceof UnbrokerError) return error;
    throw error;
  }
  throw new Error('it was not refused');
}

/** CPU, not time: what others do on the machine must not count. */
function cpuMsSince(start: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(start);
  return (user + system) / 1_000;
}

describe('expressions that are refused', () => {
  test.each([
    ['*/0 * * * *', 'its minute "*/0"'],
    ['*/-2 * * * *', 'its minute "*/-2"'],
    ['60 * * * *', 'its minute "60"'],
    ['5-1 * * * *', 'its minute "5-1"'],
    ['5/15 * * * *', 'its minute "5/15"'],
    ['1,,2 * * * *', 'its minute "1,,2"'],
    ['1.5 * * * *', 'its minute "1.5"'],
    ['1e1 * * * *', 'its minute "1e1"'],
    ['H * * * *', 'its minute "H"'],
    ['٣ * * * *', 'its minute field'],
    ['\u001b[31m * * * *', 'its minute field'],
    ['* 24 * * *', 'its hour "24"'],
    ['* 22-3 * * *', 'its hour "22-3"'],
    ['0 0 0 * *', 'its day of month "0"'],
    ['0 0 32 * *', 'its day of month "32"'],
    ['0 0 L-3 * *', 'its day of month "L-3"'],
    ['0 0 * 0 *', 'its month "0"'],
    ['0 0 * 13 *', 'its month "13"'],
    ['0 0 * * 8', 'its day of week "8"'],
    ['0 0 * * L', 'its day of week "L"'],
    ['0 0 * * MON#6', 'its day of week "MON#6"'],
    ['60 * * * * *', 'its second "60"'],
    ['', 'it is empty'],
    ['*', 'it has 1 field'],
    ['* * * *', 'it has 4 fields'],
    ['* * * * * * *', 'it has 7 fields'],
    ['2030-01-01T00:00:00', 'it has 1 field'],
    ['CRON_TZ=UTC * * * * *', 'its second "CRON_TZ=UTC"'],
    ['@reboot', 'a table has no reboot'],
    ['@often', 'there is no such nickname'],
    ['@every', 'its interval'],
    ['@every 5', 'its interval'],
    ['@every 0s', 'its interval'],
    ['@every 999ms', 'its interval'],
    ['@every 367d', 'its interval'],
    ['@every -5m', 'its interval'],
    [`${' '.repeat(1_990)}* * * * *`, 'longer than 500'],
    [`${Array.from({ length: 10_000 }, (_, i) => i % 60).join(',')} * * * *`, 'longer than 500'],
  ])('%j', (cron, why) => {
    const error = refusal(() => parseRule(cron, 'UTC'));
    expect(error).toMatchObject({ code: 'schedule-invalid', exitStatus: 2 });
    expect(error.message).toContain(why);
    expect(error.line).toMatch(/^[\x20-\x7e]+$/);
  });

  test.each(['0 0 30 2 *', '0 0 31 4,6 *', '0 0 31 2 *', '0 0 31W 2 *', '0 0 0 30 2 *'])(
    '%j is one, but never fires: the search ends',
    (cron) => {
      expect(nextAfter(parseRule(cron, 'America/New_York'), at('2025-01-01T00:00:00Z'))).toBeNull();
    },
  );

  test.each([
    'Mars/Base',
    '+02:00',
    '-05',
    'GMT+2',
    'Factory',
    'localtime',
    '',
    ' ',
    '../etc',
    '\u001b[31m',
    'x'.repeat(9_999),
  ])('zone %j', (zone) => {
    const error = refusal(() => parseRule('* * * * *', zone));
    expect(error).toMatchObject({ code: 'time-zone-unknown', exitStatus: 2 });
    expect(error.line.length).toBeLessThan(200);
    expect(error.line).toMatch(/^[\x20-\x7e]+$/);
  });
});

describe('what the forms mean', () => {
  test.each([
    ['0 9 * * MON-FRI', ['01-01 09:00', '01-02 09:00', '01-03 09:00', '01-06 09:00']],
    ['0 9 * * 1-5', ['01-01 09:00', '01-02 09:00', '01-03 09:00', '01-06 09:00']],
    ['*/20 8-9 * * *', ['01-01 08:00', '01-01 08:20', '01-01 08:40', '01-01 09:00']],
    ['5-50/20 8 * * *', ['01-01 08:05', '01-01 08:25', '01-01 08:45', '01-02 08:05']],
    ['0 0 * * 0', ['01-05 00:00', '01-12 00:00', '01-19 00:00', '01-26 00:00']],
    ['0 0 * * 7', ['01-05 00:00', '01-12 00:00', '01-19 00:00', '01-26 00:00']],
    ['0 0 L * *', ['01-31 00:00', '02-28 00:00', '03-31 00:00', '04-30 00:00']],
    ['0 0 LW * *', ['01-31 00:00', '02-28 00:00', '03-31 00:00', '04-30 00:00']],
    ['0 0 15W * *', ['01-15 00:00', '02-14 00:00', '03-14 00:00', '04-15 00:00']],
    ['0 0 * * MON#2', ['01-13 00:00', '02-10 00:00', '03-10 00:00', '04-14 00:00']],
    ['0 0 * * FRIL', ['01-31 00:00', '02-28 00:00', '03-28 00:00', '04-25 00:00']],
    // Both days restricted: either will do. With + both must fit.
    ['0 0 13 * FRI', ['01-03 00:00', '01-10 00:00', '01-13 00:00', '01-17 00:00']],
    ['0 0 13 * +FRI', ['06-13 00:00', '02-13 00:00', '03-13 00:00', '11-13 00:00']],
    ['0 0 29 2 *', ['02-29 00:00', '02-29 00:00', '02-29 00:00', '02-29 00:00']],
    ['0 0 ? jan mon', ['01-06 00:00', '01-13 00:00', '01-20 00:00', '01-27 00:00']],
    ['@daily', ['01-02 00:00', '01-03 00:00', '01-04 00:00', '01-05 00:00']],
    ['@every 90m', ['01-01 01:30', '01-01 03:00', '01-01 04:30', '01-01 06:00']],
    ['  0\t9  * * * ', ['01-01 09:00', '01-02 09:00', '01-03 09:00', '01-04 09:00']],
  ])('%s', (cron, expected) => {
    expect(slots(cron, 'UTC', '2025-01-01T00:00:00Z', 4)).toEqual(expected);
  });

  test('six fields begin with seconds', () => {
    const found = slotsAfter(parseRule('*/20 * * * * *', 'UTC'), at('2025-01-01T00:00:10Z'), 3, null);
    expect(found).toEqual([
      at('2025-01-01T00:00:20Z'),
      at('2025-01-01T00:00:40Z'),
      at('2025-01-01T00:01:00Z'),
    ]);
  });

  test('the next slot lies after the moment asked about, to the millisecond', () => {
    const rule = parseRule('0 9 * * *', 'UTC');
    const nine = at('2025-01-01T09:00:00Z');
    expect(nextAfter(rule, nine - 1)).toBe(nine);
    expect(nextAfter(rule, nine)).toBe(at('2025-01-02T09:00:00Z'));
    expect(nextAfter(rule, nine + 1)).toBe(at('2025-01-02T09:00:00Z'));
  });

  test('a Monday the 29th of February is found decades ahead; what lies beyond fifty years is not', () => {
    const rule = parseRule('0 0 29 2 +MON', 'UTC');
    expect(nextAfter(rule, at('2025-01-01T00:00:00Z'))).toBe(at('2044-02-29T00:00:00Z'));
    expect(nextAfter(rule, at('2060-01-01T00:00:00Z'))).toBe(at('2072-02-29T00:00:00Z'));
  });

  test('a slot decades ahead is found at once, also by an expression of every hour', () => {
    const started = process.cpuUsage();
    const rule = parseRule('* * 29 2 +MON', 'America/New_York');
    expect(nextAfter(rule, at('2025-01-01T00:00:00Z'))).toBe(at('2044-02-29T05:00:00Z'));
    expect(cpuMsSince(started)).toBeLessThan(500);
  });

  test('a list of every minute, written out, still fits', () => {
    const every = Array.from({ length: 60 }, (_, i) => i).join(',');
    const hours = Array.from({ length: 24 }, (_, i) => i).join(',');
    expect(slots(`${every} ${hours} * * *`, 'UTC', '2025-01-01T00:00:00Z', 2)).toEqual([
      '01-01 00:01',
      '01-01 00:02',
    ]);
  });
});

describe('a change of clocks', () => {
  test.each([
    // Gap: once, at the first instant after it.
    ['30 2 * * *', 'America/New_York', '2025-03-08T12:00:00Z', ['03-09 03:00', '03-10 02:30']],
    ['0 2 * * *', 'America/New_York', '2025-03-08T12:00:00Z', ['03-09 03:00', '03-10 02:00']],
    ['30 2 * * *', 'Europe/Paris', '2027-03-27T12:00:00Z', ['03-28 03:00', '03-29 02:30']],
    ['*/15 2 * * *', 'Europe/Paris', '2027-03-27T12:00:00Z', ['03-28 03:00', '03-29 02:00', '03-29 02:15']],
    ['0 2,3 * * *', 'Europe/Paris', '2027-03-27T12:00:00Z', ['03-28 03:00', '03-29 02:00', '03-29 03:00']],
    ['0 0 * * *', 'America/Sao_Paulo', '2018-11-03T12:00:00Z', ['11-04 01:00', '11-05 00:00']],
    ['0 0 * * *', 'Africa/Cairo', '2025-04-24T12:00:00Z', ['04-25 01:00', '04-26 00:00']],
    ['15 2 * * *', 'Australia/Lord_Howe', '2025-10-04T03:00:00Z', ['10-05 02:30', '10-06 02:15']],
    ['0 2 * * *', 'Antarctica/Troll', '2025-03-29T12:00:00Z', ['03-30 03:00', '03-31 02:00']],
    ['0 12 * * *', 'Pacific/Apia', '2011-12-29T23:00:00Z', ['12-31 00:00', '12-31 12:00', '01-01 12:00']],
    // Repeated: once, the first time.
    ['30 1 * * *', 'America/New_York', '2025-11-01T12:00:00Z', ['11-02 01:30', '11-03 01:30']],
    [
      '*/30 1-2 * * *',
      'America/New_York',
      '2025-11-02T04:30:00Z',
      ['11-02 01:00', '11-02 01:30', '11-02 02:00'],
    ],
    ['30 2 * * *', 'Europe/Paris', '2025-10-25T12:00:00Z', ['10-26 02:30', '10-27 02:30']],
    ['45 1 * * *', 'Australia/Lord_Howe', '2025-04-05T03:00:00Z', ['04-06 01:45', '04-07 01:45']],
    ['30 23 * * *', 'Africa/Cairo', '2025-10-30T12:00:00Z', ['10-30 23:30', '10-31 23:30']],
    // Every hour: it goes on, through both.
    ['30 * * * *', 'America/New_York', '2025-03-09T06:00:00Z', ['03-09 01:30', '03-09 03:30', '03-09 04:30']],
    ['30 * * * *', 'America/New_York', '2025-11-02T05:00:00Z', ['11-02 01:30', '11-02 01:30', '11-02 02:30']],
    ['@hourly', 'Europe/Paris', '2025-10-25T23:30:00Z', ['10-26 02:00', '10-26 02:00', '10-26 03:00']],
    ['0 0-23 * * *', 'Europe/Paris', '2025-10-25T23:30:00Z', ['10-26 02:00', '10-26 02:00', '10-26 03:00']],
    // Another half of the world, no change at all.
    ['30 2 * * *', 'Asia/Kathmandu', '2025-03-29T12:00:00Z', ['03-30 02:30', '03-31 02:30']],
  ])('%s in %s after %s', (cron, zone, from, expected) => {
    expect(slots(cron, zone, from, expected.length)).toEqual(expected);
  });

  test('the first of a repeated time is the earlier instant', () => {
    const rule = parseRule('30 1 * * *', 'America/New_York');
    expect(nextAfter(rule, at('2025-11-02T05:00:00Z'))).toBe(at('2025-11-02T05:30:00Z'));
    // Asked in the second 01:00 to 02:00, it is over for today.
    expect(nextAfter(rule, at('2025-11-02T06:10:00Z'))).toBe(at('2025-11-03T06:30:00Z'));
  });

  test('an interval knows no clock', () => {
    expect(slots('@every 30m', 'America/New_York', '2025-11-02T05:00:00Z', 4)).toEqual([
      '11-02 01:30',
      '11-02 01:00',
      '11-02 01:30',
      '11-02 02:00',
    ]);
  });

  test('old and new names of a zone are the same zone', () => {
    expect(slots('0 9 * * *', 'Europe/Kyiv', '2025-07-01T00:00:00Z', 2)).toEqual(
      slots('0 9 * * *', 'Europe/Kiev', '2025-07-01T00:00:00Z', 2),
    );
    expect(slots('0 9 * * *', 'EST5EDT', '2025-07-01T00:00:00Z', 1)).toEqual(['07-01 09:00']);
    expect(findZone('europe/BERLIN').canonicalName).toBe('Europe/Berlin');
  });
});

describe('what is due', () => {
  const hourly = parseRule('0 * * * *', 'UTC');
  const decide = (misfire: Misfire, run: string, now: string, rule = hourly, end?: string) => {
    const { slotsMs, nextMs } = decideFiring(rule, {
      runAtMs: at(run),
      nowMs: at(now),
      endAtMs: end === undefined ? null : at(end),
      misfire,
    });
    return {
      slots: slotsMs.map((ms) => new Date(ms).toISOString()),
      next: nextMs && new Date(nextMs).toISOString(),
    };
  };
  const T = (hour: string) => `2025-01-01T${hour}:00.000Z`;

  test('on time: its slot, and the next, whatever the policy', () => {
    for (const misfire of ['skip', 'once', 'all'] as const) {
      expect(decide(misfire, T('09:00'), '2025-01-01T09:00:00.200Z')).toEqual({
        slots: [T('09:00')],
        next: T('10:00'),
      });
    }
  });

  test.each([
    ['skip', []],
    ['once', [T('11:00')]],
    ['all', [T('09:00'), T('10:00'), T('11:00')]],
  ] as const)('three slots missed: %s', (misfire, expected) => {
    expect(decide(misfire, T('09:00'), T('11:30'))).toEqual({ slots: expected, next: T('12:00') });
  });

  test('skip drops what is later than a minute, not what a restart delayed', () => {
    expect(decide('skip', T('09:00'), '2025-01-01T09:00:59Z').slots).toEqual([T('09:00')]);
    expect(decide('skip', T('09:00'), '2025-01-01T09:01:01Z').slots).toEqual([]);
    expect(decide('skip', T('09:00'), '2025-01-01T11:00:30Z').slots).toEqual([T('11:00')]);
  });

  test('all is bounded: the oldest thousand, then the next', () => {
    const { slots: fired, next } = decide(
      'all',
      '2025-01-01T00:00:00Z',
      '2025-01-08T00:00:30Z',
      parseRule('* * * * *', 'UTC'),
    );
    expect(fired).toHaveLength(SCHEDULE_LIMITS.maxMissed);
    expect(fired[0]).toBe('2025-01-01T00:00:00.000Z');
    expect(fired.at(-1)).toBe('2025-01-01T16:39:00.000Z');
    expect(next).toBe('2025-01-08T00:01:00.000Z');
  });

  test('once finds the last of a million missed slots without walking them', () => {
    const started = process.cpuUsage();
    const found = decide(
      'once',
      '2025-01-01T00:00:00Z',
      '2025-01-20T00:00:00.500Z',
      parseRule('* * * * * *', 'UTC'),
    );
    expect(found).toEqual({ slots: ['2025-01-20T00:00:00.000Z'], next: '2025-01-20T00:00:01.000Z' });
    expect(cpuMsSince(started)).toBeLessThan(1_000);
  });

  test('the end is not a slot; what was missed before it still counts', () => {
    expect(decide('once', T('09:00'), '2025-01-01T09:00:01Z', hourly, T('10:00'))).toEqual({
      slots: [T('09:00')],
      next: null,
    });
    expect(decide('all', T('09:00'), T('15:30'), hourly, T('11:00'))).toEqual({
      slots: [T('09:00'), T('10:00')],
      next: null,
    });
    expect(decide('once', T('09:00'), T('15:30'), hourly, T('11:00'))).toEqual({
      slots: [T('10:00')],
      next: null,
    });
    expect(decide('all', T('11:00'), T('15:30'), hourly, T('11:00'))).toEqual({ slots: [], next: null });
  });

  test('a slot set by hand, beside the rule, fires as it stands', () => {
    expect(decide('once', '2025-01-01T09:17:00.000Z', '2025-01-01T09:17:01Z')).toEqual({
      slots: ['2025-01-01T09:17:00.000Z'],
      next: T('10:00'),
    });
  });
});
