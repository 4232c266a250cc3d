-- One name, one run in a namespace, among runs of a language that names them: the row of a run holds its name as long as it is
-- there. Of several that had one name before, the first keeps it; the others have a name and no namespace, and are reported.
ALTER TABLE runs ADD COLUMN namespace TEXT;
ALTER TABLE runs ADD COLUMN run_name TEXT;

UPDATE runs SET run_name = json_extract(labels, '$."bubustack.io/storyrun"'), namespace = coalesce((
    SELECT json_extract(CAST(text AS TEXT), '$.story.metadata.namespace') FROM programs
    WHERE digest = runs.program AND json_valid(CAST(text AS TEXT))), 'default')
WHERE language = 'story' AND json_extract(labels, '$."bubustack.io/storyrun"') IS NOT NULL;

UPDATE runs SET namespace = NULL WHERE number IN (
    SELECT number FROM (
        SELECT number, row_number() OVER (PARTITION BY language, namespace, run_name ORDER BY number) AS place FROM runs
        WHERE run_name IS NOT NULL
    ) WHERE place > 1
);

CREATE UNIQUE INDEX runs_named ON runs (language, namespace, run_name) WHERE namespace IS NOT NULL;
