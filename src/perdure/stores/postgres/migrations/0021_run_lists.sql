-- compatible: 1

-- A list of runs is answered by one index, which its conditions name, whatever the statistics of the table say. Where all runs
-- that were sampled have one status, the planner takes the index by namespace to be as good as the one by namespace and status,
-- and reads every run to find those in another status. So indexes that others are easily confused with are over expressions,
-- which only those queries have that are to walk along them.
CREATE INDEX runs_newest ON runs ((created_at + 0), number);
CREATE INDEX runs_within_namespace ON runs ((namespace || ''), created_at, id);
DROP INDEX runs_latest, runs_of_namespace;

-- A page of children costs what it shows.
DROP INDEX runs_children;
CREATE INDEX runs_children ON runs (parent, created_at, id) WHERE parent IS NOT NULL;
