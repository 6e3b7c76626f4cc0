/**
 * The dialects, in the order in which they are asked; the first that claims a message reads it. Marks in headers come before
 * marks in bodies, and what can surround any library's message (delays, wait queues) comes last.
 */
import { capBus } from './cap.js';
import { celery } from './celery.js';
import { cloudevents } from './cloudevents.js';
import { delayedExchange } from './delayed-exchange.js';
import type { Dialect } from './dialect.js';
import { dramatiq } from './dramatiq.js';
import { easynetq } from './easynetq.js';
import { fooFooMq } from './foo-foo-mq.js';
import { golevelup, hutch } from './golevelup.js';
import { laravel } from './laravel.js';
import { machinery } from './machinery.js';
import { masstransit } from './masstransit.js';
import { nestjs } from './nestjs.js';
import { nservicebus } from './nservicebus.js';
import { rascal } from './rascal.js';
import { rawJson } from './raw-json.js';
import { rebus } from './rebus.js';
import { sneakers } from './sneakers.js';
import { spring } from './spring.js';
import { symfony } from './symfony.js';
import { trio } from './trio.js';
import { ttlLadder } from './ttl-ladder.js';
import { watermill } from './watermill.js';
import { wolverine } from './wolverine.js';

export const DIALECTS: readonly Dialect[] = [
  // Marked by headers or properties.
  ...[celery, nservicebus, masstransit, rebus, capBus, wolverine, cloudevents, symfony, laravel],
  ...[rascal, sneakers, watermill, spring],
  // Marked by routing keys and queues, which a library's message may share.
  trio,
  // Marked by the body, or by properties that say less.
  ...[dramatiq, machinery, easynetq, nestjs, fooFooMq],
  // Only by rule: nothing marks their messages.
  ...[golevelup, hutch],
  // Around any message.
  ...[delayedExchange, ttlLadder],
];

/** Reads what nobody claims. */
export const FALLBACK: Dialect = rawJson;

export function dialectNamed(name: string): Dialect | undefined {
  return [...DIALECTS, FALLBACK].find((dialect) => dialect.name === name);
}
