/**
 * Templates in the table: append-only, each change of a key a new version. Its statements stay here, beside the only
 * code that runs them; and the cache that lets a renderer, which is not asynchronous, look into it. A version never
 * changes, so it is kept; what is current is believed for a second.
 */
import type { Queryable } from '../jobs/job.js';
import { quoteSchema } from '../jobs/schema-name.js';
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
  const templates = `${quoteSchema(schema)}.templates`;
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
select version, locale, channel, parts is null as deleted, created_at as "createdAt"
from ${templates} where key = $1
order by version desc, locale, channel
limit $2`,

    /** Of each variant of every key the newest row, by key; at most $1. */
    current: `
select distinct on (t.key, t.locale, t.channel) t.key, t.locale, t.channel, t.parts,
       max(t.version) over (partition by t.key) as version,
       min(t.created_at) over (partition by t.key) as "createdAt",
       max(t.created_at) over (partition by t.key) as "changedAt"
from ${templates} t
order by t.key, t.locale, t.channel, t.version desc
limit $1`,

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
      return (await db.query(sql.versions, [key, limit])).rows as TemplateVersion[];
    },

    async current(db: Queryable, limit: number): Promise<CurrentTemplate[]> {
      return (await db.query(sql.current, [limit])).rows as CurrentTemplate[];
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

/** `now` gives monotonic ms. */
export function cachedTemplates(
  read: (key: string, version: number | null) => Promise<TableTemplate>,
  files: TemplateSource | null,
  now: () => number = () => performance.now(),
): CachedTemplates {
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
      return overlaid(template, files?.variants(key) ?? []);
    },
    async load(key, version) {
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
