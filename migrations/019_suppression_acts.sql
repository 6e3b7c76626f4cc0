-- Who put a recipient on the suppression list or took one off stands beside what else operators do. filter says on which
-- channel and of whom, as a hash: the audit outlives the address.
alter table {schema}.operations
  drop constraint operations_act,
  add constraint operations_act check (act in (
    'retry', 'discard', 'cancel', 'run-now', 'dismiss', 'edit', 'pause', 'resume', 'trigger', 'delete',
    'suppress', 'unsuppress'));
