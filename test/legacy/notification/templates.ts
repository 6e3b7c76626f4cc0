/**
 * Handlebars templates as files, `<key>/<locale>.<channel>.<part>`. They are read at each use, so that an edit needs
 * no restart. It knows nothing of delivery.
 */
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import Handlebars from 'handlebars';

export type Parts = Record<string, string>;

export interface Variant {
  readonly locale: string;
  readonly channel: string;
  readonly parts: Parts;
}

/** The template is not there, or does not fit the data: another try would end the same. */
export class RenderError extends Error {}

const KEY = /^[a-z0-9][a-z0-9-]{0,99}$/;
const LOCALE = /^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*$/;
const DEFAULT_LOCALE = 'en';
/** The parts a channel has; those not listed in a folder are left out of the message. */
export const PARTS: Readonly<Record<string, readonly string[]>> = {
  email: ['subject', 'text', 'html'],
  sms: ['text'],
  push: ['text'],
  webhook: ['body'],
};

export const isKey = (key: unknown): key is string => typeof key === 'string' && KEY.test(key);
export const isLocale = (locale: unknown): locale is string =>
  typeof locale === 'string' && LOCALE.test(locale);

export class Templates {
  constructor(private readonly folder: string) {}

  async variants(key: string): Promise<Variant[]> {
    if (!isKey(key)) return [];
    const names = await readdir(join(this.folder, key)).catch(() => [] as string[]);
    const variants = new Map<string, Variant>();
    for (const name of names.sort()) {
      const [locale, channel, part] = name.split('.');
      if (locale === undefined || channel === undefined || part === undefined) continue;
      const variant = variants.get(`${locale}.${channel}`) ?? { locale, channel, parts: {} };
      variant.parts[part] = await readFile(join(this.folder, key, name), 'utf8');
      variants.set(`${locale}.${channel}`, variant);
    }
    return [...variants.values()];
  }

  /** Replaces one variant. Throws RenderError when a part does not compile or the channel has no such part. */
  async put(key: string, variant: Variant): Promise<void> {
    for (const [part, source] of Object.entries(variant.parts)) {
      if (!PARTS[variant.channel]?.includes(part))
        throw new RenderError(`${variant.channel} has no part ${part}`);
      compile(part, source);
    }
    await mkdir(join(this.folder, key), { recursive: true });
    for (const part of PARTS[variant.channel] ?? []) {
      const file = join(this.folder, key, `${variant.locale}.${variant.channel}.${part}`);
      const source = variant.parts[part];
      if (source === undefined) await rm(file, { force: true });
      else await writeFile(file, source);
    }
  }

  async remove(key: string): Promise<void> {
    await rm(join(this.folder, key), { recursive: true, force: true });
  }

  /** The variant of the nearest locale, filled in: fr-CA, then fr, then en. */
  async render(
    key: string,
    locale: string,
    channel: string,
    data: Record<string, unknown>,
  ): Promise<Variant> {
    const variants = (await this.variants(key)).filter((variant) => variant.channel === channel);
    const chain = [locale, locale.split('-')[0], DEFAULT_LOCALE];
    const variant = chain
      .map((name) => variants.find((v) => v.locale === name))
      .find((found) => found !== undefined);
    if (variant === undefined) throw new RenderError(`no template ${key} for ${channel} in ${locale}`);
    const parts: Parts = {};
    for (const [part, source] of Object.entries(variant.parts)) parts[part] = fill(key, part, source, data);
    return { ...variant, parts };
  }
}

function compile(part: string, source: string): HandlebarsTemplateDelegate {
  try {
    Handlebars.parse(source);
  } catch (error) {
    throw new RenderError(`${part}: ${firstLine(error)}`);
  }
  return Handlebars.compile(source, { strict: true, noEscape: part !== 'html' });
}

function fill(key: string, part: string, source: string, data: Record<string, unknown>): string {
  const template = compile(part, source);
  try {
    const text = template(data);
    return part === 'subject' ? text.trim() : text;
  } catch (error) {
    throw new RenderError(`${key} ${part}: ${firstLine(error)}`);
  }
}

function firstLine(error: unknown): string {
  return (error instanceof Error ? error.message : String(error)).split('\n')[0] ?? '';
}
