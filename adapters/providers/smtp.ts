/**
 * Mail over SMTP. It notes the moment the whole message was handed over: a failure before it means not delivered, one
 * after it without an answer means nobody knows. Addresses go to the envelope as they are; no list, no display name.
 */
import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import type { Transporter } from 'nodemailer';
import { AMBIGUOUS, DeliveryError, FINAL, smtpFate } from '../../src/notify/fate.js';
import { isHeaderText, isMailAddress, type Message, mailboxOf } from '../../src/notify/message.js';
import type { Provider } from '../../src/notify/provider.js';
import { tlsFailure } from '../../src/tls-failure.js';

export interface SmtpOptions {
  /** smtp://user:password@host:port or smtps://… */
  readonly url: string;
  /** `Name <address>` or an address. */
  readonly from: string;
  /** For connecting, greeting and each silence. Default 10,000. */
  readonly timeoutMs?: number;
}

export function smtpProvider(options: SmtpOptions): Provider {
  const timeoutMs = options.timeoutMs ?? 10_000;
  const from = parseFrom(options.from);
  let transport: Promise<Transporter> | undefined;

  return {
    name: 'smtp',
    async deliver(message, { idempotencyKey, signal }) {
      const { parts } = message;
      const to = mailboxOf(message.to);
      const subject = parts.subject ?? '';
      if (to === null) throw new DeliveryError(FINAL, 'the recipient is not one mail address');
      if (!isHeaderText(subject))
        throw new DeliveryError(FINAL, 'the subject holds a line break or is too long');
      transport ??= connect(options.url, timeoutMs);
      const sender = await transport;
      const messageId = messageIdOf(idempotencyKey, from.address);
      const { raw, handedOver } = countedStream(await compose({ ...message, to }, subject, from, messageId));
      signal.throwIfAborted();
      const sent = sender
        .sendMail({ envelope: { from: from.address, to: [to] }, raw })
        .catch((error: unknown) => {
          throw failure(error, handedOver());
        });
      await unlessAborted(sent, signal);
      return { providerId: messageId };
    },
  };
}

/** Loaded on the first mail: a process that sends none does not pay for it. */
async function connect(url: string, timeoutMs: number): Promise<Transporter> {
  const { createTransport } = await import('nodemailer');
  return createTransport({
    url,
    connectionTimeout: timeoutMs,
    greetingTimeout: timeoutMs,
    socketTimeout: timeoutMs,
    dnsTimeout: timeoutMs,
    disableFileAccess: true,
    disableUrlAccess: true,
  });
}

async function compose(
  message: Message,
  subject: string,
  from: { name: string; address: string },
  messageId: string,
): Promise<Buffer> {
  const { default: MailComposer } = await import('nodemailer/lib/mail-composer');
  const { text, html } = message.parts;
  const headers = { 'X-Notification-Id': message.id, ...unsubscribeHeaders(message) };
  const mail = new MailComposer({
    from,
    to: { name: '', address: message.to },
    ...(subject.includes('=?') ? {} : { subject }),
    ...(text === undefined ? {} : { text }),
    ...(html === undefined ? {} : { html }),
    messageId,
    headers: subject.includes('=?') ? { ...headers, Subject: await encodedWords(subject) } : headers,
    disableFileAccess: true,
    disableUrlAccess: true,
  });
  return mail.compile().build();
}

/** A text that looks encoded already is sent as it is by the composer, and a reader would show another. */
async function encodedWords(text: string): Promise<{ prepared: true; foldLines: true; value: string }> {
  const { encodeWord } = await import('nodemailer/lib/mime-funcs');
  return { prepared: true, foldLines: true, value: encodeWord(text, 'B', 52) };
}

/** RFC 8058: what large receivers ask of bulk mail. */
export function unsubscribeHeaders({ unsubscribeUrl }: Message): Record<string, string> {
  if (unsubscribeUrl === undefined) return {};
  return {
    'List-Unsubscribe': `<${unsubscribeUrl}>`,
    'List-Unsubscribe-Post': 'List-Unsubscribe=One-Click',
  };
}

/** The whole message as a stream that knows when its last byte was taken. */
function countedStream(content: Buffer): { raw: Readable; handedOver(): boolean } {
  let over = false;
  function* chunks(): Generator<Buffer> {
    yield content;
    over = true;
  }
  return { raw: Readable.from(chunks(), { objectMode: false }), handedOver: () => over };
}

function failure(error: unknown, handedOver: boolean): DeliveryError {
  const given = error as { responseCode?: number; code?: string; originalCode?: string; message?: string };
  const { responseCode, code } = given;
  // The library calls every end of a socket ESOCKET and keeps what Node called it beside.
  const cause = given.originalCode ?? code ?? 'failure';
  const tls = tlsFailure({ code: cause, message: given.message })?.what;
  const what = responseCode === undefined ? (tls ?? cause) : String(responseCode);
  return new DeliveryError(smtpFate({ responseCode, code }, handedOver), `SMTP ${what}`);
}

/** SMTP cannot be called off: when the wait ends early, the mail may still go out. */
async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  let onAbort = (): void => undefined;
  const ended = new Promise<never>((_resolve, reject) => {
    onAbort = () => reject(new DeliveryError(AMBIGUOUS, 'the wait for SMTP was ended'));
    signal.addEventListener('abort', onAbort);
  });
  try {
    return await Promise.race([work, ended]);
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}

/** The same for every try, so that a mail sent twice is seen as one by whoever looks at ids. */
function messageIdOf(key: string, fromAddress: string): string {
  const name = /^[A-Za-z0-9._-]{1,100}$/.test(key) ? key : createHash('sha256').update(key).digest('hex');
  return `<${name}@${fromAddress.slice(fromAddress.lastIndexOf('@') + 1)}>`;
}

/** Throws TypeError: a configured sender is checked when the configuration is. */
export function parseFrom(text: string): { name: string; address: string } {
  const match = /^(?:(.*?)\s*<([^<>]+)>|([^<>]+))$/.exec(text.trim());
  const address = match?.[2] ?? match?.[3] ?? '';
  const name = (match?.[1] ?? '').replace(/^"(.*)"$/, '$1');
  if (!isMailAddress(address) || !isHeaderText(name)) throw new TypeError('not an address');
  return { name, address };
}
