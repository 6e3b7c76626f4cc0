/**
 * Templates in the table: append-only, each change of a key a new version. Its statements stay here, beside the only
 * code that runs them; and the cache that lets a renderer, which is not asynchronous, look into it. A version never
 * changes, so it is kept; what is current is believed for a second.
 */
import { createHash } from 'node:crypto';
import type { Queryable } from '../jobs/job.js';
import { quoteSchema } from '../jobs/schema-name.js';
import { epochMs, withDates } from '../jobs/times.js';
import { type Channel, isTemplateKey, type Part } from './message.js';
import type { TemplateSource, TemplateVariant } from './templates.js';

/** `parts` null: the variant is deleted from this version on. */
export interface TemplateChange {
  readonly locale: string;
  readonly channel: Channel;
  readonly parts: Readonly<Partial<Record<Part, string>>> | null;
}

/** What a key has at one version. */
export interface TableTemplate {
  /** The key's newest version; null when the table does not know it. */
  readonly version: number | null;
  readonly changes: readonly TemplateChange[];
}

export interface TemplateVersion {
  readonly version: number;
  readonly locale: string;
  readonly channel: Channel;
  readonly deleted: boolean;
  readonly createdAt: Date;
}

/** A variant as it is now, with the newest version of its key. */
export interface CurrentTemplate extends TemplateChange {
  readonly key: string;
  readonly version: number;
  /** Of the key: its first version, and its newest. */
  readonly createdAt: Date;
  readonly changedAt: Date;
}

export type TemplateTable = ReturnType<typeof createTemplateTable>;

export const MAX_TEMPLATE_CHANGES = 200;

export function createTemplateTable(schema: string) {
  const schemaName = quoteSchema(schema);
  const templates = `${schemaName}.templates`;
  const sql = {
    /** One change of a key at a time: its next version is counted here. */
    lock: `
select pg_advisory_xact_lock(hashtextextended('template:' || $1::text, 0))::text as locked`,

    /** A new version of a key, with these variants. The caller holds the lock. */
    put: `
insert into ${templates} (key, version, locale, channel, parts)
select $1, next.version, input.locale, input.channel, input.parts::jsonb
from (select coalesce(max(version), 0) + 1 as version from ${templates} where key = $1) as next,
     unnest($2::text[], $3::text[], $4::text[]) as input (locale, channel, parts)
returning version`,

    /** Of each variant the newest row up to version $2 (null = all), and the newest version of the key up to it. */
    at: `
select distinct on (t.locale, t.channel) t.locale, t.channel, t.parts,
       (select max(n.version) from ${templates} n where n.key = $1 and ($2::integer is null or n.version <= $2)) as "newest"
from ${templates} t
where t.key = $1 and ($2::integer is null or t.version <= $2)
order by t.locale, t.channel, t.version desc`,

    /** Newest first; at most $2. */
    versions: `
select version, locale, channel, parts is null as deleted, ${epochMs('created_at')} as "createdAt"
from ${templates} where key = $1
order by version desc, locale, channel
limit $2`,

    /** Of each variant of every key the newest row, by key; at most $1. */
    current: `
select distinct on (t.key, t.locale, t.channel) t.key, t.locale, t.channel, t.parts,
       max(t.version) over (partition by t.key) as version,
       ${epochMs('min(t.created_at) over (partition by t.key)')} as "createdAt",
       ${epochMs('max(t.created_at) over (partition by t.key)')} as "changedAt"
from ${templates} t
order by t.key, t.locale, t.channel, t.version desc
limit $1`,

    /** What a file says, once for each content. */
    keep: `
insert into ${schemaName}.template_files (digest, parts)
select input.digest, input.parts::jsonb from unnest($1::text[], $2::text[]) as input (digest, parts)
on conflict do nothing`,

    kept: `
select parts from ${schemaName}.template_files where digest = $1`,

    /** Keys that the table knows, by name. */
    keys: `
select distinct key from ${templates} where key > $1 order by key limit $2`,
  } as const;

  return {
    /** Writes a new version and answers its number. `db` must be inside a transaction. */
    async put(db: Queryable, key: string, changes: readonly TemplateChange[]): Promise<number> {
      await db.query(sql.lock, [key]);
      const values = [
        key,
        changes.map(({ locale }) => locale),
        changes.map(({ channel }) => channel),
        changes.map(({ parts }) => (parts === null ? null : JSON.stringify(parts))),
      ];
      const { rows } = await db.query(sql.put, values);
      return (rows[0] as { version: number } | undefined)?.version ?? 0;
    },

    async at(db: Queryable, key: string, version: number | null): Promise<TableTemplate> {
      const { rows } = await db.query(sql.at, [key, version]);
      const found = rows as (TemplateChange & { readonly newest: number })[];
      return { version: found[0]?.newest ?? null, changes: found };
    },

    async versions(db: Queryable, key: string, limit: number): Promise<TemplateVersion[]> {
      return withDates<TemplateVersion>((await db.query(sql.versions, [key, limit])).rows, ['createdAt']);
    },

    async current(db: Queryable, limit: number): Promise<CurrentTemplate[]> {
      const { rows } = await db.query(sql.current, [limit]);
      return withDates<CurrentTemplate>(rows, ['createdAt', 'changedAt']);
    },

    /** Contents of files by their digests; one that is there stays. */
    async keep(db: Queryable, contents: ReadonlyMap<string, TemplateVariant['parts']>): Promise<void> {
      const texts = [...contents.values()].map((parts) => JSON.stringify(parts));
      await db.query(sql.keep, [[...contents.keys()], texts]);
    },

    /** null: nobody kept it. */
    async kept(db: Queryable, digest: string): Promise<TemplateVariant['parts'] | null> {
      const { rows } = await db.query(sql.kept, [digest]);
      return (rows[0] as { parts: TemplateVariant['parts'] } | undefined)?.parts ?? null;
    },

    async keys(db: Queryable, after: string, limit: number): Promise<string[]> {
      return (await db.query(sql.keys, [after, limit])).rows.map((row) => (row as { key: string }).key);
    },
  };
}

/** Thrown by a source that must look into the table first: load, then ask again. */
export class TemplateNotLoaded extends Error {
  constructor(
    readonly key: string,
    readonly version: number | null,
  ) {
    super('a template has not been read from the table yet');
    this.name = 'TemplateNotLoaded';
  }
}

/** A source for renderers over the table, laid over files where there are some. */
export interface CachedTemplates extends TemplateSource {
  /** Reads what the source needs to answer about a key; nothing when it is known already. */
  load(key: string, version: number | null): Promise<void>;
  /** What this process has just written is not believed to be as it was. */
  forget(key: string): void;
}

const FRESH_MS = 1_000;
const MAX_KEPT = 2_000;

/** Of a file's parts, whatever their order. */
export function digestOf(parts: TemplateVariant['parts']): string {
  const known = digests.get(parts);
  if (known !== undefined) return known;
  const sorted = Object.entries(parts).sort(([a], [b]) => (a < b ? -1 : 1));
  const digest = createHash('sha256').update(JSON.stringify(sorted)).digest('hex');
  digests.set(parts, digest);
  return digest;
}

/** Parts are read anew only when a file has changed. */
const digests = new WeakMap<TemplateVariant['parts'], string>();

export interface CacheOptions {
  /**
   * Keeps what files say, so that a job can name it: for who accepts notifications. With it the source shows no file whose
   * content is not kept yet. Absent: files are shown as they are.
   */
  readonly keep?: (contents: ReadonlyMap<string, TemplateVariant['parts']>) => Promise<void>;
  /** Gives monotonic ms. */
  readonly now?: () => number;
}

export function cachedTemplates(
  read: (key: string, version: number | null) => Promise<TableTemplate>,
  files: TemplateSource | null,
  { keep, now = () => performance.now() }: CacheOptions = {},
): CachedTemplates {
  const keptFiles = new Set<string>();
  const filesOf = (key: string): readonly TemplateVariant[] => files?.variants(key) ?? [];
  /** Throws TemplateNotLoaded for a file that is new, or was edited a moment ago. */
  const withDigests = (key: string, variants: readonly TemplateVariant[]): TemplateVariant[] =>
    variants.map((variant) => {
      const digest = digestOf(variant.parts);
      if (!keptFiles.has(digest)) throw new TemplateNotLoaded(key, null);
      return { ...variant, digest };
    });
  const kept = new Map<string, { readonly readAt: number; readonly template: TableTemplate }>();
  const nameOf = (key: string, version: number | null): string => `${key}@${version ?? ''}`;
  const find = (key: string, version: number | null): TableTemplate | undefined => {
    const found = kept.get(nameOf(key, version));
    if (found === undefined) return undefined;
    return version !== null || now() - found.readAt < FRESH_MS ? found.template : undefined;
  };

  return {
    files: () => files?.files?.() ?? [],
    variants(key, version = null) {
      if (!isTemplateKey(key)) return [];
      const template = find(key, version);
      if (template === undefined) throw new TemplateNotLoaded(key, version);
      const shown = filesOf(key);
      return overlaid(template, keep === undefined || version !== null ? shown : withDigests(key, shown));
    },
    async load(key, version) {
      if (keep !== undefined && version === null) {
        const contents = new Map(filesOf(key).map(({ parts }) => [digestOf(parts), parts]));
        for (const digest of contents.keys()) if (keptFiles.has(digest)) contents.delete(digest);
        if (contents.size > 0) await keep(contents);
        if (keptFiles.size >= MAX_KEPT) keptFiles.clear();
        for (const digest of contents.keys()) keptFiles.add(digest);
      }
      if (find(key, version) !== undefined) return;
      const readAt = now();
      const template = await read(key, version);
      if (kept.size >= MAX_KEPT) kept.clear();
      kept.set(nameOf(key, version), { readAt, template });
    },
    forget(key) {
      kept.delete(nameOf(key, null));
    },
  };
}

/** The table's variants, then those files that it says nothing of. */
function overlaid({ version, changes }: TableTemplate, files: readonly TemplateVariant[]): TemplateVariant[] {
  const named = new Set(changes.map(({ locale, channel }) => `${locale}.${channel}`));
  const written = changes.flatMap(({ locale, channel, parts }) =>
    parts === null || version === null ? [] : [{ locale, channel, parts, version }],
  );
  return [...written, ...files.filter(({ locale, channel }) => !named.has(`${locale}.${channel}`))];
}
