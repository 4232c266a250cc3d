-- compatible: 1

-- Who has set which fields of an entry: a column of the entry itself, so that every write says it and every reader, watches too, is told.
-- Up to now it was an entry beside it, or stood in place of a text that nobody had written.
ALTER TABLE resources ADD COLUMN managers bytea;
UPDATE resources AS r SET managers = convert_to(convert_from(m.body, 'UTF8')::json ->> 'managers', 'UTF8')
    FROM resources AS m WHERE m.kind = 'ManagersOf' || r.kind AND m.namespace = r.namespace AND m.name = r.name;
UPDATE resources SET managers = convert_to(convert_from(source, 'UTF8')::json ->> 'managers', 'UTF8'), source = ''
    WHERE kind IN ('ConfigMap', 'Secret', 'Namespace') AND length(source) > 0;
DELETE FROM editions WHERE uid IN (SELECT uid FROM resources WHERE kind LIKE 'ManagersOf%');
DELETE FROM limits WHERE scope LIKE 'resource:ManagersOf%';
DELETE FROM resources WHERE kind LIKE 'ManagersOf%';
