/**
 * The plan of a repository: read, prefilter, one program, facts, verdicts, and last the new text of each file. Nothing
 * is written here; apply.ts does that, from this plan and nothing else.
 */

import { dirname, resolve } from 'node:path';
import { analyse, siteCalls, unresolvedCalls } from './analyse.js';
import { changesOf, type FileChange, type OpenSite } from './changes.js';
import { type Progress, readSources, type Sources } from './files.js';
import { fingerprints } from './fingerprint.js';
import { type Mapping, mappingOf } from './mapping.js';
import { type PlanSite, siteOf } from './plan-site.js';
import { type Analysis, checksIndexes } from './program.js';
import type { Obstacle } from './reasons.js';
import { type KindsOption, makeRegistry, type PlanKinds, type Registry } from './registry.js';
import type { ReadSite, SiteReader } from './site.js';
import { checkStart } from './start.js';
import { contains, lineOf, quote } from './syntax.js';
import { refuseBrokenThreads } from './thread-work.js';
import type { Level } from './verdict.js';
import type { Skipped } from './walk.js';
import type { Wrapper } from './wrappers.js';

/** What is applied: each level includes the ones before it. */
export type PlanLevel = 'safe' | 'wrap' | 'thread';

const LEVELS: readonly PlanLevel[] = ['safe', 'wrap', 'thread'];

export interface PlanOptions {
  /** Directory of the repository. */
  readonly root: string;
  /** Files or directories in it to report and edit; empty: all. */
  readonly paths: readonly string[];
  readonly level: PlanLevel;
  readonly inlineSql: boolean;
  /** `relay`: the job repeats the publish (kind relay.amqp); default `kind`: a worker handles the kind itself. */
  readonly target?: 'kind' | 'relay';
  /** Leave one comment at each refused site. */
  readonly todo: boolean;
  /** Look packages up; false is faster and traces values by imports alone. */
  readonly types: boolean;
  /** Make a registry of kinds, too. */
  readonly kinds?: KindsOption;
  /** Source files that a repository may have; default 20,000. */
  readonly maxFiles?: number;
  /** Told now and then what a long run is at. */
  readonly progress?: Progress;
}

export interface PlanWrapper {
  readonly id: string;
  readonly file: string;
  readonly line: number;
  readonly calls: number;
  readonly usable: boolean;
  readonly confirmed: boolean;
  readonly obstacles: readonly Obstacle[];
  readonly notes: readonly string[];
  /** How its arguments are read. */
  readonly mapping: Mapping;
}

export interface Plan {
  readonly version: 1;
  readonly root: string;
  readonly level: PlanLevel;
  /** Why answers may be less sure than usual; null when everything resolved. */
  readonly degraded: { readonly why: string; readonly packages: readonly string[] } | null;
  readonly counts: {
    readonly files: number;
    readonly parsed: number;
    readonly safe: number;
    readonly wrap: number;
    readonly thread: number;
    readonly refused: number;
  };
  readonly wrappers: readonly PlanWrapper[];
  readonly sites: readonly PlanSite[];
  readonly skipped: readonly Skipped[];
  /** The registry of kinds; null when none was asked for. */
  readonly kinds: PlanKinds | null;
  readonly changes: readonly FileChange[];
}

/** A plan, and the plans that hold only some of its rewrites. */
export interface PreparedPlan {
  readonly plan: Plan;
  /** The same scan with the rewrites that `keep` wants; asked once for each site that would be applied. */
  readonly choose: (keep: (site: PlanSite) => boolean) => Plan;
}

export function makePlan(options: PlanOptions): Plan {
  return preparePlan(options).plan;
}

export function preparePlan(options: PlanOptions): PreparedPlan {
  const { progress = () => undefined } = options;
  const { config: written } = checkStart(options);
  const sources = readSources(options.root, options.paths, options);
  const config = {
    ...written,
    relay: options.target === 'relay',
    registry: options.kinds !== undefined,
    checkedIndexes:
      options.kinds !== undefined &&
      checksIndexes(sources.root, dirname(resolve(sources.root, options.kinds.path))),
  };
  const skipped: Skipped[] = [...sources.skipped];
  const { analysis, reader } = analyse(sources, config, options.types, skipped, progress);
  const found = readSites(analysis, reader, sources, progress);
  const registry =
    options.kinds === undefined ? undefined : makeRegistry(options.kinds, sources.root, analysis, reader);
  const plan = (sites: OpenSite[]): Plan =>
    planOf(sites, analysis, reader, sources, skipped, options, registry);
  const all = plan(found.map((site) => ({ ...site })));
  return {
    plan: all,
    choose: (keep) =>
      plan(
        found.map((site, index) => {
          const listed = all.sites[index];
          const declined = listed === undefined || (listed.applied && !keep(listed));
          // A publish that stays must not end up inside a transaction made for its neighbours.
          return declined ? { ...site, read: { ...site.read, rewrite: undefined } } : { ...site };
        }),
      ),
  };
}

function planOf(
  sites: OpenSite[],
  analysis: Analysis,
  reader: SiteReader,
  sources: Sources,
  skipped: readonly Skipped[],
  options: PlanOptions,
  registry: Registry | undefined,
): Plan {
  refuseBrokenThreads(sites, analysis.pathOf);
  refuseBrokenGroups(sites);
  refuseBrokenThreads(sites, analysis.pathOf);
  const applied = (site: OpenSite): boolean =>
    site.read.rewrite !== undefined &&
    site.reach !== null &&
    LEVELS.indexOf(site.reach) <= LEVELS.indexOf(options.level);
  const { inlineSql, todo } = options;
  const kindsFor = registry?.moduleFor;
  const changes = changesOf(sites, applied, analysis, reader, sources, { inlineSql, todo, kindsFor });
  const marks = fingerprints(
    sites.map(({ read }) => ({
      file: analysis.pathOf(read.call.getSourceFile()),
      function: read.functionName,
      text: read.call.getText(),
    })),
  );
  const listed = sites.map((site, index) =>
    siteOf(site, analysis, reader, applied(site), marks[index] ?? ''),
  );
  const count = (level: Level): number => listed.filter((s) => s.level === level).length;
  return {
    version: 1,
    root: sources.root,
    level: options.level,
    degraded: degradedBy(analysis, options.types),
    counts: {
      files: sources.files.size,
      parsed: analysis.roots.length,
      safe: count('safe'),
      wrap: count('wrap'),
      thread: count('thread'),
      refused: count('refused'),
    },
    wrappers: wrappersOf(reader),
    sites: listed,
    skipped: [...skipped].sort((a, b) => (a.path < b.path ? -1 : 1)),
    kinds: registry?.plan ?? null,
    changes: [...changes, ...(registry?.changes ?? [])],
  };
}

// ── the sites ──

function readSites(analysis: Analysis, reader: SiteReader, sources: Sources, progress: Progress): OpenSite[] {
  const calls = [...siteCalls(reader), ...unresolvedCalls(analysis, reader)];
  return calls
    .filter((call) => {
      const path = analysis.pathOf(call.getSourceFile());
      return sources.selected(path) && !sources.isTest(path);
    })
    .sort(
      (a, b) =>
        compare(analysis.pathOf(a.getSourceFile()), analysis.pathOf(b.getSourceFile())) || a.pos - b.pos,
    )
    .map((call, index, { length }) => {
      progress(`Publish ${index + 1} of ${length}: ${analysis.pathOf(call.getSourceFile())}`);
      const read = reader.read(call);
      return { read, reach: reachOf(read) };
    });
}

function reachOf(read: ReadSite): OpenSite['reach'] {
  if (read.rewrite?.threading !== undefined) return 'thread';
  if (read.transaction !== undefined) return 'safe';
  return read.pool === undefined ? null : 'wrap';
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

/** A publish that stays keeps its neighbours out of a common transaction: a broker call must not run inside one. */
function refuseBrokenGroups(sites: OpenSite[]): void {
  for (let changed = true; changed; ) {
    changed = false;
    for (const site of sites) {
      const { rewrite } = site.read;
      if (rewrite?.how !== 'wrap') continue;
      const spoiler = sites.find(
        (other) =>
          other !== site &&
          other.read.rewrite === undefined &&
          rewrite.scope.statements.some((s) => contains(s, other.read.call)),
      );
      if (spoiler === undefined) continue;
      const obstacle: Obstacle = {
        code: 'between-not-movable',
        what: `line ${lineOf(spoiler.read.call)}, ${quote(spoiler.read.call)}`,
      };
      site.read = { ...site.read, rewrite: undefined, obstacles: [...site.read.obstacles, obstacle] };
      changed = true;
    }
  }
}

function wrappersOf(reader: SiteReader): PlanWrapper[] {
  const calls = new Map<Wrapper['fn'], number>();
  for (const call of reader.discovery.publishes) {
    const callee = reader.resolver.calleeOf(call);
    if (callee.kind === 'own') for (const fn of callee.fns) calls.set(fn, (calls.get(fn) ?? 0) + 1);
  }
  return [...reader.discovery.wrappers.values()]
    .map((w) => ({
      id: w.id,
      file: w.file,
      line: w.line,
      calls: calls.get(w.fn) ?? 0,
      usable: w.obstacles.length === 0,
      confirmed: w.override !== undefined,
      obstacles: w.obstacles,
      notes: w.notes,
      mapping: mappingOf(w, reader),
    }))
    .sort((a, b) => compare(a.id, b.id));
}

function degradedBy(analysis: Analysis, types: boolean): Plan['degraded'] {
  if (!types) return { why: 'packages were not looked up (--no-types)', packages: [] };
  if (analysis.unresolvedPackages.length === 0) return null;
  return {
    why: 'packages are not installed; values were traced by imports',
    packages: analysis.unresolvedPackages,
  };
}
