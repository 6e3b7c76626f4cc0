-- no transaction
-- Templates that are written over HTTP or pushed from files: append-only, so that a job can name the version it was
-- accepted with. And notifications found by tag.

-- One version of a key is one change of it: for each locale and channel the newest row up to a version counts. parts is
-- null where a variant was deleted, which also hides a file of the same name.
create table if not exists {schema}.templates (
  key        text        not null,
  version    integer     not null,
  locale     text        not null,
  channel    text        not null,
  parts      jsonb,
  created_at timestamptz not null default now(),
  primary key (key, version, locale, channel),
  constraint templates_values check (
    version >= 1 and length(key) between 1 and 100 and length(locale) between 1 and 50 and length(channel) between 1 and 20
    and (parts is null or jsonb_typeof(parts) = 'object'))
);

-- search by tag: only notifications that carry some pay for it. Dropped first: an index that a cancelled build left
-- behind is invalid, and "if not exists" would keep it.
drop index concurrently if exists {schema}.jobs_tags;

create index concurrently jobs_tags on {schema}.jobs using gin ((payload -> 'tags'))
  where kind like 'notify.%' and payload ? 'tags';
