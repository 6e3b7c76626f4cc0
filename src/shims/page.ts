/**
 * Reads a list of jobs piece by piece, so that it ends before it fills the memory: two hundred payloads of a megabyte, asked
 * for by a few clients at once, were three gigabytes. It knows neither SQL nor HTTP.
 */
import type { Job } from '../jobs/job.js';

export interface Page {
  readonly jobs: readonly Job[];
  /** It ended early; the rest is below the id of its last. */
  readonly cut: boolean;
}

/** Characters of payloads in one list; one job is always given. */
export const MAX_PAGE_LENGTH = 16_777_216;
/** What is read ahead of the check: so many payloads at most. */
const PIECE = 25;

/** `read` gives at most `limit` jobs below `beforeId`, the newest first. */
export async function readPage(
  limit: number,
  beforeId: string | undefined,
  read: (limit: number, beforeId: string | undefined) => Promise<readonly Job[]>,
): Promise<Page> {
  const jobs: Job[] = [];
  let length = 0;
  let before = beforeId;
  while (jobs.length < limit) {
    const asked = Math.min(PIECE, limit - jobs.length);
    const piece = await read(asked, before);
    for (const job of piece) {
      length += job.payloadText?.length ?? 0;
      if (length > MAX_PAGE_LENGTH && jobs.length > 0) return { jobs, cut: true };
      jobs.push(job);
    }
    if (piece.length < asked) break;
    before = piece.at(-1)?.id;
  }
  return { jobs, cut: false };
}
