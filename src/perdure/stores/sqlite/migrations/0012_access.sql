-- Who may call a server. Of a token only its SHA-256 is kept; a name is used once, also after it was revoked.
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

-- Changes and refusals. Ids are in order of time; a row belongs to no seal until one is written for it.
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

-- Each seal holds the hash of the one before it and the digests of its rows.
CREATE TABLE audit_seals (
    number   INTEGER PRIMARY KEY,
    server   TEXT NOT NULL,
    at       INTEGER NOT NULL,
    rows     INTEGER NOT NULL,
    previous BLOB NOT NULL,
    hash     BLOB NOT NULL
) STRICT;

-- Idempotency keys of requests whose key is not kept by a run.
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
