/**
 * A time zone as a list of stretches with one UTC offset each, read from ICU and remembered. It translates between
 * instants and wall clocks; what a gap or a repeated hour means for a schedule is schedule.ts's business.
 *
 * A wall clock is written as the epoch milliseconds that UTC would have at the same reading: 02:30 is 02:30 in any zone.
 */
import { EXIT, UnbrokerError } from '../errors.js';

/** From `fromMs` (included) to `toMs` (excluded) the wall clock is the instant plus `offsetMs`. */
export interface Stretch {
  readonly fromMs: number;
  readonly toMs: number;
  readonly offsetMs: number;
  /** How far the wall clock had come before this stretch: less than where it starts = a gap, more = repeated. */
  readonly reachedMs: number;
}

export interface Zone {
  /** As ICU spells it; a canonical name may be older than the one asked for (Europe/Kiev). */
  readonly canonicalName: string;
  /** The stretch that holds an instant. */
  stretchAt(instantMs: number): Stretch;
  /** The instant at which the wall clock first shows this; for a reading in a gap, the first instant after it. */
  firstInstant(wallMs: number): number;
}

/** Changes of offset are at least four weeks apart (418 zones, 2015 to 2034: 28 days), so weekly looks miss none. */
const PROBE_MS = 7 * 86_400_000;
/** No zone is further from UTC, changes of date line included. */
const MAX_OFFSET_MS = 26 * 3_600_000;
/** Years remembered of one zone; a search ahead looks at fifty. */
const MAX_YEARS = 200;
const MAX_ZONES = 1_000;

const zones = new Map<string, Zone>();

/**
 * By IANA name, any case, aliases too. Offsets (`+02:00`), which newer ICUs take and Postgres reads the other way
 * round, are refused like everything unknown: `time-zone-unknown` (exit 2).
 */
export function findZone(name: string): Zone {
  const key = name.slice(0, 100).toLowerCase();
  const known = zones.get(key);
  if (known !== undefined) return known;
  if (!/^[a-z][a-z0-9_+/-]{0,63}$/.test(key)) throw zoneUnknown(name);
  let format: Intl.DateTimeFormat;
  try {
    format = new Intl.DateTimeFormat('en-US', {
      timeZone: name,
      calendar: 'gregory',
      numberingSystem: 'latn',
      hourCycle: 'h23',
      year: 'numeric',
      month: 'numeric',
      day: 'numeric',
      hour: 'numeric',
      minute: 'numeric',
      second: 'numeric',
    });
  } catch {
    throw zoneUnknown(name);
  }
  if (zones.size >= MAX_ZONES) zones.clear();
  const zone = createZone(format);
  zones.set(key, zone);
  return zone;
}

/** `where`: who does not know it. */
export function zoneUnknown(name: string, where = 'this Node'): UnbrokerError {
  // Only what cannot steer a terminal is repeated.
  const shown = /^[\w+/-]{1,64}$/.test(name) ? `${name} ` : '';
  return new UnbrokerError('time-zone-unknown', `The time zone ${shown}is not known to ${where}`, {
    hint: 'Use an IANA name such as Europe/Paris or UTC.',
    exitStatus: EXIT.badInput,
  });
}

function createZone(format: Intl.DateTimeFormat): Zone {
  const years = new Map<number, readonly Stretch[]>();
  const stretchesOf = (year: number): readonly Stretch[] => {
    let found = years.get(year);
    if (found === undefined) {
      if (years.size >= MAX_YEARS) years.clear();
      found = readYear(format, year);
      years.set(year, found);
    }
    return found;
  };
  const stretchAt = (instantMs: number): Stretch => {
    const stretches = stretchesOf(new Date(instantMs).getUTCFullYear());
    return stretches.findLast((stretch) => stretch.fromMs <= instantMs) as Stretch;
  };
  return {
    canonicalName: format.resolvedOptions().timeZone,
    stretchAt,
    firstInstant(wallMs) {
      let stretch = stretchAt(wallMs - MAX_OFFSET_MS);
      while (wallMs >= stretch.toMs + stretch.offsetMs) stretch = stretchAt(stretch.toMs);
      return Math.max(wallMs - stretch.offsetMs, stretch.fromMs);
    },
  };
}

/** The stretches of one UTC year, cut at its ends. */
function readYear(format: Intl.DateTimeFormat, year: number): Stretch[] {
  const startMs = Date.UTC(year);
  const endMs = Date.UTC(year + 1);
  const stretches: Stretch[] = [];
  let previous = offsetAt(format, startMs - 1_000);
  let offset = offsetAt(format, startMs);
  let fromMs = startMs;
  for (let atMs = startMs; atMs < endMs; atMs += PROBE_MS) {
    const nextMs = Math.min(atMs + PROBE_MS, endMs - 1_000);
    const next = offsetAt(format, nextMs);
    if (next === offset) continue;
    const toMs = changeBetween(format, atMs, nextMs, offset);
    stretches.push({ fromMs, toMs, offsetMs: offset, reachedMs: fromMs + previous });
    previous = offset;
    offset = next;
    fromMs = toMs;
  }
  stretches.push({ fromMs, toMs: endMs, offsetMs: offset, reachedMs: fromMs + previous });
  return stretches;
}

/** The first second at which the offset is no longer `offset`, which it is at `lowMs` and is not at `highMs`. */
function changeBetween(format: Intl.DateTimeFormat, lowMs: number, highMs: number, offset: number): number {
  let low = lowMs / 1_000;
  let high = highMs / 1_000;
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (offsetAt(format, middle * 1_000) === offset) low = middle;
    else high = middle;
  }
  return high * 1_000;
}

/** `instantMs` is a whole second of the Common Era. */
function offsetAt(format: Intl.DateTimeFormat, instantMs: number): number {
  const [month = 0, day = 0, year = 0, hour = 0, minute = 0, second = 0] =
    format.format(instantMs).match(/\d+/g)?.map(Number) ?? [];
  return Date.UTC(year, month - 1, day, hour, minute, second) - instantMs;
}
