/**
 * The handler of `notify.<channel>`: render, say that sending begins and commit that, call the provider outside any
 * transaction, commit the provider's id at once. A job that is found with a sending begun and never confirmed is
 * parked: nobody but a person (or the kind's own rule) may send it again.
 */
import type { HandlerContext, HandlerJob, KindOptions } from '../jobs/handler.js';
import type { ClaimedJob, Json } from '../jobs/job.js';
import { Discard, Snooze } from '../jobs/settle.js';
import { readJson, toPlain } from '../json-text.js';
import { errorFields } from '../log.js';
import { refuseExpired } from './expiry.js';
import { DeliveryError, deferralsOf, type Fate, MAX_DEFERRALS } from './fate.js';
import { type Channel, type Message, MessageError, PARTS, readNotification } from './message.js';
import type { Provider } from './provider.js';
import type { Rendering } from './rendering.js';

export interface DeliveryOptions {
  readonly channel: Channel;
  readonly provider: Provider;
  /** null: only payloads with a `body` can be sent. */
  readonly rendering: Rendering | null;
  /** What to do when a send may or may not have happened. */
  readonly onAmbiguous: 'park' | 'resend';
}

/** What a job keeps between its starts. `unconfirmed` leaves it when an operator retries the job. */
interface Progress {
  readonly unconfirmed?: string;
  readonly sent?: { readonly provider: string; readonly providerId: string };
}

export function deliveryHandler(options: DeliveryOptions): KindOptions {
  return { handle: (job, context) => deliver(options, job, context) };
}

async function deliver(
  { channel, provider, rendering, onAmbiguous }: DeliveryOptions,
  job: HandlerJob,
  context: HandlerContext,
): Promise<unknown> {
  const progress = readProgress(job.progress);
  if (progress.sent !== undefined) return progress.sent;
  if (progress.unconfirmed !== undefined && onAmbiguous === 'park') throw parked(progress.unconfirmed);

  refuseExpired(job.headers);
  const message = await compose(job, channel, rendering);
  const deferrals = deferralsOf(job.progress);
  await context.checkpoint({ unconfirmed: provider.name, deferrals });
  const options = { idempotencyKey: job.id, signal: context.signal };
  let providerId: string;
  try {
    ({ providerId } = await provider.deliver(message, options));
  } catch (error) {
    throw await afterFailure(error, deferrals, onAmbiguous, provider.name, context);
  }
  const sent = { provider: provider.name, providerId };
  // The mail is out: whatever fails from here on, this attempt has succeeded.
  await context.checkpoint({ sent }).catch((error: unknown) => {
    context.log.warn({ job: job.id, ...errorFields(error) }, 'a delivery could not be noted at once');
  });
  return sent;
}

/** What to throw. Whenever the provider surely did not deliver, `unconfirmed` is taken back first. */
async function afterFailure(
  error: unknown,
  deferrals: number,
  onAmbiguous: 'park' | 'resend',
  provider: string,
  context: HandlerContext,
): Promise<unknown> {
  const fate: Fate = error instanceof DeliveryError ? error.fate : { type: 'ambiguous' };
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
    const { template, locale, data, version } = payload;
    await rendering.load(template, version);
    const { parts } = rendering.renderer.render(template, channel, locale, data, version);
    if (!PARTS[channel].some((part) => parts[part] !== undefined))
      throw new MessageError('template-invalid', `the template has no part for ${channel}`);
    return { id: job.id, channel, to: payload.to, parts, ...unsubscribe };
  } catch (error) {
    if (error instanceof MessageError) throw new Discard(error.message, error.code);
    throw error;
  }
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
