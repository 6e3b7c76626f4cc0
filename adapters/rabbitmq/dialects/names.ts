/** The dialects by name, for whoever checks a config without reading messages. Their order is that of known.ts. */
export const DIALECT_NAMES = [
  ...(['trio', 'celery', 'nservicebus', 'masstransit', 'rebus', 'cap', 'wolverine', 'cloudevents'] as const),
  ...(['symfony', 'laravel', 'rascal', 'sneakers', 'watermill', 'spring', 'dramatiq', 'machinery'] as const),
  ...(['easynetq', 'nestjs', 'foo-foo-mq', 'golevelup', 'hutch'] as const),
  ...(['delayed-exchange', 'ttl-ladder', 'raw-json'] as const),
] as const;

export type DialectName = (typeof DIALECT_NAMES)[number];
