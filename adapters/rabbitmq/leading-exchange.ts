/**
 * Names of exchanges of our own, each leading to one queue alone: through it a message keeps its routing key, which consumers
 * and dead-lettering go by, and its name says through which exchange the message came first. Pure.
 */
import { createHash } from 'node:crypto';

const LEADING = 'unbroker.undo/';
const MAX_NAME_BYTES = 255;

/** For what came to `queue` through `exchange`. */
export function leadingExchange(queue: string, exchange: string): string {
  const mark = createHash('sha256').update(`${queue}\n${exchange}`).digest('hex').slice(0, 12);
  const name = `${LEADING}${mark}/${exchange}`;
  // Cut between characters; the mark still tells the two apart.
  let cut = name;
  while (Buffer.byteLength(cut) > MAX_NAME_BYTES) cut = [...cut].slice(0, -1).join('');
  return cut;
}

/** The exchange that a message came through before it was given back. */
export function originalExchange(exchange: string): string {
  if (!exchange.startsWith(LEADING)) return exchange;
  return exchange.slice(exchange.indexOf('/', LEADING.length) + 1);
}
