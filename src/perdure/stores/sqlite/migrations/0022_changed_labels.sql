-- Labels of a run can change after its start; they are looked for by their index.
CREATE TRIGGER run_relabelled AFTER UPDATE OF labels ON runs BEGIN
    DELETE FROM run_labels WHERE (name, value) IN (SELECT key, value FROM json_each(old.labels)) AND run = old.number;
    INSERT OR IGNORE INTO run_labels SELECT key, value, new.number FROM json_each(new.labels);
END;
