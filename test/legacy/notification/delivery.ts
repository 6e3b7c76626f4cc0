/**
 * The way out: SMTP for email, an HTTP provider for sms and push, the caller's own URL for webhook. It says whether
 * another try makes sense and knows nothing of queues.
 */
import nodemailer from 'nodemailer';
import type { Variant } from './templates.js';

const TIMEOUT_MS = 10_000;
const RETRYABLE = [408, 425, 429];

/** Another try would end the same: a refused address, a bad request. */
export class PermanentError extends Error {}

export interface DeliveryOptions {
  readonly smtpUrl: string | undefined;
  readonly providerUrl: string | undefined;
  readonly from: string;
}

export class Delivery {
  private readonly smtp: ReturnType<typeof nodemailer.createTransport> | undefined;

  constructor(private readonly options: DeliveryOptions) {
    if (options.smtpUrl !== undefined) this.smtp = nodemailer.createTransport(options.smtpUrl);
  }

  /** Answers the provider's id; throws PermanentError, or anything else for a transient failure. */
  async send(id: string, to: string, message: Variant): Promise<string> {
    if (message.channel === 'email') return this.mail(id, to, message);
    if (message.channel === 'webhook') return this.post(id, to, message.parts['body'] ?? '{}');
    const body = JSON.stringify({ id, channel: message.channel, to, text: message.parts['text'] });
    if (this.options.providerUrl === undefined)
      throw new PermanentError(`no provider for ${message.channel}`);
    return this.post(id, `${this.options.providerUrl}/messages`, body);
  }

  private async mail(id: string, to: string, message: Variant): Promise<string> {
    if (this.smtp === undefined) throw new PermanentError('no provider for email');
    try {
      const info = await this.smtp.sendMail({
        from: this.options.from,
        to,
        subject: message.parts['subject'],
        text: message.parts['text'],
        html: message.parts['html'],
        messageId: `<${id}@notification.local>`,
        headers: { 'X-Notification-Id': id },
      });
      return info.messageId;
    } catch (error) {
      const code = (error as { responseCode?: number }).responseCode;
      if (code !== undefined && code >= 500) throw new PermanentError(`SMTP ${code}`);
      throw code === undefined ? error : new Error(`SMTP ${code}`);
    }
  }

  private async post(id: string, url: string, body: string): Promise<string> {
    const response = await fetch(url, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'idempotency-key': id },
      body,
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    const text = await response.text();
    if (response.ok) return providerId(text) ?? id;
    const reason = `HTTP ${response.status} from ${new URL(url).host}`;
    throw response.status >= 500 || RETRYABLE.includes(response.status)
      ? new Error(reason)
      : new PermanentError(reason);
  }
}

function providerId(text: string): string | undefined {
  try {
    const id: unknown = (JSON.parse(text) as { id?: unknown }).id;
    return typeof id === 'string' ? id : undefined;
  } catch {
    return undefined;
  }
}
