/**
 * A retry policy as the trio's clients write it, as ours. Pure. Schedules and retries both come through here.
 */
import { type Json, LIMITS, type RetryPolicy } from '../../jobs/job.js';
import { parseRetryPolicy } from '../../jobs/retry.js';
import { type ObjectNode, toPlain } from '../../json-text.js';
import { objectOf as fieldsOf, invalid } from '../fields.js';

export interface Policy {
  readonly policy: RetryPolicy;
  readonly maxAttempts: number;
  /** As the client wrote it. */
  readonly given: Json;
}

const MAX_POLICY_MS = 30 * 24 * 3_600_000;
const NAMES = ['type', 'delayMs', 'maxAttempts', 'baseMs', 'factor', 'maxMs', 'delaysMs'] as const;

/** A ladder ends after its last rung, so it has one attempt more than rungs. `what` names it in a refusal. */
export function readPolicy(node: ObjectNode, what: string): Policy {
  const known = fieldsOf(node, NAMES, what);
  const plain = toPlain(node) as Readonly<Record<string, Json>>;
  const policy = parseRetryPolicy({ factor: 2, maxMs: MAX_POLICY_MS, ...plain, jitter: 'none' });
  if (policy === null)
    throw invalid(`${what} is not fixed, exponential or ladder, with delays of 0 to 30 days`);
  const limit = known.integer('maxAttempts', 1, LIMITS.maxAttempts);
  if (policy.type === 'ladder') {
    const rungs = policy.delaysMs.length + 1;
    return { policy, maxAttempts: Math.min(limit ?? rungs, rungs), given: plain };
  }
  if (limit === undefined) throw invalid(`${what}.maxAttempts is missing`);
  return { policy, maxAttempts: limit, given: plain };
}
