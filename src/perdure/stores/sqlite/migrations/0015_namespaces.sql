-- Every run belongs to a namespace for its whole life, and so do its tasks. Runs that were there are in `default`, but those of
-- Stories where their name is, and what these have started with them.
ALTER TABLE runs ADD COLUMN namespace TEXT NOT NULL DEFAULT 'default';
ALTER TABLE tasks ADD COLUMN namespace TEXT NOT NULL DEFAULT 'default';

UPDATE runs SET namespace = coalesce(
    (SELECT n.namespace FROM names n WHERE n.run = runs.id AND n.heir IS NULL AND n.namespace IS NOT NULL),
    (SELECT n.namespace FROM names n WHERE n.run = substr(runs.id, 1, instr(runs.id || '.', '.') - 1)
        AND n.heir IS NULL AND n.namespace IS NOT NULL),
    'default')
WHERE EXISTS (SELECT 1 FROM names WHERE namespace <> 'default');

UPDATE tasks SET namespace = (SELECT r.namespace FROM runs r WHERE r.id = tasks.run)
WHERE run IN (SELECT id FROM runs WHERE namespace <> 'default');

CREATE INDEX runs_of_namespace ON runs (namespace, created_at, id);
CREATE INDEX runs_in_status ON runs (namespace, status, created_at, id);
CREATE INDEX runs_called ON runs (name);
CREATE INDEX run_label_values ON run_labels (value);

-- Documents of every language have a namespace; those that were there are in `default`.
UPDATE resources SET namespace = 'default' WHERE kind IN ('Flow', 'Playbook') AND namespace = '';
UPDATE limits SET scope = 'resource:Flow/default/' || substr(scope, 16) WHERE scope GLOB 'resource:Flow//*';
UPDATE limits SET scope = 'resource:Playbook/default/' || substr(scope, 20) WHERE scope GLOB 'resource:Playbook//*';
