/**
 * Delays by binary levels, as two libraries build them: level n holds a message for 2^n seconds, and the routing key
 * begins with the 28 bits of the whole delay, highest first. Pure arithmetic; it knows no library.
 */
import type { MessageView } from './dialect.js';

const BITS = 28;

/** Epoch ms at which a message in such a level is due at the latest: this level in full, then the lower ones. */
export function latestByLevels({ delivery, nowMs }: MessageView, level: number): number | undefined {
  const bits = delivery.routingKey.split('.').slice(0, BITS);
  if (level >= BITS || bits.length < BITS || !bits.every((bit) => bit === '0' || bit === '1'))
    return undefined;
  const lower = bits.slice(BITS - level).join('');
  return nowMs + (2 ** level + (lower === '' ? 0 : Number.parseInt(lower, 2))) * 1_000;
}

/** The routing key behind the bits. */
export function behindBits(routingKey: string): string | undefined {
  return /^(?:[01]\.){28}(.+)$/s.exec(routingKey)?.[1];
}
