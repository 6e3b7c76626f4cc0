-- The last of them, which find what was under way when the functions changed over. What claims leased is noted among the claims, and
-- its turn says that it runs. All of the lock at once: one that is refused later would have to do the work again.
lock table {schema}.jobs in access exclusive mode;

select {schema}.note_running();

update {schema}.jobs
set turn = case turn when 'holds' then 'runs-holds' else 'runs' end
where state = 'running' and ordering_key is not null and turn in ('begun', 'holds');

drop index {schema}.jobs_lease;
drop index {schema}.jobs_dead;
drop index {schema}.jobs_one_of_a_key;
