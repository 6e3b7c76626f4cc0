/**
 * A renderer together with what it must have read first: templates of the table, laid over those of a folder. Who
 * renders asks it to load, then renders; nothing here decides what is sent.
 */
import type { Queryable } from '../jobs/job.js';
import { cachedTemplates, createTemplateTable, digestOf, type TemplateTable } from './template-table.js';
import { createRenderer, type Renderer, type TemplateSource, type TemplateVariant } from './templates.js';

const MAX_KEPT = 500;

export interface Rendering {
  readonly renderer: Renderer;
  /** Reads what the renderer needs about a key; nothing when it is known already. */
  load(key: string, version: number | null): Promise<void>;
  /** A key that this process has just changed. */
  forget(key: string): void;
  /** What a file said when a job was accepted with it; null when nobody kept it and the file says something else now. */
  fileAt(key: string, digest: string): Promise<TemplateVariant['parts'] | null>;
}

export interface RenderingOptions {
  /** null: no folder. */
  readonly files: TemplateSource | null;
  /** null: only files. */
  readonly table: { readonly db: Queryable; readonly table: TemplateTable } | null;
  readonly defaultLocale?: string | undefined;
  /** True for who accepts notifications: what files say is kept, and a variant says under what. Default false. */
  readonly keepFiles?: boolean;
}

export function createRendering({ files, table, defaultLocale, keepFiles }: RenderingOptions): Rendering {
  const options = defaultLocale === undefined ? {} : { defaultLocale };
  const fromFolder = (key: string, digest: string): TemplateVariant['parts'] | null =>
    files?.variants(key).find(({ parts }) => digestOf(parts) === digest)?.parts ?? null;
  if (table === null) {
    const source = files ?? { variants: () => [] };
    return {
      renderer: createRenderer(source, options),
      load: () => Promise.resolve(),
      forget: () => undefined,
      fileAt: (key, digest) => Promise.resolve(fromFolder(key, digest)),
    };
  }
  const { db, table: rows } = table;
  const source = cachedTemplates(
    (key, version) => rows.at(db, key, version),
    files,
    keepFiles === true ? { keep: (contents) => rows.keep(db, contents) } : {},
  );
  // A content never changes under its digest.
  const kept = new Map<string, TemplateVariant['parts']>();
  return {
    renderer: createRenderer(source, options),
    load: (key, version) => source.load(key, version),
    forget: (key) => source.forget(key),
    async fileAt(key, digest) {
      const known = kept.get(digest) ?? fromFolder(key, digest);
      if (known !== null) return known;
      const parts = await rows.kept(db, digest);
      if (parts === null) return null;
      if (kept.size >= MAX_KEPT) kept.clear();
      kept.set(digest, parts);
      return parts;
    },
  };
}

/** For who has a database: `schema` is that of the jobs table. */
export function tableOf(db: Queryable | undefined, schema: string): RenderingOptions['table'] {
  return db === undefined ? null : { db, table: createTemplateTable(schema) };
}
