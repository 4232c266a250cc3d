-- Changes of runs and of the catalog in one order, written with the change. `number` is how many events a run had then, or the
-- version of an entry. Rows are written only while somebody has asked for them, and removed after a time.
CREATE TABLE feed (
    position   INTEGER PRIMARY KEY AUTOINCREMENT,
    at         INTEGER NOT NULL,
    kind       TEXT NOT NULL,  -- run, or the kind of an entry
    namespace  TEXT NOT NULL,
    name       TEXT NOT NULL,  -- of an entry; the id of a run
    number     INTEGER NOT NULL,
    is_removed INTEGER NOT NULL,
    status     TEXT,
    language   TEXT,
    document   TEXT,
    parent     TEXT,
    labels     TEXT,
    started_at INTEGER,
    ended_at   INTEGER,
    body       BLOB
) STRICT;

-- Until when changes are written, and the position up to which they are gone.
CREATE TABLE feed_state (
    until INTEGER NOT NULL,
    floor INTEGER NOT NULL
) STRICT;

INSERT INTO feed_state VALUES (0, 0);
