/** The dialects by name, for whoever checks a config without reading messages. Their order is that of known.ts. */
export const DIALECT_NAMES = [
  ...([
    'celery',
    'nservicebus',
    'masstransit',
    'rebus',
    'cap',
    'wolverine',
    'cloudevents',
    'symfony',
  ] as const),
  ...(['laravel', 'rascal', 'sneakers', 'watermill', 'spring', 'trio', 'dramatiq', 'machinery'] as const),
  ...(['easynetq', 'nestjs', 'foo-foo-mq', 'golevelup', 'hutch'] as const),
  ...(['delayed-exchange', 'ttl-ladder', 'raw-json'] as const),
] as const;

export type DialectName = (typeof DIALECT_NAMES)[number];
