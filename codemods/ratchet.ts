/**
 * The ratchet: a file of the publishes that are known, so that a new one fails the build while old ones are worked
 * off. Keys are fingerprints; the text beside each is for people. It knows plans and a file's text, no disk.
 */

import { EXIT, UnbrokerError } from '../src/errors.js';
import type { Plan } from './plan.js';
import type { PlanSite } from './plan-site.js';
import { NO_SEAM } from './reasons.js';

export interface Ratchet {
  readonly version: 1;
  /** Fingerprint to what a person reads. */
  readonly publishes: Readonly<Record<string, string>>;
}

export interface RatchetResult {
  readonly added: readonly PlanSite[];
  /** Texts of publishes that are in the file and not in the code any more. */
  readonly gone: readonly string[];
  readonly known: number;
}

/** What counts: a publish that a crash beside a commit could lose, or that a rollback could leave behind. */
export function seamsOf(plan: Plan): readonly PlanSite[] {
  return plan.sites.filter((s) => s.reason === null || !NO_SEAM.has(s.reason));
}

export function compareRatchet(plan: Plan, ratchet: Ratchet): RatchetResult {
  const seams = seamsOf(plan);
  const now = new Set(seams.map((s) => s.fingerprint));
  return {
    added: seams.filter((s) => ratchet.publishes[s.fingerprint] === undefined),
    gone: Object.entries(ratchet.publishes).flatMap(([key, text]) => (now.has(key) ? [] : [text])),
    known: Object.keys(ratchet.publishes).length,
  };
}

/** The file's text for what the plan holds now; sorted, so that two branches merge line by line. */
export function renderRatchet(plan: Plan): string {
  const entries = seamsOf(plan)
    .map((s) => [s.fingerprint, `${s.file} ${s.function}: ${s.source}`] as const)
    .sort(([, a], [, b]) => (a < b ? -1 : a > b ? 1 : 0));
  return `${JSON.stringify({ version: 1, publishes: Object.fromEntries(entries) }, null, 2)}\n`;
}

/** Throws `ratchet-invalid`. */
export function parseRatchet(text: string, path: string): Ratchet {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw invalid(path, 'it is not JSON');
  }
  const top = value as { readonly version?: unknown; readonly publishes?: unknown } | null;
  if (typeof top !== 'object' || top === null || top.version !== 1)
    throw invalid(path, 'its version is not 1');
  const { publishes } = top;
  if (typeof publishes !== 'object' || publishes === null || Array.isArray(publishes))
    throw invalid(path, '"publishes" is not an object');
  const odd = Object.entries(publishes).find(
    ([key, said]) => !/^[0-9a-f]{16}$/.test(key) || typeof said !== 'string',
  );
  if (odd !== undefined) throw invalid(path, `"${odd[0].slice(0, 40)}" is no fingerprint with a text`);
  return { version: 1, publishes: publishes as Record<string, string> };
}

function invalid(path: string, why: string): UnbrokerError {
  return new UnbrokerError('ratchet-invalid', `${path} cannot be used: ${why}`, {
    hint: 'Write it anew with: unbroker codemod check --ratchet <file> --update',
    exitStatus: EXIT.badInput,
  });
}
