-- One row per process that owns, or once owned, executions. The epoch fences an owner that was taken over;
-- who owns a partition *now* is told by an operating-system lock beside the file.
CREATE TABLE partitions (
    id    INTEGER PRIMARY KEY,
    epoch INTEGER NOT NULL
) STRICT;

-- Documents as they were when a run started, by content.
CREATE TABLE programs (
    digest   BLOB PRIMARY KEY,
    language TEXT NOT NULL,
    text     BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- What must be known of a run without reading its log. Rewritten when a run is parked, ends or is taken up;
-- `due` means nothing while there is work.
CREATE TABLE runs (
    number     INTEGER PRIMARY KEY,
    id         TEXT NOT NULL UNIQUE,
    partition  INTEGER NOT NULL,
    language   TEXT NOT NULL,
    name       TEXT NOT NULL,
    program    BLOB NOT NULL,
    parent     TEXT,
    labels     TEXT,
    key        BLOB NOT NULL,
    status     TEXT NOT NULL,
    has_work   INTEGER NOT NULL,
    due        INTEGER,
    created_at INTEGER NOT NULL,
    ended_at   INTEGER,
    stuck      TEXT
) STRICT;

CREATE INDEX runs_with_work ON runs (partition) WHERE has_work = 1;
CREATE INDEX runs_due ON runs (partition, due) WHERE has_work = 0 AND due IS NOT NULL;
CREATE INDEX runs_open ON runs (partition) WHERE ended_at IS NULL;
CREATE INDEX runs_ended ON runs (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX runs_children ON runs (parent) WHERE parent IS NOT NULL;

-- The truth. One row per run and commit, in order of commit: appending touches few pages, however many runs.
CREATE TABLE log (
    position INTEGER PRIMARY KEY,
    run      INTEGER NOT NULL,
    seq      INTEGER NOT NULL,  -- the number of the last event in the row
    body     BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX log_of_run ON log (run, seq);

-- Shortens the fold; a cache.
CREATE TABLE snapshots (
    run  INTEGER PRIMARY KEY,
    seq  INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;

-- Values too large for the log, once per run.
CREATE TABLE large_values (
    id     INTEGER PRIMARY KEY,
    run    INTEGER NOT NULL,
    digest BLOB NOT NULL,
    text   BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX large_values_of_run ON large_values (run, digest);

-- Inputs on their way. A row is deleted by the commit that decides it.
CREATE TABLE inbox (
    position  INTEGER PRIMARY KEY AUTOINCREMENT,
    partition INTEGER NOT NULL,
    run       TEXT NOT NULL,
    at        INTEGER NOT NULL,
    body      BLOB NOT NULL
) STRICT;

CREATE INDEX inbox_of_partition ON inbox (partition, position);

-- Limits over many runs.
CREATE TABLE limits (
    scope    TEXT PRIMARY KEY,
    capacity INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE permits (
    scope    TEXT NOT NULL,
    run      TEXT NOT NULL,
    permit   INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    capacity INTEGER NOT NULL,
    asked_at INTEGER NOT NULL,
    granted  INTEGER NOT NULL,
    PRIMARY KEY (scope, run, permit)
) STRICT, WITHOUT ROWID;

CREATE INDEX permits_of_run ON permits (run, permit);
CREATE INDEX permits_held ON permits (scope) WHERE granted = 1;
CREATE INDEX permits_waiting ON permits (scope, priority DESC, asked_at, run, permit) WHERE granted = 0;

-- Work for workers in other processes.
CREATE TABLE tasks (
    run       TEXT NOT NULL,
    task      INTEGER NOT NULL,
    delivery  INTEGER NOT NULL,
    pool      TEXT NOT NULL,
    provider  TEXT NOT NULL,
    state     TEXT NOT NULL,  -- ready, leased, lost
    recalled  INTEGER NOT NULL DEFAULT 0,
    worker    TEXT,
    until     INTEGER,
    body      BLOB NOT NULL,
    PRIMARY KEY (run, task)
) STRICT, WITHOUT ROWID;

CREATE INDEX tasks_ready ON tasks (pool, run, task) WHERE state = 'ready';
CREATE INDEX tasks_leased ON tasks (until) WHERE state = 'leased';
