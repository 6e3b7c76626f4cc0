-- What unbroker/amqplib keeps of exchanges, queues and bindings: who publishes in one process and who consumes in
-- another must agree on them. Messages themselves are jobs of kind amqp.<queue>.

create table {schema}.amqp_exchanges (
  name text primary key,
  type text not null,
  constraint amqp_exchanges_values check (
    length(name) between 1 and 255 and type in ('direct', 'fanout', 'topic', 'headers'))
);

-- arguments as they were asserted: another assertion must give the same.
create table {schema}.amqp_queues (
  name      text primary key,
  arguments jsonb not null default '{}',
  constraint amqp_queues_name check (length(name) between 1 and 180)
);

create table {schema}.amqp_bindings (
  source         text  not null,
  destination    text  not null,
  to_exchange    boolean not null,
  routing_key    text  not null,
  arguments      jsonb not null default '{}',
  arguments_hash text  not null,
  primary key (source, destination, to_exchange, routing_key, arguments_hash)
);

create index amqp_bindings_destination on {schema}.amqp_bindings (destination, to_exchange);
