-- What tasks print and log, beside the log of their run. A row holds some lines of one delivery of a task: the first is its
-- line `first_line`, so that a gap tells that older lines were removed.
CREATE TABLE task_logs (
    position   INTEGER PRIMARY KEY AUTOINCREMENT,
    run        INTEGER NOT NULL,
    task       INTEGER NOT NULL,
    attempt    INTEGER NOT NULL,
    delivery   INTEGER NOT NULL,
    path       TEXT NOT NULL,
    first_line INTEGER NOT NULL,
    lines      INTEGER NOT NULL,
    body       BLOB NOT NULL
) STRICT;

CREATE INDEX task_logs_of_run ON task_logs (run, position);
