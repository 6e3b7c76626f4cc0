/**
 * The demo's own books: what was asked for and what arrived, from the traffic's journal, the orders table and the
 * sink's journal, never from the thing under test. Pure.
 */
import type { Delivery } from '../legacy/sinks/journal.js';

/** One thing that must reach somebody exactly once. */
export interface Expected {
  /** How it is known in the sink: a subject and a recipient. */
  readonly to: string;
  readonly subject: string;
  /** Which path it went: shown on the page. */
  readonly path: string;
}

export interface Tally {
  readonly path: string;
  readonly expected: number;
  readonly delivered: number;
  readonly lost: readonly Expected[];
  readonly doubled: readonly Expected[];
}

const keyOf = (to: string, subject: string): string => JSON.stringify([to, subject]);

/** Deliveries by recipient and subject. */
export function arrivals(deliveries: readonly Delivery[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const delivery of deliveries) {
    for (const to of delivery.to) {
      const key = keyOf(to, delivery.subject ?? '');
      counts.set(key, (counts.get(key) ?? 0) + 1);
    }
  }
  return counts;
}

export function arrived(counts: ReadonlyMap<string, number>, { to, subject }: Expected): number {
  return counts.get(keyOf(to, subject)) ?? 0;
}

/** Per path, in the order in which paths first appear. */
export function tally(expected: readonly Expected[], deliveries: readonly Delivery[]): Tally[] {
  const counts = arrivals(deliveries);
  const paths = [...new Set(expected.map((one) => one.path))];
  return paths.map((path) => {
    const mine = expected.filter((one) => one.path === path);
    return {
      path,
      expected: mine.length,
      delivered: mine.filter((one) => arrived(counts, one) > 0).length,
      lost: mine.filter((one) => arrived(counts, one) === 0),
      doubled: mine.filter((one) => arrived(counts, one) > 1),
    };
  });
}
