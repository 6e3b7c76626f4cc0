/**
 * Templates as files, `<folder>/<key>/<locale>.<channel>.<part>`. An edited file is seen within a second without a
 * restart. It refuses to know what is in them.
 */
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { EXIT, UnbrokerError } from '../errors.js';
import { isChannel, isLocale, isTemplateKey, PARTS, type Part } from './message.js';
import { TEMPLATE_LIMITS, type TemplateSource, type TemplateVariant } from './templates.js';

/** How long a look at a folder is believed. */
const FRESH_MS = 1_000;
const MAX_FILES = 500;
/** Templates kept in memory. */
const MAX_KEPT = 2_000;

interface Kept {
  readonly lookedAt: number;
  readonly fingerprint: string;
  readonly variants: readonly TemplateVariant[];
}

/** Throws UnbrokerError `templates-missing` when the folder is not there. `now` gives monotonic ms. */
export function templateFiles(folder: string, now: () => number = () => performance.now()): TemplateSource {
  if (!statSync(folder, { throwIfNoEntry: false })?.isDirectory()) {
    throw new UnbrokerError('templates-missing', 'The templates folder does not exist', {
      hint: 'Correct notify.templates in the config; files are named <key>/<locale>.<channel>.<part>.',
      exitStatus: EXIT.badInput,
    });
  }
  const kept = new Map<string, Kept>();
  let keys: ReadonlySet<string> = new Set();
  let keysLookedAt = Number.NEGATIVE_INFINITY;

  /** Exactly these names, also on a file system that ignores case; asking for unknown ones costs one look a second. */
  const keysAt = (lookedAt: number): ReadonlySet<string> => {
    if (lookedAt - keysLookedAt >= FRESH_MS) {
      keys = new Set(namesIn(folder));
      keysLookedAt = lookedAt;
    }
    return keys;
  };

  return {
    files() {
      const names = [...keysAt(now())].filter(isTemplateKey).sort().slice(0, MAX_KEPT);
      return names.map((key) => ({ key, variants: this.variants(key) }));
    },
    variants(key) {
      const lookedAt = now();
      if (!isTemplateKey(key) || !keysAt(lookedAt).has(key)) return [];
      const before = kept.get(key);
      if (before !== undefined && lookedAt - before.lookedAt < FRESH_MS) return before.variants;
      const names = namesIn(join(folder, key)).sort().slice(0, MAX_FILES);
      const fingerprint = names.map((name) => fingerprintOf(join(folder, key, name))).join(' ');
      const same = before !== undefined && before.fingerprint === fingerprint;
      const variants = same ? before.variants : readVariants(join(folder, key), names);
      if (kept.size >= MAX_KEPT) kept.clear();
      kept.set(key, { lookedAt, fingerprint, variants });
      return variants;
    },
  };
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}

function fingerprintOf(path: string): string {
  const stat = statSync(path, { throwIfNoEntry: false });
  return stat === undefined ? '-' : `${path}:${stat.mtimeMs}:${stat.size}:${stat.ino}`;
}

function readVariants(folder: string, names: readonly string[]): TemplateVariant[] {
  const variants = new Map<
    string,
    { locale: string; channel: TemplateVariant['channel']; parts: Partial<Record<Part, string>> }
  >();
  for (const name of names) {
    const [locale, channel, part, ...more] = name.split('.');
    if (!isLocale(locale) && locale !== 'default') continue;
    if (!isChannel(channel) || more.length > 0 || !isPartOf(channel, part)) continue;
    const path = join(folder, name);
    const stat = statSync(path, { throwIfNoEntry: false });
    if (!stat?.isFile() || stat.size > TEMPLATE_LIMITS.sourceLength) continue;
    const variant = variants.get(`${locale}.${channel}`) ?? { locale, channel, parts: {} };
    variant.parts[part] = readFileSync(path, 'utf8');
    variants.set(`${locale}.${channel}`, variant);
  }
  return [...variants.values()];
}

function isPartOf(channel: TemplateVariant['channel'], part: string | undefined): part is Part {
  return (PARTS[channel] as readonly string[]).includes(part ?? '');
}
