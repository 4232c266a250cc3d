-- Who has set which fields of an entry: a column of the entry itself, so that every write says it and every reader, watches too, is told.
-- Up to now it was an entry beside it, or stood in place of a text that nobody had written.
ALTER TABLE resources ADD COLUMN managers BLOB;
UPDATE resources SET managers = (
    SELECT CAST(json_extract(CAST(m.body AS TEXT), '$.managers') AS BLOB) FROM resources AS m
    WHERE m.kind = 'ManagersOf' || resources.kind AND m.namespace = resources.namespace AND m.name = resources.name
);
UPDATE resources SET managers = CAST(json_extract(CAST(source AS TEXT), '$.managers') AS BLOB), source = x''
    WHERE kind IN ('ConfigMap', 'Secret', 'Namespace') AND length(source) > 0;
DELETE FROM editions WHERE uid IN (SELECT uid FROM resources WHERE kind LIKE 'ManagersOf%');
DELETE FROM limits WHERE scope LIKE 'resource:ManagersOf%';
DELETE FROM resources WHERE kind LIKE 'ManagersOf%';
