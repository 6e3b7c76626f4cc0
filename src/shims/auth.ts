/**
 * Who asks, and what they may do. API keys are compared as digests, in constant time. Pure.
 */
import { createHash, createHmac, timingSafeEqual } from 'node:crypto';
import type { Service } from './config.js';

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
  /** SHA-256 of the key. */
  readonly digest: Buffer;
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
  for (const candidate of keys) if (timingSafeEqual(candidate.digest, digest)) found = candidate;
  return found;
}

export function mayUse({ grants }: Principal, service: Service, verb: 'read' | 'write'): boolean {
  return (grants.services?.includes(service) ?? true) && (grants.verbs?.includes(verb) ?? true);
}

export function mayEnqueue({ grants }: Principal, kind: string): boolean {
  if (grants.kinds === undefined) return true;
  return grants.kinds.some((pattern) =>
    pattern.endsWith('*') ? kind.startsWith(pattern.slice(0, -1)) : kind === pattern,
  );
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
    if (key.secret === undefined) continue;
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
