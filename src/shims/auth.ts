/**
 * Who asks, and what they may do. API keys are compared as digests, in constant time. Pure.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
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
