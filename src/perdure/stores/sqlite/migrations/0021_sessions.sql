-- Sessions of browsers, and codes from which one is made, once: digests of random secrets. They end with their token.
CREATE TABLE sessions (
    digest     BLOB PRIMARY KEY,
    token      TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL,
    is_code    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
