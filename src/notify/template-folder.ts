/**
 * A whole folder of templates, read strictly for `unbroker templates`: where a running renderer passes over what it does
 * not know, this says which file it is. `<locale>.email.mjml` becomes the html part.
 */
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { EXIT, UnbrokerError } from '../errors.js';
import { type Channel, isChannel, isLocale, isTemplateKey, PARTS, type Part } from './message.js';
import { compileMjml } from './mjml.js';
import type { TemplateChange } from './template-table.js';
import { TEMPLATE_LIMITS } from './templates.js';

export interface FolderTemplate {
  readonly key: string;
  readonly variants: readonly (TemplateChange & {
    readonly parts: Readonly<Partial<Record<Part, string>>>;
  })[];
}

const MAX_TEMPLATES = 2_000;

/** By key. `directory`: where packages are looked for. Throws UnbrokerError: templates-missing, template-invalid, mjml-*. */
export async function readTemplateFolder(folder: string, directory: string): Promise<FolderTemplate[]> {
  if (!statSync(folder, { throwIfNoEntry: false })?.isDirectory()) {
    throw new UnbrokerError('templates-missing', 'The templates folder does not exist', {
      hint: 'Correct notify.templates in the config; files are named <key>/<locale>.<channel>.<part>.',
      exitStatus: EXIT.badInput,
    });
  }
  const keys = readdirSync(folder, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map(({ name }) => name)
    .sort();
  if (keys.length > MAX_TEMPLATES) throw wrong(`there are more than ${MAX_TEMPLATES}`);
  const templates: FolderTemplate[] = [];
  for (const key of keys) {
    if (!isTemplateKey(key))
      throw wrong('the name of a folder is no key: lower-case letters, digits, dashes');
    templates.push({ key, variants: await readVariants(join(folder, key), key, directory) });
  }
  return templates;
}

async function readVariants(
  folder: string,
  key: string,
  directory: string,
): Promise<FolderTemplate['variants']> {
  const variants = new Map<
    string,
    { locale: string; channel: Channel; parts: Partial<Record<Part, string>> }
  >();
  for (const name of readdirSync(folder).sort()) {
    if (name.startsWith('.')) continue;
    const [locale = '', channel, part, ...more] = name.split('.');
    const named = (isLocale(locale) || locale === 'default') && isChannel(channel) && more.length === 0;
    const isMjml = channel === 'email' && part === 'mjml';
    if (!named || !(isMjml || (PARTS[channel] as readonly string[]).includes(part ?? '')))
      throw wrong(`a file in ${key} is not named <locale>.<channel>.<part>`);
    const path = join(folder, name);
    if (statSync(path).size > TEMPLATE_LIMITS.sourceLength) throw wrong(`a file in ${key} is too long`);
    const text = readFileSync(path, 'utf8');
    const variant = variants.get(`${locale}.${channel}`) ?? { locale, channel, parts: {} };
    if (isMjml && variant.parts.html !== undefined)
      throw wrong(`${key} has both mjml and html for one locale`);
    variant.parts[isMjml ? 'html' : (part as Part)] = isMjml ? await compileMjml(text, directory) : text;
    variants.set(`${locale}.${channel}`, variant);
  }
  if (variants.size === 0) throw wrong(`${key} has no file`);
  return [...variants.values()];
}

function wrong(why: string): UnbrokerError {
  return new UnbrokerError('template-invalid', `The templates cannot be used: ${why}`, {
    hint: 'Files are named <key>/<locale>.<channel>.<part>, as welcome/fr.email.subject.',
    exitStatus: EXIT.badInput,
  });
}
