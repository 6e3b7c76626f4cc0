/**
 * What a notification is: the payload of `notify.<channel>`, and the message that a provider gets once it is rendered.
 * Pure. It knows neither templates nor providers.
 */
import { domainToASCII } from 'node:url';

/** The parts a channel's message has. */
export const PARTS = {
  email: ['subject', 'text', 'html'],
  sms: ['text'],
  push: ['text'],
  webhook: ['body'],
} as const;

export type Channel = keyof typeof PARTS;
export type Part = (typeof PARTS)[Channel][number];

export const CHANNELS = Object.keys(PARTS) as Channel[];
export const DEFAULT_LOCALE = 'en';

export function isChannel(value: unknown): value is Channel {
  return typeof value === 'string' && Object.hasOwn(PARTS, value);
}

/** A template's name is a folder's name: no dot, no slash, no upper case, so no way out of the templates folder. */
export function isTemplateKey(value: unknown): value is string {
  return typeof value === 'string' && /^[a-z0-9][a-z0-9-]{0,99}$/.test(value);
}

export function isTemplateVersion(value: unknown): value is number {
  return Number.isInteger(value) && (value as number) >= 1 && (value as number) <= 2_147_483_647;
}

export function isDigest(value: unknown): value is string {
  return typeof value === 'string' && /^[0-9a-f]{64}$/.test(value);
}

export function isLocale(value: unknown): value is string {
  return typeof value === 'string' && /^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8}){0,3}$/.test(value);
}

/** Line breaks and the like: what would end a header or a log line. */
export function hasControls(text: string): boolean {
  return /[\p{Cc}\u2028\u2029]/u.test(text);
}

/**
 * One bare address, as it stands in an envelope and a header: nothing that a mail library could read as a second
 * recipient or a header, no invisible character, no address literal. Letters of any script; the domain is a host's name.
 */
export function isMailAddress(value: string): boolean {
  return mailboxOf(value) !== null;
}

/** The address with its domain in ASCII and lower case, so that one mailbox is written one way; null for none. */
export function mailboxOf(value: string): string | null {
  const [, local = '', domain = ''] =
    /^([\p{L}\p{M}\p{N}.!#$%&'*+/=?^_`{|}~-]{1,64})@([\p{L}\p{M}\p{N}._-]{1,255})$/u.exec(value) ?? [];
  const host = domainToASCII(domain).toLowerCase();
  if (host.length > 253 || !/^[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*$/.test(host)) return null;
  return /(^|\.)-|-(\.|$)/.test(host) ? null : `${local}@${host}`;
}

/** It stands in a header between angle brackets. */
export function isUnsubscribeUrl(value: string): boolean {
  return /^https:\/\/[\x21-\x7e]{1,1990}$/.test(value) && !/[<>]/.test(value) && URL.canParse(value);
}

/** True when it may stand in a header. */
export function isHeaderText(value: string): boolean {
  return value.length <= 998 && !hasControls(value);
}

/** Payload of a `notify.<channel>` job. Either `template` or `body`. */
export interface NotificationPayload {
  readonly to: string;
  readonly template: string | null;
  /** Of the template, as it was when the notification was accepted; null = as it is. */
  readonly version: number | null;
  /** What the template's file said then, where it is only a file; null = as it is. */
  readonly templateDigest: string | null;
  readonly locale: string;
  /** Without prototypes; numbers that a double cannot hold are strings. */
  readonly data: { readonly [key: string]: unknown };
  readonly reference: string | null;
  /** Beside `body`: the mail's subject. */
  readonly subject: string | null;
  readonly body: string | null;
  /** What a mail's List-Unsubscribe says; null: none. */
  readonly unsubscribeUrl: string | null;
}

/** What a provider delivers. Each part that its channel has, where the template has it. */
export interface Message {
  /** The job's id: stable over retries. */
  readonly id: string;
  readonly channel: Channel;
  readonly to: string;
  readonly parts: Readonly<Partial<Record<Part, string>>>;
  /** For mail: becomes List-Unsubscribe and List-Unsubscribe-Post. */
  readonly unsubscribeUrl?: string;
}

/** The payload does not say what to send, or may not be sent: no retry will change it. */
export class MessageError extends Error {
  constructor(
    readonly code: string,
    message: string,
  ) {
    super(message);
    this.name = 'MessageError';
  }
}

/**
 * Reads a payload as plain JSON. A scheduler's envelope `{id, key, data, triggerTime}` around it is taken off, since
 * messages that the old scheduler fired carry one. Throws MessageError `payload-invalid`.
 */
export function readNotification(payload: unknown): NotificationPayload {
  const fields = unwrap(payload);
  const {
    to,
    template = null,
    version = null,
    templateDigest = null,
    locale = null,
    data = null,
    reference = null,
    subject = null,
    body = null,
    unsubscribeUrl = null,
  } = fields;
  if (typeof to !== 'string' || to === '') throw wrong('to is missing');
  if (template !== null && !isTemplateKey(template)) throw wrong('template is not a template key');
  if (version !== null && !isTemplateVersion(version)) throw wrong('version is not a version');
  if (templateDigest !== null && !isDigest(templateDigest)) throw wrong('templateDigest is not a digest');
  if (locale !== null && !isLocale(locale)) throw wrong('locale is not a locale');
  if (data !== null && !isObject(data)) throw wrong('data is not an object');
  if (unsubscribeUrl !== null && !(typeof unsubscribeUrl === 'string' && isUnsubscribeUrl(unsubscribeUrl)))
    throw wrong('unsubscribeUrl is not an https URL');
  for (const [name, value] of Object.entries({ reference, subject, body })) {
    if (value !== null && typeof value !== 'string') throw wrong(`${name} is not a string`);
  }
  if (template === null && body === null) throw wrong('neither template nor body is given');
  return {
    to,
    template: template as string | null,
    version,
    templateDigest,
    locale: (locale as string | null) ?? DEFAULT_LOCALE,
    data: (data as NotificationPayload['data'] | null) ?? {},
    reference: reference as string | null,
    subject: subject as string | null,
    body: body as string | null,
    unsubscribeUrl,
  };
}

function unwrap(payload: unknown): Readonly<Record<string, unknown>> {
  if (!isObject(payload)) throw wrong('the payload is not an object');
  const { triggerTime, key, data } = payload;
  return typeof triggerTime === 'string' && typeof key === 'string' && isObject(data) ? data : payload;
}

const wrong = (message: string): MessageError => new MessageError('payload-invalid', message);

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
