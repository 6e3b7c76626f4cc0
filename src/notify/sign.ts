/**
 * The headers by which a receiver knows a webhook: its id, the same for every try, when it was sent, and, with a secret,
 * that it came from us, as Standard Webhooks (standardwebhooks.com) has it. Pure: the time is given.
 */
import { createHmac } from 'node:crypto';

/** `whsec_` and base64, as the standard writes secrets; any other text is taken by its bytes. */
export function secretBytes(secret: string): Buffer {
  return secret.startsWith('whsec_') ? Buffer.from(secret.slice(6), 'base64') : Buffer.from(secret);
}

/** `secret` null: not signed. */
export function webhookHeaders(
  id: string,
  body: string | Buffer,
  secret: Buffer | null,
  nowMs: number,
): Record<string, string> {
  const timestamp = String(Math.floor(nowMs / 1_000));
  const headers = { 'idempotency-key': id, 'webhook-id': id, 'webhook-timestamp': timestamp };
  if (secret === null) return headers;
  const signature = createHmac('sha256', secret).update(`${id}.${timestamp}.`).update(body).digest('base64');
  return { ...headers, 'webhook-signature': `v1,${signature}` };
}
