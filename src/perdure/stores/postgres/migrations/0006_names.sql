-- compatible: 1

-- One name, one run in a namespace, among runs of a language that names them: the row of a run holds its name as long as it is
-- there. Of several that had one name before, the first keeps it; the others have a name and no namespace, and are reported.
ALTER TABLE runs ADD COLUMN namespace text COLLATE "C";
ALTER TABLE runs ADD COLUMN run_name text COLLATE "C";

-- A document may hold texts that PostgreSQL cannot: then nobody knows better than the namespace that most have.
CREATE FUNCTION pg_temp.namespace_of(document bytea) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN replace(convert_from(document, 'UTF8'), '\u0000', '\ufffd')::json #>> '{story,metadata,namespace}';
EXCEPTION WHEN others THEN
    RETURN NULL;
END $$;

UPDATE runs SET run_name = labels ->> 'bubustack.io/storyrun', namespace = coalesce((
    SELECT pg_temp.namespace_of(text) FROM programs WHERE digest = runs.program), 'default')
WHERE language = 'story' AND labels ->> 'bubustack.io/storyrun' IS NOT NULL;

UPDATE runs SET namespace = NULL WHERE number IN (
    SELECT number FROM (
        SELECT number, row_number() OVER (PARTITION BY language, namespace, run_name ORDER BY created_at, number) AS place
        FROM runs WHERE run_name IS NOT NULL
    ) AS named WHERE place > 1
);

CREATE UNIQUE INDEX runs_named ON runs (language, namespace, run_name) WHERE namespace IS NOT NULL;

DROP FUNCTION pg_temp.namespace_of(bytea);
