-- How many runs began in which hour, by namespace and status: kept with the runs. `hour` is its first instant. Changes of a status
-- are added up by the commit that makes them.
CREATE TABLE run_counts (
    namespace TEXT NOT NULL,
    hour      INTEGER NOT NULL,
    status    TEXT NOT NULL,
    number    INTEGER NOT NULL,
    PRIMARY KEY (namespace, hour, status)
) STRICT, WITHOUT ROWID;

INSERT INTO run_counts SELECT namespace, created_at - created_at % 3600000000, status, count(*) FROM runs GROUP BY 1, 2, 3;

CREATE TRIGGER run_counted AFTER INSERT ON runs BEGIN
    INSERT INTO run_counts VALUES (new.namespace, new.created_at - new.created_at % 3600000000, new.status, 1)
    ON CONFLICT DO UPDATE SET number = number + 1;
END;

CREATE TRIGGER run_uncounted AFTER DELETE ON runs BEGIN
    UPDATE run_counts SET number = number - 1
    WHERE namespace = old.namespace AND hour = old.created_at - old.created_at % 3600000000 AND status = old.status;
    DELETE FROM run_counts
    WHERE namespace = old.namespace AND hour = old.created_at - old.created_at % 3600000000 AND number = 0;
END;

-- Lists of the runs of one document, and of one language: a page costs what it shows.
DROP INDEX runs_called;
CREATE INDEX runs_called ON runs (name, status, created_at, id);
CREATE INDEX runs_in_language ON runs (language, created_at, id);
CREATE INDEX runs_stuck ON runs (id) WHERE stuck IS NOT NULL;
