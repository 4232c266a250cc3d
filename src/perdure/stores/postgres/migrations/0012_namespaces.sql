-- compatible: 1

-- Every run belongs to a namespace for its whole life, and so do its tasks. Runs that were there are in `default`, but those of
-- Stories where their name is, and what these have started with them.
ALTER TABLE runs ADD COLUMN namespace text COLLATE "C" NOT NULL DEFAULT 'default';
ALTER TABLE tasks ADD COLUMN namespace text COLLATE "C" NOT NULL DEFAULT 'default';

UPDATE runs SET namespace = names.namespace FROM names
WHERE names.run = split_part(runs.id, '.', 1) AND names.heir IS NULL AND names.namespace <> 'default';
UPDATE runs SET namespace = names.namespace FROM names
WHERE names.run = runs.id AND names.heir IS NULL AND names.namespace <> runs.namespace;
UPDATE tasks SET namespace = runs.namespace FROM runs WHERE runs.id = tasks.run AND runs.namespace <> 'default';

CREATE INDEX runs_of_namespace ON runs (namespace, created_at, id);
CREATE INDEX runs_in_status ON runs (namespace, status, created_at, id);
CREATE INDEX runs_called ON runs (name COLLATE "C");
CREATE INDEX runs_label_values ON runs USING gin (jsonb_path_query_array(labels, '$.*') jsonb_path_ops)
    WHERE labels IS NOT NULL;

-- Documents of every language have a namespace; those that were there are in `default`.
UPDATE resources SET namespace = 'default' WHERE kind IN ('Flow', 'Playbook') AND namespace = '';
UPDATE limits SET scope = 'resource:Flow/default/' || substr(scope, 16) WHERE scope LIKE 'resource:Flow//%';
UPDATE limits SET scope = 'resource:Playbook/default/' || substr(scope, 20) WHERE scope LIKE 'resource:Playbook//%';
