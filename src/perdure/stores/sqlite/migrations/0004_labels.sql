-- Runs are found by their labels, and listed latest first, without reading all of them.
-- The triggers keep the rows, so that whoever writes a run need not know of them.
CREATE TABLE run_labels (
    name  TEXT NOT NULL,
    value TEXT NOT NULL,
    run   INTEGER NOT NULL,
    PRIMARY KEY (name, value, run)
) STRICT, WITHOUT ROWID;

INSERT INTO run_labels SELECT label.key, label.value, runs.number FROM runs, json_each(runs.labels) AS label;

CREATE TRIGGER run_labelled AFTER INSERT ON runs WHEN new.labels IS NOT NULL BEGIN
    INSERT OR IGNORE INTO run_labels SELECT key, value, new.number FROM json_each(new.labels);
END;

CREATE TRIGGER run_unlabelled AFTER DELETE ON runs WHEN old.labels IS NOT NULL BEGIN
    DELETE FROM run_labels WHERE (name, value) IN (SELECT key, value FROM json_each(old.labels)) AND run = old.number;
END;

CREATE INDEX runs_latest ON runs (created_at);
