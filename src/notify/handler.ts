/**
 * The handler of `notify.<channel>`: render, say that sending begins and commit that, call the provider outside any
 * transaction, commit the provider's id at once. A job that is found with a sending begun and never confirmed is
 * parked: nobody but a person (or the kind's own rule) may send it again.
 */

import { refuseExpired } from '../jobs/expiry.js';
import type { HandlerContext, HandlerJob, KindOptions } from '../jobs/handler.js';
import type { ClaimedJob, Json } from '../jobs/job.js';
import { Discard, Snooze } from '../jobs/settle.js';
import { readJson, toPlain } from '../json-text.js';
import { errorFields } from '../log.js';
import { AMBIGUOUS, DeliveryError, deferralsOf, type Fate, LOGIN_REFUSED, MAX_DEFERRALS } from './fate.js';
import type { CallEnd, Gate, GateLimits } from './gate.js';
import {
  type Channel,
  type Message,
  MessageError,
  type NotificationPayload,
  PARTS,
  readNotification,
} from './message.js';
import type { Provider } from './provider.js';
import type { Rendering } from './rendering.js';

export interface DeliveryOptions {
  readonly channel: Channel;
  /** In the order they are asked: the next only where the one before surely did not deliver. */
  readonly providers: readonly Provider[];
  /** null: only payloads with a `body` can be sent. */
  readonly rendering: Rendering | null;
  /** What to do when a send may or may not have happened. */
  readonly onAmbiguous: 'park' | 'resend';
  readonly gate: Gate;
  readonly limits: GateLimits;
  /** Told what became of each attempt; absent: nobody is. */
  readonly onStatus?: (job: HandlerJob, status: DeliveryStatus, error: string | null) => Promise<void>;
}

export type DeliveryStatus = 'sent' | 'failed' | 'retrying';

/** What a job keeps between its starts. `unconfirmed` leaves it when an operator retries the job. */
interface Progress {
  readonly unconfirmed?: string;
  readonly sent?: { readonly provider: string; readonly providerId: string };
}

export function deliveryHandler(options: DeliveryOptions): KindOptions {
  return { handle: (job, context) => tellingStatus(options, job, context) };
}

/** A status that cannot be told must not undo a delivery, nor hide why one failed. */
async function tellingStatus(
  options: DeliveryOptions,
  job: HandlerJob,
  context: HandlerContext,
): Promise<unknown> {
  const tell = async (status: DeliveryStatus, error: string | null): Promise<void> => {
    await options.onStatus?.(job, status, error).catch((failure: unknown) => {
      context.log.warn({ job: job.id, ...errorFields(failure) }, 'a status could not be told');
    });
  };
  try {
    const sent = await deliver(options, job, context);
    await tell('sent', null);
    return sent;
  } catch (error) {
    const isOver = error instanceof Discard || (!(error instanceof Snooze) && job.attempt >= job.maxAttempts);
    if (!context.signal.aborted && (isOver || !(error instanceof Snooze)))
      await tell(isOver ? 'failed' : 'retrying', error instanceof Error ? error.message : null);
    throw error;
  }
}

async function deliver(options: DeliveryOptions, job: HandlerJob, context: HandlerContext): Promise<unknown> {
  const { channel, rendering, onAmbiguous, gate, limits } = options;
  const progress = readProgress(job.progress);
  if (progress.sent !== undefined) return progress.sent;
  if (progress.unconfirmed !== undefined && onAmbiguous === 'park') throw parked(progress.unconfirmed);

  await refuseExpired(job.headers, context.databaseNow);
  const message = await compose(job, channel, rendering);
  if (await gate.suppressed(channel, message.to))
    throw new Discard('the recipient is on the suppression list', 'suppressed');
  const deferrals = deferralsOf(job.progress);
  const provider = await admitted(options, null);
  if ('afterMs' in provider) throw new Snooze(provider.afterMs);
  const waitMs = await gate.countRecipient(channel, message.to, limits);
  if (waitMs !== null) throw new Snooze(waitMs);
  return callInTurn(options, provider, message, job, context, deferrals);
}

/** The first provider, behind `after`, that may be called now; or how long until one may. */
async function admitted(
  { channel, providers, gate, limits }: DeliveryOptions,
  after: Provider | null,
): Promise<Provider | { readonly afterMs: number }> {
  const from = after === null ? 0 : providers.indexOf(after) + 1;
  let afterMs = MAX_WAIT_MS;
  for (const provider of providers.slice(from)) {
    const admission = await gate.admit(`${channel}.${provider.name}`, limits);
    if (admission.type === 'go') return provider;
    afterMs = Math.min(afterMs, admission.afterMs);
    // Its rate is no reason to go elsewhere; that it fails, or lets nobody in, is.
    if (admission.type === 'wait') break;
  }
  return { afterMs };
}

const MAX_WAIT_MS = 3_600_000;

/** One provider after the other, as long as none of them can have delivered. */
async function callInTurn(
  options: DeliveryOptions,
  first: Provider,
  message: Message,
  job: HandlerJob,
  context: HandlerContext,
  deferrals: number,
): Promise<unknown> {
  const { channel, onAmbiguous, gate, limits } = options;
  let provider = first;
  for (;;) {
    await context.checkpoint({ unconfirmed: provider.name, deferrals });
    try {
      const { providerId } = await provider.deliver(message, {
        idempotencyKey: job.id,
        signal: context.signal,
      });
      return await noted({ provider: provider.name, providerId }, options, job, context);
    } catch (error) {
      const fate: Fate = error instanceof DeliveryError ? error.fate : AMBIGUOUS;
      // Receivers of webhooks have nothing in common: one that is down must not hold up the others.
      if (channel !== 'webhook' || limits.breaker !== undefined)
        await gate.ended(`${channel}.${provider.name}`, endOf(fate), limits).catch(() => undefined);
      const next =
        fate.type === 'transient' || fate.type === 'deferred' ? await admitted(options, provider) : null;
      if (next === null || 'afterMs' in next)
        throw await afterFailure(error, fate, deferrals, onAmbiguous, provider.name, context);
      provider = next;
    }
  }
}

/** A final answer is about the message, so the provider itself is fine. */
function endOf(fate: Fate): CallEnd {
  if (fate === LOGIN_REFUSED) return 'login-refused';
  return fate.type === 'final' ? 'fine' : 'failed';
}

/** The mail is out: whatever fails from here on, this attempt has succeeded. */
async function noted(
  sent: { readonly provider: string; readonly providerId: string },
  { channel, gate, limits }: DeliveryOptions,
  job: HandlerJob,
  context: HandlerContext,
): Promise<unknown> {
  await context.checkpoint({ sent }).catch((error: unknown) => {
    context.log.warn({ job: job.id, ...errorFields(error) }, 'a delivery could not be noted at once');
  });
  await gate.ended(`${channel}.${sent.provider}`, 'fine', limits).catch(() => undefined);
  return sent;
}

/** What to throw. Whenever the provider surely did not deliver, `unconfirmed` is taken back first. */
async function afterFailure(
  error: unknown,
  fate: Fate,
  deferrals: number,
  onAmbiguous: 'park' | 'resend',
  provider: string,
  context: HandlerContext,
): Promise<unknown> {
  if (fate.type === 'ambiguous') return onAmbiguous === 'resend' ? error : parked(provider, error);
  const deferred = fate.type === 'deferred' && deferrals < MAX_DEFERRALS;
  await context.checkpoint({ deferrals: deferred ? deferrals + 1 : deferrals });
  if (fate.type === 'final') return new Discard((error as Error).message, 'delivery-refused');
  return deferred ? new Snooze(fate.retryAfterMs) : error;
}

function parked(provider: string, error?: unknown): Discard {
  const cause = error instanceof DeliveryError ? ` (${error.message})` : '';
  return new Discard(
    `a delivery by ${provider} was begun and never confirmed${cause}; look at the provider, then retry or dismiss the job`,
    'ambiguous-delivery',
  );
}

/** Throws Discard: another start would find the same payload and, mostly, the same template. */
async function compose(job: ClaimedJob, channel: Channel, rendering: Rendering | null): Promise<Message> {
  try {
    const payload = readNotification(plainPayload(job));
    const unsubscribe = payload.unsubscribeUrl === null ? {} : { unsubscribeUrl: payload.unsubscribeUrl };
    if (payload.template === null) {
      const part = channel === 'webhook' ? 'body' : 'text';
      const parts = {
        [part]: payload.body ?? '',
        ...(payload.subject === null ? {} : { subject: payload.subject }),
      };
      return { id: job.id, channel, to: payload.to, parts, ...unsubscribe };
    }
    if (rendering === null) throw new MessageError('template-unknown', 'this worker has no templates');
    const parts = await rendered(payload, payload.template, channel, rendering);
    if (!PARTS[channel].some((part) => parts[part] !== undefined))
      throw new MessageError('template-invalid', `the template has no part for ${channel}`);
    return { id: job.id, channel, to: payload.to, parts, ...unsubscribe };
  } catch (error) {
    if (error instanceof MessageError) throw new Discard(error.message, error.code);
    throw error;
  }
}

/** By the version it was accepted with: of the table, or of a file. */
async function rendered(
  { locale, data, version, templateDigest: digest }: NotificationPayload,
  template: string,
  channel: Channel,
  rendering: Rendering,
): Promise<Message['parts']> {
  const { renderer } = rendering;
  if (version === null && digest !== null) {
    const parts = await rendering.fileAt(template, digest);
    if (parts === null)
      throw new MessageError(
        'template-changed',
        'the file of its template has changed since it was accepted, and what it said was not kept',
      );
    return renderer.renderVariant({ locale, channel, parts }, data);
  }
  await rendering.load(template, version);
  return renderer.render(template, channel, locale, data, version).parts;
}

/** From the exact text: JSON.parse would round what a template prints. */
function plainPayload(job: ClaimedJob): unknown {
  if (job.payloadText === null) throw new MessageError('payload-invalid', 'the payload is not JSON');
  try {
    return toPlain(readJson(job.payloadText));
  } catch {
    throw new MessageError('payload-invalid', 'the payload is JSON that a notification cannot be');
  }
}

function readProgress(progress: Json): Progress {
  return typeof progress === 'object' && progress !== null && !Array.isArray(progress)
    ? (progress as Progress)
    : {};
}
