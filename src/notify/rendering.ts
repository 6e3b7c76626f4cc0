/**
 * A renderer together with what it must have read first: templates of the table, laid over those of a folder. Who
 * renders asks it to load, then renders; nothing here decides what is sent.
 */
import type { Queryable } from '../jobs/job.js';
import { cachedTemplates, createTemplateTable, type TemplateTable } from './template-table.js';
import { createRenderer, type Renderer, type TemplateSource } from './templates.js';

export interface Rendering {
  readonly renderer: Renderer;
  /** Reads what the renderer needs about a key; nothing when it is known already. */
  load(key: string, version: number | null): Promise<void>;
  /** A key that this process has just changed. */
  forget(key: string): void;
}

export interface RenderingOptions {
  /** null: no folder. */
  readonly files: TemplateSource | null;
  /** null: only files. */
  readonly table: { readonly db: Queryable; readonly table: TemplateTable } | null;
  readonly defaultLocale?: string | undefined;
}

export function createRendering({ files, table, defaultLocale }: RenderingOptions): Rendering {
  const options = defaultLocale === undefined ? {} : { defaultLocale };
  if (table === null) {
    const source = files ?? { variants: () => [] };
    return {
      renderer: createRenderer(source, options),
      load: () => Promise.resolve(),
      forget: () => undefined,
    };
  }
  const { db, table: rows } = table;
  const source = cachedTemplates((key, version) => rows.at(db, key, version), files);
  return {
    renderer: createRenderer(source, options),
    load: (key, version) => source.load(key, version),
    forget: (key) => source.forget(key),
  };
}

/** For who has a database: `schema` is that of the jobs table. */
export function tableOf(db: Queryable | undefined, schema: string): RenderingOptions['table'] {
  return db === undefined ? null : { db, table: createTemplateTable(schema) };
}
