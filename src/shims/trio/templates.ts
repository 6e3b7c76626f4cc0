/**
 * The trio's template routes: read, write, delete, versions, preview. What is written here goes into the table, a new
 * version each time; a notification names the version that it was accepted with. Pure: the renderer holds what is there.
 */
import { toPlain } from '../../json-text.js';
import {
  type Channel,
  DEFAULT_LOCALE,
  isChannel,
  isLocale,
  isTemplateKey,
  MessageError,
  PARTS,
  type Part,
} from '../../notify/message.js';
import { TEMPLATE_LIMITS, type TemplateVariant } from '../../notify/templates.js';
import {
  type Answer,
  type AnyRoute,
  answerRoute,
  type ContractContext,
  EMPTY,
  jsonResponse,
  type ListTemplateVersions,
  type PutTemplate,
  Refusal,
  route,
  type ShimRequest,
} from '../contract.js';
import { type Fields, objectOf as fieldsOf, invalid, limitOf, queryOf } from '../fields.js';

const notFound = (): Refusal => new Refusal(404, 'not-found', 'no such template');

function answer(status: number, value: unknown): Answer {
  return { type: 'answer', response: jsonResponse(status, JSON.stringify(value)) };
}

/** Those of the query's locale and channel; all without. */
function chosen(
  request: ShimRequest,
  { renderer }: ContractContext,
  version: number | null,
): readonly TemplateVariant[] {
  const { locale, channel } = queryOf(request, ['locale', 'channel', 'version']);
  const fitting = (renderer?.variants(request.params['key'] ?? '', version) ?? []).filter(
    (variant) =>
      (locale === undefined || variant.locale === locale) &&
      (channel === undefined || variant.channel === channel),
  );
  // Under what a file's content is kept is nobody's business.
  return fitting.map(({ digest: _digest, ...variant }) => variant);
}

function versionOf(text: string | undefined): number | null {
  if (text === undefined) return null;
  if (!/^[1-9]\d{0,8}$/.test(text)) throw invalid('version is not a positive number');
  return Number(text);
}

const showTemplate = answerRoute({
  method: 'GET',
  path: '/templates/:key',
  parse(request, context) {
    const { version } = queryOf(request, ['locale', 'channel', 'version']);
    const variants = chosen(request, context, versionOf(version));
    return variants.length === 0 ? notFound() : answer(200, { key: request.params['key'], variants });
  },
});

const listVersions = route<ListTemplateVersions>({
  method: 'GET',
  path: '/templates/:key/versions',
  parse(request) {
    const { limit } = queryOf(request, ['limit']);
    return { type: 'list-template-versions', key: request.params['key'] ?? '', limit: limitOf(limit) };
  },
  render: (versions) =>
    versions.length === 0 ? notFound() : jsonResponse(200, JSON.stringify({ items: versions })),
});

interface Put extends PutTemplate {
  readonly locale: string;
  readonly channel: Channel;
  readonly parts: TemplateVariant['parts'];
}

const putTemplate = route<Put>({
  method: 'PUT',
  path: '/templates/:key',
  parse(request, context) {
    const key = request.params['key'] ?? '';
    if (!isTemplateKey(key))
      throw new Refusal(422, 'template-unknown', 'that cannot be the key of a template');
    const fields = fieldsOf(request.body, ['locale', 'channel', 'parts']);
    const locale = fields.text('locale', 50)?.value ?? DEFAULT_LOCALE;
    const channel = fields.text('channel', 20)?.value ?? 'email';
    if (!(isLocale(locale) || locale === 'default') || !isChannel(channel))
      throw invalid('locale or channel is not valid');
    const parts = readParts(fields, channel);
    checkParts(context, parts);
    return { type: 'put-template', key, locale, channel, parts, changes: [{ locale, channel, parts }] };
  },
  render({ version }, { key, locale, channel, parts }) {
    return jsonResponse(200, JSON.stringify({ key, locale, channel, parts, version }));
  },
});

function readParts(
  fields: Fields<'parts' | 'locale' | 'channel'>,
  channel: Channel,
): TemplateVariant['parts'] {
  const node = fields.object('parts');
  if (node === undefined || node.members.size === 0) throw invalid('parts is missing');
  const names: readonly string[] = PARTS[channel];
  const known = fieldsOf(node, names, 'parts');
  const parts: Partial<Record<Part, string>> = {};
  for (const name of names) {
    const text = known.text(name, TEMPLATE_LIMITS.sourceLength);
    if (text !== undefined) parts[name as Part] = text.value;
  }
  if (Object.keys(parts).length === 0) throw invalid('parts is empty');
  return parts;
}

/** As the old service: a template that does not compile is a bad request. */
function checkParts({ renderer }: ContractContext, parts: TemplateVariant['parts']): void {
  try {
    renderer?.check(parts);
  } catch (error) {
    if (error instanceof MessageError) throw invalid('a part does not compile');
    throw error;
  }
}

const deleteTemplate = route<PutTemplate>({
  method: 'DELETE',
  path: '/templates/:key',
  parse(request, context) {
    const variants = chosen(request, context, null);
    if (variants.length === 0) return notFound();
    const changes = variants.map(({ locale, channel }) => ({ locale, channel, parts: null }));
    return { type: 'put-template', key: request.params['key'] ?? '', changes };
  },
  render: () => EMPTY,
});

const preview = answerRoute({
  method: 'POST',
  path: '/templates/:key/preview',
  verb: 'read',
  parse: (request, context) => previewOf(request, context),
});

function previewOf(request: ShimRequest, { renderer }: ContractContext): Answer | Refusal {
  const fields = fieldsOf(request.body, ['locale', 'channel', 'data', 'version']);
  const locale = fields.text('locale', 50)?.value ?? DEFAULT_LOCALE;
  const channel = fields.text('channel', 20)?.value ?? 'email';
  const version = fields.integer('version', 1, 1_000_000_000) ?? null;
  const data = fields.object('data');
  if (!isLocale(locale) || !isChannel(channel)) throw invalid('locale or channel is not valid');
  const key = request.params['key'] ?? '';
  if (renderer === null || renderer.variants(key, version).length === 0) return notFound();
  try {
    const plain = data === undefined ? {} : toPlain(data);
    return answer(200, { key, ...renderer.render(key, channel, locale, plain, version) });
  } catch (error) {
    if (error instanceof MessageError) return new Refusal(422, 'render-failed', error.message);
    throw error;
  }
}

export const templateRoutes: readonly AnyRoute[] = [
  showTemplate,
  listVersions,
  putTemplate,
  deleteTemplate,
  preview,
];
