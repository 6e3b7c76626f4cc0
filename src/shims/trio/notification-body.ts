/**
 * One notification as a client writes it, read into a job of kind `notify.<channel>`. Its own route, batches, schedules
 * and retries all come through here. Pure.
 */
import { type JsonNode, objectText, type PlainJson, toPlain } from '../../json-text.js';
import {
  CHANNELS,
  type Channel,
  DEFAULT_LOCALE,
  hasControls,
  isChannel,
  isHeaderText,
  isLocale,
  isMailAddress,
  isTemplateKey,
  isUnsubscribeUrl,
} from '../../notify/message.js';
import { type ContractContext, Refusal, type ShimJob } from '../contract.js';
import { type Fields, objectOf as fieldsOf, invalid } from '../fields.js';
import { text } from './common.js';

/** Source of the jobs that came through the notification routes. */
const SOURCE = 'trio:notification';

/** `templateDigest` is ours: it comes back with a payload that is edited, and is then drawn anew. */
const FIELDS = [
  'to',
  'template',
  'channel',
  'locale',
  'data',
  'reference',
  'subject',
  'body',
  'sendAt',
  'delayMs',
  'priority',
  'dedupeKey',
  'version',
  'templateDigest',
  'tags',
  'unsubscribeUrl',
] as const;

type Field = (typeof FIELDS)[number];

/** What a routing key or a surrounding request says, where the body does not. */
export interface NotificationDefaults {
  readonly template?: string;
  readonly channel?: string;
  /** Default true: sent as its template is now. False: as it is when it is sent, unless the body asks for a version. */
  readonly pinned?: boolean;
}

/** One notification as a job. Also what schedules and retries carry. Throws Refusal. */
export function readNotification(
  node: JsonNode | null,
  context: ContractContext,
  defaults: NotificationDefaults = {},
  what = 'body',
): ShimJob {
  const fields = fieldsOf(node, FIELDS, what);
  const to = fields.line('to', 2_000);
  if (to === undefined) throw invalid('to is missing');
  const channel = channelOf(fields.text('channel', 20)?.value ?? defaults.channel ?? 'email', context);
  checkRecipient(channel, to.value, context);
  const locale = fields.text('locale', 50)?.value ?? DEFAULT_LOCALE;
  if (!isLocale(locale)) throw invalid('locale is not a locale');
  const template = fields.text('template', 500)?.value ?? defaults.template ?? null;
  const data = fields.object('data');
  const body = fields.text('body', 500_000);
  const subject = fields.line('subject', 998);
  if (template === null && body === undefined) throw invalid('template is missing');
  if (template !== null && body !== undefined) throw invalid('give template or body, not both');
  const asked = fields.integer('version', 1, 1_000_000_000) ?? null;
  const plain = data === undefined ? {} : toPlain(data);
  const found = template === null ? {} : pinTemplate(template, channel, locale, asked, plain, context);
  const pin = asked !== null || defaults.pinned !== false ? found : {};
  const reference = fields.line('reference', 500);
  return {
    kind: `notify.${channel}`,
    payloadText: objectText({
      to: to.raw,
      template: template === null ? undefined : text(template),
      version: pin.version === undefined ? undefined : String(pin.version),
      templateDigest: pin.digest === undefined ? undefined : text(pin.digest),
      channel: text(channel),
      locale: text(locale),
      data: data?.raw,
      reference: reference?.raw,
      subject: subject?.raw,
      body: body?.raw,
      tags: tagsText(fields),
      unsubscribeUrl: unsubscribeText(fields, channel),
    }),
    source: SOURCE,
    ...optionsOf(fields),
  };
}

function optionsOf(fields: Fields<Field>): Pick<ShimJob, 'runAt' | 'delayMs' | 'priority' | 'dedupeKey'> {
  const runAt = fields.time('sendAt');
  const delayMs = fields.integer('delayMs', 0, MAX_DELAY_MS);
  if (runAt !== undefined && delayMs !== undefined) throw invalid('give sendAt or delayMs, not both');
  const priority = fields.integer('priority', -32_768, 32_767);
  const dedupeKey = fields.line('dedupeKey', 500)?.value;
  return {
    ...(runAt === undefined ? {} : { runAt }),
    ...(delayMs === undefined ? {} : { delayMs }),
    ...(priority === undefined ? {} : { priority }),
    ...(dedupeKey === undefined ? {} : { dedupeKey }),
  };
}

/** Ten years. */
export const MAX_DELAY_MS = 10 * 366 * 24 * 3_600_000;

function channelOf(channel: string, context: ContractContext): Channel {
  if (!isChannel(channel)) throw invalid(`channel is none of ${CHANNELS.join(', ')}`);
  if (context.channels !== null && !context.channels.includes(channel))
    throw new Refusal(
      422,
      'channel-unserved',
      `no provider is configured for it; add notify.${channel} to the config`,
    );
  return channel;
}

function checkRecipient(channel: Channel, to: string, context: ContractContext): void {
  if (channel === 'email' && !isMailAddress(to))
    throw new Refusal(422, 'recipient-invalid', 'to is not one mail address');
  const refused = channel === 'webhook' ? context.refuseUrl(to) : null;
  if (refused !== null) throw new Refusal(422, 'recipient-invalid', `to cannot be called: ${refused}`);
}

/** For mail: what a reader's program calls with one click (RFC 8058). */
function unsubscribeText(fields: Fields<Field>, channel: Channel): string | undefined {
  const url = fields.line('unsubscribeUrl', 2_000);
  if (url === undefined) return undefined;
  if (channel !== 'email' || !isUnsubscribeUrl(url.value))
    throw invalid('unsubscribeUrl is an https URL of visible ASCII, for mail');
  return url.raw;
}

/** 1 to 20 lines of up to 100 characters. */
function tagsText(fields: Fields<Field>): string | undefined {
  const tags = fields.array('tags', 20);
  for (const tag of tags?.items ?? []) {
    if (tag.type !== 'string' || tag.value.length < 1 || tag.value.length > 100)
      throw invalid('tags is not a list of strings of 1 to 100 characters');
    if (hasControls(tag.value))
      throw new Refusal(422, 'control-characters', 'a tag holds a line break or another control character');
  }
  return tags?.raw;
}

/**
 * What to send with: a version of the table, or what the file says now. A name that could not be a template, or is none,
 * can never be sent: say so while somebody listens.
 */
function pinTemplate(
  key: string,
  channel: Channel,
  locale: string,
  asked: number | null,
  data: PlainJson,
  { renderer }: ContractContext,
): { readonly version?: number; readonly digest?: string } {
  if (!isTemplateKey(key)) throw templateUnknown();
  if (renderer === null) return asked === null ? {} : { version: asked };
  const variant = renderer.find(key, channel, locale, asked);
  if (variant === null) throw templateUnknown();
  const subject = renderer.renderSubject(variant, data);
  if (subject !== null && !isHeaderText(subject))
    throw new Refusal(
      422,
      'control-characters',
      'data puts a line break into the subject, or makes it too long',
    );
  const version = asked ?? variant.version;
  if (version !== undefined) return { version };
  return variant.digest === undefined ? {} : { digest: variant.digest };
}

const templateUnknown = (): Refusal =>
  new Refusal(422, 'template-unknown', 'there is no such template for this channel and locale');
