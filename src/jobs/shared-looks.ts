/**
 * Looks of a fleet that sleeps: each worker looked every `pollMs` for jobs whose time has come, and ten with nothing to do cost the
 * server 7.8 % of a core. Those that have each other's kinds take turns instead, by the database's clock. Pure.
 */

/** Where a worker sits among those that sleep and have all of its kinds. */
export interface Seat {
  /** So many of them come before it. */
  readonly rank: number;
  /** So many they are, with itself. */
  readonly of: number;
  /** The database's clock at the time of the answer, epoch ms. */
  readonly databaseMs: number;
}

/**
 * A round of turns is no longer: a turn stays empty while a worker that died, was filled or woke up is still counted (15 s at most),
 * so this is how late a look can be at the worst.
 */
const MAX_ROUND_MS = 2_000;

/**
 * Ms until this worker's next turn, `sinceMs` after it got its seat. A turn comes every half of `pollMs`, so that one that stays empty
 * makes no look later than `pollMs`; two workers or fewer, or a long `pollMs`, take none.
 */
export function untilTurnMs(seat: Seat, sinceMs: number, pollMs: number): number {
  const stepMs = pollMs / 2;
  const turns = Math.min(seat.of, Math.floor(MAX_ROUND_MS / stepMs));
  if (turns <= 2) return pollMs;
  const roundMs = turns * stepMs;
  const untilMs = modulo((seat.rank % turns) * stepMs - seat.databaseMs - sinceMs, roundMs);
  // A timer that fired early, or a look for another reason just before it: that was this turn.
  return untilMs < stepMs / 2 ? untilMs + roundMs : untilMs;
}

function modulo(value: number, by: number): number {
  return ((value % by) + by) % by;
}
