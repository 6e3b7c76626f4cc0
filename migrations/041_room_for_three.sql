-- A page has room for the three versions of its jobs: as it was put in, as it was claimed, which is longer by the lease, and as it
-- ended. With 45 (001_jobs.sql) the third found room where the first had been pruned away, which took a look at the page, and where
-- an open snapshot forbids the pruning it went elsewhere: 0.75 us a job of 11.5 in the server and 110 bytes of log, now nothing. Without a
-- snapshot a claim and an end cost 0.3 us less together and 57 bytes of log, 37 of which the vacuum writes instead. What it costs
-- is room: 16 jobs a page where there were 23 (docs/understand/table.md says for whom that is too few).
--
-- For pages that are new from here on; no row is touched.
alter table {schema}.jobs set (fillfactor = 30);
