/** Limits of a kind that hold across all workers: their shape and bounds, for the config and the worker alike. Pure. */

/** Limits of a kind across all workers. Every worker of the kind must be given the same. */
export interface KindLimits {
  /** Jobs of the kind that run at once. 1 to 1,000. */
  readonly maxRunning?: number | undefined;
  /**
   * Starts: a bucket that holds `burst` tokens (default `max`) and gets `max` new ones each `perMs`; a start takes one. In
   * any time t at most burst + max * t / perMs jobs start. Whole numbers up to 1,000,000; perMs 1 to 86,400,000.
   */
  readonly rate?:
    | { readonly max: number; readonly perMs: number; readonly burst?: number | undefined }
    | undefined;
}

export const KIND_LIMITS = { maxRunning: 1_000, rate: 1_000_000, perMs: 86_400_000 } as const;
