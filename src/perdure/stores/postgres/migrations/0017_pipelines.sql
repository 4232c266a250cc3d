-- compatible: 1

-- Pipelines as a whole: what the worker of a task needs to go on with the next one under the same lease, the number of
-- the outcome that it reports next, and the last one that was. Two rows have a lease while it passes from task to task.
ALTER TABLE tasks ADD COLUMN pipeline bytea NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN number bigint NOT NULL DEFAULT 1;
ALTER TABLE tasks ADD COLUMN reported bytea NOT NULL DEFAULT '';
DROP INDEX tasks_lease;
CREATE INDEX tasks_lease ON tasks (lease) WHERE lease IS NOT NULL;
