-- What a template that is only a file said when a notification was accepted with it: under a hash of its parts, which the
-- job's payload names. A row never changes; one is made when an edited file is first used.
create table {schema}.template_files (
  digest     text        primary key,
  parts      jsonb       not null,
  created_at timestamptz not null default now(),
  constraint template_files_values check (length(digest) = 64 and jsonb_typeof(parts) = 'object')
);
