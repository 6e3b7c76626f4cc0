/**
 * A name for a publish that stays the same when lines move: file, function, the call's text without its layout, and a
 * number when one function holds the same call twice. Pure.
 */

import { createHash } from 'node:crypto';

export interface Fingerprinted {
  readonly file: string;
  readonly function: string;
  /** The call as it stands in the source. */
  readonly text: string;
}

/** 16 hex digits each, in the order given; sites of one file must come in source order. */
export function fingerprints(sites: readonly Fingerprinted[]): string[] {
  const seen = new Map<string, number>();
  return sites.map((site) => {
    // Nameless functions are called by their line, which moves.
    const where = site.function.replace(/at line \d+/g, 'without a name');
    const key = [site.file, where, site.text.replace(/\s+/g, '')].join('\n');
    const number = (seen.get(key) ?? 0) + 1;
    seen.set(key, number);
    return createHash('sha256').update(`${key}\n${number}`).digest('hex').slice(0, 16);
  });
}
