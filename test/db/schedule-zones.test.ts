/**
 * Slots against Postgres' own time zones. Around every change of clocks that Postgres knows of, it walks a week minute by
 * minute (and hours second by second) and says what each clock on the wall shows; an expression's slots must be exactly
 * those that a naive reading of that walk gives.
 */
import fc from 'fast-check';
import { afterAll, describe, expect, test } from 'vitest';
import { nextAfter, parseRule, slotsAfter } from '../../src/jobs/schedule.js';
import { freshDatabase } from '../support/services.js';

const db = await freshDatabase();
afterAll(() => db.close());

/** Half an hour, two hours, midnight, a whole day, Ramadan, quarters of an hour, both hemispheres, none at all. */
const ZONES: readonly (readonly [zone: string, from: string, to: string])[] = [
  ['America/New_York', '2024-01-01', '2026-01-01'],
  ['Europe/Paris', '2024-01-01', '2026-01-01'],
  ['Europe/London', '2024-06-01', '2025-06-01'],
  ['America/St_Johns', '2010-01-01', '2011-01-01'],
  ['Australia/Lord_Howe', '2024-01-01', '2026-01-01'],
  ['Antarctica/Troll', '2024-01-01', '2025-01-01'],
  ['America/Sao_Paulo', '2018-01-01', '2019-12-31'],
  ['America/Santiago', '2024-01-01', '2025-01-01'],
  ['Africa/Cairo', '2024-01-01', '2025-01-01'],
  ['Africa/Casablanca', '2023-01-01', '2024-01-01'],
  ['Asia/Tehran', '2021-01-01', '2022-12-31'],
  ['Pacific/Apia', '2011-01-01', '2012-12-31'],
  ['Pacific/Chatham', '2024-01-01', '2025-01-01'],
  ['Asia/Kathmandu', '2024-01-01', '2025-01-01'],
  ['UTC', '2024-01-01', '2025-01-01'],
];

interface Walk {
  readonly zone: string;
  readonly stepMs: number;
  /** Epoch ms of the first moment. */
  readonly startMs: number;
  /** What the wall clock shows at each step, as the epoch ms that UTC would have. */
  readonly walls: readonly number[];
}

async function walk(zone: string, startMs: number, steps: number, stepMs: number): Promise<Walk> {
  const { rows } = await db.pool.query<{ wall: number }>(
    `select date_part('epoch', (to_timestamp($1::float8 / 1000) + i * $4 * interval '1 millisecond') at time zone $2) * 1000 as wall
     from generate_series(0, $3::integer - 1) as i order by i`,
    [startMs, zone, steps, stepMs],
  );
  return { zone, stepMs, startMs, walls: rows.map(({ wall }) => wall) };
}

/** The hours in which Postgres sees the offset change; the middle of the range when it sees none. */
async function changes(zone: string, from: string, to: string): Promise<number[]> {
  const { rows } = await db.pool.query<{ ms: number }>(
    `select date_part('epoch', t) * 1000 as ms from (
       select t, t at time zone $1 - lag(t at time zone $1) over (order by t) <> interval '30 minutes' as changed
       from generate_series($2::timestamptz, $3::timestamptz, '30 minutes') as t) as hours
     where changed order by 1`,
    [zone, from, to],
  );
  return rows.length > 0 ? rows.map(({ ms }) => ms) : [(Date.parse(from) + Date.parse(to)) / 2];
}

/** UNBROKER_TEST_LONG=1 takes three times as many; other expressions come with each run. */
const RUNS = process.env['UNBROKER_TEST_LONG'] ? 1_500 : 500;

const DAY_MS = 86_400_000;
const weeks: Walk[] = [];
const hours: Walk[] = [];
for (const [zone, from, to] of ZONES) {
  for (const changeMs of await changes(zone, from, to)) {
    weeks.push(await walk(zone, changeMs - 3.5 * DAY_MS, 7 * 1_440, 60_000));
    hours.push(await walk(zone, changeMs - 3 * 3_600_000, 6 * 3_600, 1_000));
  }
}

/** One field: its text, and the values that it means. */
interface Field {
  readonly text: string;
  readonly values: ReadonlySet<number>;
}

const range = (from: number, to: number, step = 1): number[] =>
  Array.from({ length: Math.floor((to - from) / step) + 1 }, (_, i) => from + i * step);

function field(min: number, max: number): fc.Arbitrary<Field> {
  const value = fc.integer({ min, max });
  const of = (text: string, values: number[]): Field => ({ text, values: new Set(values) });
  const ordered = fc.tuple(value, value).map(([a, b]) => [Math.min(a, b), Math.max(a, b)] as const);
  return fc.oneof(
    { weight: 3, arbitrary: fc.constant(of('*', range(min, max))) },
    { weight: 3, arbitrary: value.map((v) => of(`${v}`, [v])) },
    { weight: 1, arbitrary: ordered.map(([a, b]) => of(`${a}-${b}`, range(a, b))) },
    {
      weight: 1,
      arbitrary: fc.integer({ min: 1, max: max - min }).map((n) => of(`*/${n}`, range(min, max, n))),
    },
    {
      weight: 1,
      arbitrary: fc
        .tuple(ordered, fc.integer({ min: 1, max: 7 }))
        .filter(([[a, b]]) => b > a)
        .map(([[a, b], n]) => of(`${a}-${b}/${n}`, range(a, b, n))),
    },
    {
      weight: 2,
      arbitrary: fc.uniqueArray(value, { minLength: 2, maxLength: 4 }).map((v) => of(v.join(','), v)),
    },
  );
}

/** Day of month and of week; when both are restricted either will do. */
const days = fc.tuple(field(1, 31), field(0, 6));

/** Mostly all days, and hours near those at which clocks are changed. */
const nightHours = fc.oneof(
  field(0, 23),
  field(0, 4).filter(({ text }) => !text.startsWith('*')),
  fc.constantFrom<number[]>(23, 0, 1, 2, 3).map((h) => ({ text: `${h}`, values: new Set([h]) })),
);

interface Expression {
  readonly text: string;
  readonly namesHours: boolean;
  readonly fits: (wallMs: number) => boolean;
}

/** Date and weekday by day since 1970: a Date for each minute of each walk was most of what this file cost. */
const dates = new Map<number, { readonly date: number; readonly weekday: number }>();

function dateOf(wallMs: number): { readonly date: number; readonly weekday: number } {
  const day = Math.floor(wallMs / DAY_MS);
  const known = dates.get(day);
  if (known !== undefined) return known;
  const wall = new Date(wallMs);
  const found = { date: wall.getUTCDate(), weekday: wall.getUTCDay() };
  dates.set(day, found);
  return found;
}

const expression = (seconds: fc.Arbitrary<Field>, withSeconds: boolean): fc.Arbitrary<Expression> =>
  fc
    .tuple(
      seconds,
      field(0, 59),
      nightHours,
      fc.oneof({ weight: 2, arbitrary: fc.constant(null) }, { weight: 1, arbitrary: days }),
    )
    .map(([second, minute, hour, day]) => {
      const [date, weekday] = day ?? [null, null];
      const dayFits = (wallMs: number): boolean => {
        const wall = dateOf(wallMs);
        const byDate = date === null || date.values.has(wall.date);
        const byWeekday = weekday === null || weekday.values.has(wall.weekday);
        const either = date !== null && weekday !== null && date.text !== '*' && weekday.text !== '*';
        return either ? byDate || byWeekday : byDate && byWeekday;
      };
      return {
        text: `${withSeconds ? `${second.text} ` : ''}${minute.text} ${hour.text} ${date?.text ?? '*'} * ${weekday?.text ?? '*'}`,
        namesHours: hour.values.size < 24,
        fits: (wallMs) =>
          minute.values.has(Math.floor(wallMs / 60_000) % 60) &&
          second.values.has(Math.floor(wallMs / 1_000) % 60) &&
          hour.values.has(Math.floor(wallMs / 3_600_000) % 24) &&
          dayFits(wallMs),
      };
    });

/** The rule read naively off the walk: each wall time once, what a gap swallows at its end; or every step that fits. */
function expected({ startMs, stepMs, walls }: Walk, { namesHours, fits }: Expression): number[] {
  const found: number[] = [];
  // Before the walk nothing is known; it begins days or hours before the change.
  let reached = (walls[0] as number) - stepMs;
  walls.forEach((wall, index) => {
    let fires = false;
    if (!namesHours) fires = fits(wall);
    else for (let missed = reached + stepMs; missed <= wall && !fires; missed += stepMs) fires = fits(missed);
    reached = Math.max(reached, wall);
    if (fires) found.push(startMs + index * stepMs);
  });
  return found;
}

function slotsIn({ zone, startMs, stepMs, walls }: Walk, text: string): number[] {
  return slotsAfter(parseRule(text, zone), startMs - 1, walls.length + 1, startMs + walls.length * stepMs);
}

/** Written out only when they differ, with what was asked, so that a failure says it. */
function expectSame(walk: Walk, cron: Expression, slots: readonly number[], wanted: readonly number[]): void {
  if (slots.length === wanted.length && slots.every((slot, i) => slot === wanted[i])) return;
  expect(readable(walk, cron, slots)).toEqual(readable(walk, cron, wanted));
}

const readable = ({ zone }: Walk, { text }: Expression, slots: readonly number[]) => ({
  cron: `${text} in ${zone}`,
  slots: slots.map((ms) => new Date(ms).toISOString()),
});

describe('slots are those that Postgres’ clocks give', () => {
  test('there are changes of clocks to look at', () => {
    expect(weeks.length).toBeGreaterThan(25);
    const jumps = weeks.filter(({ walls, stepMs }) =>
      walls.some((w, i) => i > 0 && w - (walls[i - 1] as number) !== stepMs),
    );
    expect(jumps.length).toBe(weeks.length - 2);
  });

  test('minute by minute, a week around each change', () => {
    const minutes = expression(fc.constant({ text: '0', values: new Set([0]) }), false);
    fc.assert(
      fc.property(fc.constantFrom(...weeks), minutes, (week, cron) => {
        const slots = slotsIn(week, cron.text);
        expectSame(week, cron, slots, expected(week, cron));
        expect(slots.every((slot, i) => i === 0 || slot > (slots[i - 1] as number))).toBe(true);
      }),
      { numRuns: RUNS },
    );
  }, 120_000);

  test('second by second, six hours around each change', () => {
    fc.assert(
      fc.property(fc.constantFrom(...hours), expression(field(0, 59), true), (six, cron) => {
        // A naive walk of a gap of a whole day, second by second, is too slow; minutes cover it.
        fc.pre(six.zone !== 'Pacific/Apia');
        expectSame(six, cron, slotsIn(six, cron.text), expected(six, cron));
      }),
      { numRuns: RUNS / 5 },
    );
  }, 120_000);

  test('asked from any moment, the next slot is the first of the walk after it', () => {
    const minutes = expression(fc.constant({ text: '0', values: new Set([0]) }), false);
    fc.assert(
      fc.property(
        fc.constantFrom(...weeks),
        minutes,
        // Mostly near the change, which lies in the middle.
        fc.oneof(
          fc.integer({ min: 0, max: 7 * DAY_MS - 1 }),
          fc.integer({ min: 3.4 * DAY_MS, max: 3.6 * DAY_MS }),
        ),
        (week, cron, offsetMs) => {
          const askedMs = week.startMs + offsetMs;
          const first = expected(week, cron).find((slot) => slot > askedMs);
          fc.pre(first !== undefined);
          const found = nextAfter(parseRule(cron.text, week.zone), askedMs) ?? 0;
          expectSame(week, cron, [found], [first ?? 0]);
        },
      ),
      { numRuns: RUNS },
    );
  }, 120_000);
});

test('a year of mornings in every zone that both know is nine o’clock to Postgres', async () => {
  const { rows } = await db.pool.query<{ name: string }>('select name from pg_timezone_names order by name');
  const known = new Set(Intl.supportedValuesOf('timeZone'));
  const zones = rows.map(({ name }) => name).filter((name) => known.has(name));
  expect(zones.length).toBeGreaterThan(380);
  const wrong: string[] = [];
  for (const zone of zones) {
    const slots = slotsAfter(parseRule('0 9 1,15 * *', zone), Date.UTC(2024, 0), 24, null);
    const { rows: seen } = await db.pool.query<{ wall: string }>(
      `select distinct to_char(to_timestamp(ms / 1000) at time zone $2, 'DD HH24:MI:SS') as wall
       from unnest($1::float8[]) as ms order by 1`,
      [slots, zone],
    );
    const walls = seen.map(({ wall }) => wall).join();
    if (walls !== '01 09:00:00,15 09:00:00') wrong.push(`${zone}: ${walls}`);
  }
  expect(wrong).toEqual([]);
}, 120_000);
