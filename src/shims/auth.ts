/**
 * Who asks, and what they may do. API keys are compared as digests, in constant time. Pure.
 */
import { createHash, createHmac, timingSafeEqual } from 'node:crypto';
import type { Service } from './config.js';
import { kindFits } from './operations.js';

export interface Principal {
  readonly name: string;
  readonly grants: Grants;
}

/** What is absent is not limited. */
export interface Grants {
  readonly services?: readonly Service[];
  readonly verbs?: readonly ('read' | 'write')[];
  /** Kinds it may enqueue; `notify.*` means all that start so. */
  readonly kinds?: readonly string[];
}

export interface ApiKey extends Principal {
  /** SHA-256 of the key, or of the certificate's bytes. */
  readonly digest: Buffer;
  /** How it is shown. `secret`: sent as it is, or a JWT signed with it. Default. */
  readonly scheme?: 'secret' | 'hmac' | 'certificate';
  /** The key itself, where it came from the environment: a signature cannot be checked with a digest. */
  readonly secret?: string;
}

/** When no key is configured, which only a loopback server may do. */
export const ANONYMOUS: Principal = { name: 'anonymous', grants: {} };

export function digestOf(key: string): Buffer {
  return createHash('sha256').update(key).digest();
}

/** The key from `Authorization: Bearer` or `X-API-Key`; null without. */
export function presentedKey(
  headers: Readonly<Record<string, string | string[] | undefined>>,
): string | null {
  const { authorization, 'x-api-key': apiKey } = headers;
  if (typeof authorization === 'string') return /^Bearer +(\S+)$/i.exec(authorization)?.[1] ?? null;
  return typeof apiKey === 'string' && apiKey !== '' ? apiKey : null;
}

/** All keys are compared, whichever fits: the time says nothing. */
export function principalOf(key: string | null, keys: readonly ApiKey[]): Principal | null {
  if (keys.length === 0) return ANONYMOUS;
  if (key === null) return null;
  const digest = digestOf(key);
  let found: Principal | null = null;
  for (const candidate of keys)
    if ((candidate.scheme ?? 'secret') === 'secret' && timingSafeEqual(candidate.digest, digest))
      found = candidate;
  return found;
}

/** `fingerprint`: hex SHA-256 of a certificate that the TLS layer has verified. */
export function principalOfCertificate(
  fingerprint: string | null,
  keys: readonly ApiKey[],
): Principal | null {
  if (fingerprint === null) return null;
  const digest = Buffer.from(fingerprint, 'hex');
  return keys.find(({ scheme, digest: known }) => scheme === 'certificate' && known.equals(digest)) ?? null;
}

/** What a signed request carries, besides itself. */
export interface Signature {
  readonly name: string;
  /** Epoch seconds. */
  readonly timestamp: string;
  readonly value: Buffer;
}

const MAX_AGE_MS = 300_000;

/** `X-Key`, `X-Timestamp`, `X-Signature: v1=<hex>`; null when it is not signed. */
export function signatureOf(
  headers: Readonly<Record<string, string | string[] | undefined>>,
): Signature | null {
  const { 'x-key': name, 'x-timestamp': timestamp, 'x-signature': value } = headers;
  if (typeof value !== 'string') return null;
  const hex = /^v1=([0-9a-f]{64})$/.exec(value)?.[1] ?? '';
  const texts = typeof name === 'string' && typeof timestamp === 'string' ? { name, timestamp } : null;
  return { ...(texts ?? { name: '', timestamp: '' }), value: Buffer.from(hex, 'hex') };
}

/** Who says that he signed it: its time is right and there is such a key. The signature itself covers the body. */
export function signer(
  { name, timestamp }: Signature,
  keys: readonly ApiKey[],
  nowMs: number,
): ApiKey | null {
  const fresh = /^\d{1,12}$/.test(timestamp) && Math.abs(nowMs - Number(timestamp) * 1_000) <= MAX_AGE_MS;
  return (fresh && keys.find((key) => key.scheme === 'hmac' && key.name === name)) || null;
}

/** HMAC-SHA256 over time, method, request target and the body's SHA-256, a line each. */
export function signs(
  { timestamp, value }: Signature,
  { secret }: ApiKey,
  method: string,
  target: string,
  body: Buffer,
): boolean {
  if (secret === undefined) return false;
  const text = [timestamp, method, target, createHash('sha256').update(body).digest('hex')].join('\n');
  const expected = createHmac('sha256', secret).update(text).digest();
  return value.length === expected.length && timingSafeEqual(value, expected);
}

export function mayUse({ grants }: Principal, service: Service, verb: 'read' | 'write'): boolean {
  return (grants.services?.includes(service) ?? true) && (grants.verbs?.includes(verb) ?? true);
}

export function mayEnqueue({ grants }: Principal, kind: string): boolean {
  return kindFits(grants.kinds, kind);
}

/** A token older or newer than this is refused, as GOV.UK does. */
const MAX_SKEW_MS = 30_000;

/**
 * Whose JWT it is: HS256 only, signed with the client's key (of a key `name-<uuid>-<uuid>` the last part, as GOV.UK's are),
 * issued by that key's name or its middle part, within half a minute. null when it is nobody's.
 */
export function principalOfJwt(token: string, keys: readonly ApiKey[], nowMs: number): Principal | null {
  if (keys.length === 0) return ANONYMOUS;
  const [head = '', claims = '', signature = '', ...more] = token.split('.');
  if (more.length > 0 || token.length > 4_096) return null;
  const { alg } = jsonOf(head);
  const { iss, iat } = jsonOf(claims);
  if (alg !== 'HS256' || typeof iss !== 'string' || typeof iat !== 'number') return null;
  if (!(Math.abs(nowMs - iat * 1_000) <= MAX_SKEW_MS)) return null;
  const given = Buffer.from(signature, 'base64url');
  let found: Principal | null = null;
  for (const key of keys) {
    if (key.secret === undefined || key.scheme === 'hmac') continue;
    const { issuer, secret } = jwtKey(key.name, key.secret);
    const expected = createHmac('sha256', secret).update(`${head}.${claims}`).digest();
    const same = given.length === expected.length && timingSafeEqual(given, expected);
    if (same && (iss === issuer || iss === key.name)) found = key;
  }
  return found;
}

const UUID = '[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}';
const GOVUK_KEY = new RegExp(`(?:^|-)(${UUID})-(${UUID})$`);

function jwtKey(name: string, value: string): { issuer: string; secret: string } {
  const parts = GOVUK_KEY.exec(value);
  return parts === null
    ? { issuer: name, secret: value }
    : { issuer: parts[1] ?? '', secret: parts[2] ?? '' };
}

function jsonOf(part: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(Buffer.from(part, 'base64url').toString('utf8'));
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}
