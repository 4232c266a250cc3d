-- Resources that documents refer to. `version` is new with every write, `generation` with every change of what is said;
-- status is written apart.
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
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (kind, namespace, name)
) STRICT, WITHOUT ROWID;

-- What a resource said in each of its generations.
CREATE TABLE editions (
    uid        TEXT NOT NULL,
    generation INTEGER NOT NULL,
    body       BLOB NOT NULL,
    source     BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (uid, generation)
) STRICT, WITHOUT ROWID;

-- The last version given, for all resources together: one that was removed and made anew is never mistaken.
CREATE TABLE catalog_version (
    last INTEGER NOT NULL
) STRICT;

INSERT INTO catalog_version VALUES (0);

-- What runs remember for each other.
CREATE TABLE memories (
    key        TEXT PRIMARY KEY,
    value      BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX memories_expiring ON memories (expires_at) WHERE expires_at IS NOT NULL;
