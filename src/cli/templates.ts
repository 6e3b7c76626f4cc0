/** `unbroker templates …`: check a folder of them, put it into the table, look at one rendered. */
import { resolve } from 'node:path';
import { Command } from 'commander';
import { EXIT, UnbrokerError } from '../errors.js';
import { JsonError, readJson, toPlain } from '../json-text.js';
import { isChannel, isLocale, isTemplateKey, MessageError, PARTS } from '../notify/message.js';
import { createRendering, tableOf } from '../notify/rendering.js';
import { type FolderTemplate, readTemplateFolder } from '../notify/template-folder.js';
import { createTemplateTable, type TableTemplate, type TemplateChange } from '../notify/template-table.js';
import { createRenderer } from '../notify/templates.js';
import { type Context, run } from './context.js';
import { print, printJson } from './output.js';
import { readBounded } from './read-bounded.js';

interface FolderOptions {
  readonly folder?: string;
}

interface PushOptions extends FolderOptions {
  readonly prune?: boolean;
  readonly dryRun?: boolean;
}

interface PreviewOptions extends FolderOptions {
  readonly locale: string;
  readonly channel: string;
  readonly dataFile?: string;
  readonly templateVersion?: string;
  readonly table?: boolean;
}

export function templatesCommand(): Command {
  const templates = new Command('templates').description('templates of notifications: check, push, preview');
  const folder = ['--folder <path>', 'default: notify.templates of the config'] as const;
  templates
    .command('check')
    .description('compile every file of the folder')
    .option(...folder)
    .action(run(check));
  templates
    .command('push')
    .description('make what differs from the table a new version')
    .option(...folder)
    .option('--prune', 'delete variants that the folder has no file for, of keys that it has')
    .option('--dry-run', 'say what would be written')
    .action(run(push));
  templates
    .command('preview')
    .description('render one with data, as a worker would')
    .argument('<key>')
    .option('--locale <locale>', 'as en or fr-CA', 'en')
    .option('--channel <channel>', Object.keys(PARTS).join(', '), 'email')
    .option('--data-file <file>', 'JSON object; - reads standard input')
    .option('--table', 'from the table instead of the folder')
    .option('--template-version <n>', 'of the table')
    .option(...folder)
    .action(run(preview));
  return templates;
}

function folderOf(context: Context, { folder }: FolderOptions): string {
  if (folder !== undefined) return resolve(folder);
  const { templates } = context.config.notify ?? {};
  if (templates !== undefined) return resolve(context.directory, templates);
  throw bad(
    'templates-missing',
    'No templates folder is given',
    'Give --folder, or notify.templates in the config.',
  );
}

function bad(code: string, message: string, hint: string): UnbrokerError {
  return new UnbrokerError(code, message, { hint, exitStatus: EXIT.badInput });
}

async function read(context: Context, options: FolderOptions): Promise<FolderTemplate[]> {
  const templates = await readTemplateFolder(folderOf(context, options), context.directory);
  const renderer = createRenderer({ variants: () => [] });
  for (const { key, variants } of templates)
    for (const { locale, channel, parts } of variants) {
      try {
        renderer.check(parts);
      } catch (error) {
        if (!(error instanceof MessageError)) throw error;
        const where = `${key}/${locale}.${channel}`;
        throw bad('template-invalid', `${where} does not compile (${error.message})`, 'Correct the file.');
      }
    }
  return templates;
}

async function check(context: Context, options: FolderOptions): Promise<number> {
  const templates = await read(context, options);
  const variants = templates.reduce((sum, template) => sum + template.variants.length, 0);
  if (context.json) printJson({ templates: templates.length, variants });
  else print(`${templates.length} templates with ${variants} variants compile.`);
  return EXIT.ok;
}

async function push(context: Context, options: PushOptions): Promise<number> {
  const templates = await read(context, options);
  const pool = await context.migratedPool();
  const table = createTemplateTable(context.schema);
  const pushed: { key: string; version: number | null; changes: string[] }[] = [];
  const client = await pool.connect();
  try {
    // One transaction: doors and workers see the folder as a whole, or as it was.
    await client.query('begin');
    for (const { key, variants } of templates) {
      const changes = difference(variants, await table.at(client, key, null), options.prune === true);
      if (changes.length === 0) continue;
      const version = options.dryRun === true ? null : await table.put(client, key, changes);
      pushed.push({ key, version, changes: changes.map(named) });
    }
    await client.query(options.dryRun === true ? 'rollback' : 'commit');
  } catch (error) {
    await client.query('rollback').catch(() => undefined);
    throw error;
  } finally {
    client.release();
  }
  if (context.json) printJson({ pushed, unchanged: templates.length - pushed.length });
  else {
    for (const { key, version, changes } of pushed)
      print(`${key}: ${version === null ? 'would change' : `version ${version}`}: ${changes.join(', ')}`);
    print(
      `${pushed.length} of ${templates.length} templates ${options.dryRun === true ? 'differ' : 'differed'} from the table.`,
    );
  }
  return EXIT.ok;
}

const named = ({ locale, channel, parts }: TemplateChange): string =>
  `${parts === null ? '-' : ''}${locale}.${channel}`;

/** What makes of the table what the folder says. */
function difference(
  variants: FolderTemplate['variants'],
  { changes: there }: TableTemplate,
  prune: boolean,
): TemplateChange[] {
  const textOf = ({ parts }: TemplateChange): string =>
    parts === null ? '' : JSON.stringify(Object.entries(parts).sort(([a], [b]) => (a < b ? -1 : 1)));
  const known = new Map(there.map((change) => [`${change.locale}.${change.channel}`, textOf(change)]));
  const written = variants.filter((one) => known.get(`${one.locale}.${one.channel}`) !== textOf(one));
  if (!prune) return written;
  const kept = new Set(variants.map(({ locale, channel }) => `${locale}.${channel}`));
  const gone = there.filter(
    ({ locale, channel, parts }) => parts !== null && !kept.has(`${locale}.${channel}`),
  );
  return [...written, ...gone.map(({ locale, channel }) => ({ locale, channel, parts: null }))];
}

async function preview(context: Context, key: string, options: PreviewOptions): Promise<number> {
  const { locale, channel, dataFile, templateVersion, table: fromTable } = options;
  if (!isTemplateKey(key) || !isLocale(locale) || !isChannel(channel))
    throw bad(
      'config-invalid',
      'Key, locale or channel is not valid',
      'See: unbroker templates preview --help',
    );
  if (templateVersion !== undefined && !/^[1-9]\d{0,8}$/.test(templateVersion))
    throw bad('config-invalid', '--template-version is not a version', 'Give a whole number from 1.');
  const version = templateVersion === undefined ? null : Number(templateVersion);
  const useTable = fromTable === true || version !== null;
  const files = useTable ? null : await folderSource(context, options);
  const table = useTable ? tableOf(await context.migratedPool(), context.schema) : null;
  const { defaultLocale } = context.config.notify ?? {};
  const rendering = createRendering({ files, table, defaultLocale });
  await rendering.load(key, version);
  try {
    const shown = rendering.renderer.render(key, channel, locale, dataOf(dataFile), version);
    if (context.json) printJson(shown);
    else
      for (const [part, text] of Object.entries(shown.parts)) print(`--- ${shown.locale} ${part}\n${text}`);
    return EXIT.ok;
  } catch (error) {
    if (!(error instanceof MessageError)) throw error;
    throw bad(
      'render-failed',
      `It cannot be rendered (${error.message})`,
      'Correct the template or the data.',
    );
  }
}

async function folderSource(context: Context, options: FolderOptions) {
  const templates = new Map((await read(context, options)).map(({ key, variants }) => [key, variants]));
  return { variants: (key: string) => templates.get(key) ?? [] };
}

const MAX_DATA_BYTES = 16_777_216;

function dataOf(file: string | undefined): unknown {
  if (file === undefined) return {};
  try {
    const node = readJson(readBounded(file, MAX_DATA_BYTES));
    if (node.type === 'object') return toPlain(node);
  } catch (error) {
    const why =
      error instanceof JsonError ? error.problem : ((error as { code?: string }).code ?? 'unreadable');
    throw bad(
      'data-unreadable',
      `The data file cannot be read (${why})`,
      'Give a file with one JSON object.',
    );
  }
  throw bad('data-unreadable', 'The data file is no JSON object', 'Give a file with one JSON object.');
}
