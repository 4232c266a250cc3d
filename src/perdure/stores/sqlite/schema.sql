-- What the migrations leave behind in an empty file: a new file gets it in one step.
-- Written by `python -m tests.stores.sqlite_schema`; a change of the schema is a new file in `migrations/`.

CREATE TABLE partitions (
    id    INTEGER PRIMARY KEY,
    epoch INTEGER NOT NULL
) STRICT;

CREATE TABLE programs (
    digest   BLOB PRIMARY KEY,
    language TEXT NOT NULL,
    text     BLOB NOT NULL
) STRICT, WITHOUT ROWID;

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
, on_wall INTEGER, namespace TEXT NOT NULL DEFAULT 'default') STRICT;

CREATE INDEX runs_with_work ON runs (partition) WHERE has_work = 1;

CREATE INDEX runs_due ON runs (partition, due) WHERE has_work = 0 AND due IS NOT NULL;

CREATE INDEX runs_open ON runs (partition) WHERE ended_at IS NULL;

CREATE INDEX runs_ended ON runs (ended_at) WHERE ended_at IS NOT NULL;

CREATE INDEX runs_children ON runs (parent) WHERE parent IS NOT NULL;

CREATE TABLE log (
    position INTEGER PRIMARY KEY,
    run      INTEGER NOT NULL,
    seq      INTEGER NOT NULL,  -- the number of the last event in the row
    body     BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX log_of_run ON log (run, seq);

CREATE TABLE snapshots (
    run  INTEGER PRIMARY KEY,
    seq  INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;

CREATE TABLE large_values (
    id     INTEGER PRIMARY KEY,
    run    INTEGER NOT NULL,
    digest BLOB NOT NULL,
    text   BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX large_values_of_run ON large_values (run, digest);

CREATE TABLE inbox (
    position  INTEGER PRIMARY KEY AUTOINCREMENT,
    partition INTEGER NOT NULL,
    run       TEXT NOT NULL,
    at        INTEGER NOT NULL,
    body      BLOB NOT NULL
, is_word INTEGER NOT NULL DEFAULT 0) STRICT;

CREATE INDEX inbox_of_partition ON inbox (partition, position);

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
    granted  INTEGER NOT NULL, ageing INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (scope, run, permit)
) STRICT, WITHOUT ROWID;

CREATE INDEX permits_of_run ON permits (run, permit);

CREATE INDEX permits_held ON permits (scope) WHERE granted = 1;

CREATE INDEX permits_waiting ON permits (scope, priority DESC, asked_at, run, permit) WHERE granted = 0;

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
    body      BLOB NOT NULL, place INTEGER NOT NULL DEFAULT 0, machine TEXT NOT NULL DEFAULT '', namespace TEXT NOT NULL DEFAULT 'default', opener TEXT NOT NULL DEFAULT '', turn INTEGER NOT NULL DEFAULT 0, offered_at INTEGER NOT NULL DEFAULT 0, lease TEXT, request TEXT, holder TEXT NOT NULL DEFAULT '', touched INTEGER NOT NULL DEFAULT 0, releases INTEGER NOT NULL DEFAULT 0, answer BLOB, lost_lease TEXT, lost_delivery INTEGER NOT NULL DEFAULT 0, pipeline BLOB NOT NULL DEFAULT x'', number INTEGER NOT NULL DEFAULT 1, reported BLOB NOT NULL DEFAULT x'',
    PRIMARY KEY (run, task)
) STRICT, WITHOUT ROWID;

CREATE TABLE resources (
    kind       TEXT NOT NULL,
    namespace  TEXT NOT NULL,
    name       TEXT NOT NULL,
    uid        TEXT NOT NULL UNIQUE,
    generation INTEGER NOT NULL,
    version    INTEGER NOT NULL,
    body       BLOB NOT NULL,
    source     BLOB NOT NULL,
    labels     TEXT,
    status     BLOB,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL, from_api INTEGER NOT NULL DEFAULT 0, managers BLOB,
    PRIMARY KEY (kind, namespace, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE editions (
    uid        TEXT NOT NULL,
    generation INTEGER NOT NULL,
    body       BLOB NOT NULL,
    source     BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (uid, generation)
) STRICT, WITHOUT ROWID;

CREATE TABLE catalog_version (
    last INTEGER NOT NULL
) STRICT;

CREATE TABLE memories (
    key        TEXT PRIMARY KEY,
    value      BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX memories_expiring ON memories (expires_at) WHERE expires_at IS NOT NULL;

CREATE INDEX permits_ageing ON permits (scope) WHERE granted = 0 AND ageing > 0;

CREATE TABLE run_labels (
    name  TEXT NOT NULL,
    value TEXT NOT NULL,
    run   INTEGER NOT NULL,
    PRIMARY KEY (name, value, run)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER run_labelled AFTER INSERT ON runs WHEN new.labels IS NOT NULL BEGIN
    INSERT OR IGNORE INTO run_labels SELECT key, value, new.number FROM json_each(new.labels);
END;

CREATE TRIGGER run_unlabelled AFTER DELETE ON runs WHEN old.labels IS NOT NULL BEGIN
    DELETE FROM run_labels WHERE (name, value) IN (SELECT key, value FROM json_each(old.labels)) AND run = old.number;
END;

CREATE INDEX runs_latest ON runs (created_at);

CREATE TABLE partition_numbers (
    last INTEGER NOT NULL
) STRICT;

CREATE TABLE clock (
    boot  TEXT PRIMARY KEY,
    start INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX inbox_words ON inbox (run) WHERE is_word = 1;

CREATE INDEX runs_on_wall ON runs (partition, on_wall) WHERE has_work = 0 AND on_wall IS NOT NULL;

CREATE TABLE names (
    language  TEXT NOT NULL,
    namespace TEXT,
    name      TEXT NOT NULL,
    run       TEXT NOT NULL,
    heir      TEXT
) STRICT;

CREATE UNIQUE INDEX names_taken ON names (language, namespace, name);

CREATE INDEX names_of_run ON names (run);

CREATE TABLE access_tokens (
    name       TEXT PRIMARY KEY,
    digest     BLOB NOT NULL UNIQUE,
    role       TEXT NOT NULL,
    namespaces TEXT,           -- JSON; NULL: all
    pools      TEXT NOT NULL,  -- JSON
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE audit (
    id   TEXT PRIMARY KEY,
    at   INTEGER NOT NULL,
    run  TEXT,
    body BLOB NOT NULL,  -- JSON
    seal INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX audit_of_run ON audit (run, id) WHERE run IS NOT NULL;

CREATE INDEX audit_unsealed ON audit (id) WHERE seal IS NULL;

CREATE INDEX audit_sealed ON audit (seal);

CREATE TABLE audit_seals (
    number   INTEGER PRIMARY KEY,
    server   TEXT NOT NULL,
    at       INTEGER NOT NULL,
    rows     INTEGER NOT NULL,
    previous BLOB NOT NULL,
    hash     BLOB NOT NULL
) STRICT;

CREATE TABLE request_keys (
    who    TEXT NOT NULL,
    key    TEXT NOT NULL,
    digest BLOB NOT NULL,
    at     INTEGER NOT NULL,
    status INTEGER,
    answer BLOB,
    PRIMARY KEY (who, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX request_keys_old ON request_keys (at);

CREATE TABLE stream_rows (
    run  INTEGER NOT NULL,
    key  BLOB NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (run, key)
) STRICT, WITHOUT ROWID;

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

CREATE INDEX runs_of_namespace ON runs (namespace, created_at, id);

CREATE INDEX runs_in_status ON runs (namespace, status, created_at, id);

CREATE INDEX run_label_values ON run_labels (value);

CREATE INDEX tasks_ready ON tasks (pool, turn, offered_at, run, task) WHERE state = 'ready';

CREATE INDEX tasks_for_provider ON tasks (pool, provider, turn, offered_at, run, task) WHERE state = 'ready';

CREATE INDEX tasks_of_run ON tasks (run, turn) WHERE state = 'ready';

CREATE INDEX tasks_due ON tasks (until) WHERE state IN ('leased', 'answered');

CREATE INDEX tasks_request ON tasks (request) WHERE request IS NOT NULL;

CREATE INDEX tasks_lost ON tasks (lost_lease) WHERE lost_lease IS NOT NULL;

CREATE TABLE workers (
    pool      TEXT NOT NULL,
    name      TEXT NOT NULL,
    holder    TEXT NOT NULL,
    providers TEXT NOT NULL,
    opens     TEXT NOT NULL,
    slots     INTEGER NOT NULL,
    seen_at   INTEGER NOT NULL,
    left_at   INTEGER,
    PRIMARY KEY (pool, name)
) STRICT, WITHOUT ROWID;

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

CREATE TABLE feed_state (
    until INTEGER NOT NULL,
    floor INTEGER NOT NULL
) STRICT;

CREATE TABLE hooks (
    name      TEXT PRIMARY KEY,
    address   TEXT NOT NULL,
    position  INTEGER NOT NULL,
    is_paused INTEGER NOT NULL,
    seen_at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

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

CREATE INDEX tasks_lease ON tasks (lease) WHERE lease IS NOT NULL;

CREATE TABLE sessions (
    digest     BLOB PRIMARY KEY,
    token      TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL,
    is_code    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TRIGGER run_relabelled AFTER UPDATE OF labels ON runs BEGIN
    DELETE FROM run_labels WHERE (name, value) IN (SELECT key, value FROM json_each(old.labels)) AND run = old.number;
    INSERT OR IGNORE INTO run_labels SELECT key, value, new.number FROM json_each(new.labels);
END;

CREATE TABLE run_counts (
    namespace TEXT NOT NULL,
    hour      INTEGER NOT NULL,
    status    TEXT NOT NULL,
    number    INTEGER NOT NULL,
    PRIMARY KEY (namespace, hour, status)
) STRICT, WITHOUT ROWID;

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

CREATE INDEX runs_called ON runs (name, status, created_at, id);

CREATE INDEX runs_in_language ON runs (language, created_at, id);

CREATE INDEX runs_stuck ON runs (id) WHERE stuck IS NOT NULL;

INSERT INTO catalog_version VALUES (0);

INSERT INTO partition_numbers VALUES (0);

INSERT INTO feed_state VALUES (0, 0);

PRAGMA user_version = 24;
