-- Outgoing hooks: up to which position of the feed their deliveries are written. They hold the feed until then.
CREATE TABLE hooks (
    name      TEXT PRIMARY KEY,
    address   TEXT NOT NULL,
    position  INTEGER NOT NULL,
    is_paused INTEGER NOT NULL,
    seen_at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Events on their way to receivers. `next_at` is when an attempt may begin; while one is under way, when another may.
CREATE TABLE hook_deliveries (
    hook        TEXT NOT NULL,
    position    INTEGER NOT NULL,
    run         TEXT NOT NULL,
    namespace   TEXT NOT NULL,
    body        BLOB NOT NULL,
    created_at  INTEGER NOT NULL,
    state       TEXT NOT NULL,  -- open, delivered, dead
    attempts    INTEGER NOT NULL,
    next_at     INTEGER NOT NULL,
    answered_at INTEGER,
    status      INTEGER,
    error       TEXT NOT NULL,
    PRIMARY KEY (hook, position)
) STRICT, WITHOUT ROWID;

CREATE INDEX hook_deliveries_open ON hook_deliveries (next_at) WHERE state = 'open';
CREATE INDEX hook_deliveries_done ON hook_deliveries (answered_at) WHERE state = 'delivered';
