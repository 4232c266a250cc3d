-- What the streams of a run keep: packets that are not acknowledged, and numbers of their steps. The keys are the hub's. A row
-- is written and removed by the commit of a transition that may have no event.
CREATE TABLE stream_rows (
    run  INTEGER NOT NULL,
    key  BLOB NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (run, key)
) STRICT, WITHOUT ROWID;
