-- compatible: 1

-- Who may call a server. Of a token only its SHA-256 is kept; a name is used once, also after it was revoked.
CREATE TABLE access_tokens (
    name       text COLLATE "C" PRIMARY KEY,
    digest     bytea NOT NULL UNIQUE,
    role       text NOT NULL,
    namespaces text,           -- JSON; NULL: all
    pools      text NOT NULL,  -- JSON
    created_at bigint NOT NULL,
    created_by text NOT NULL,
    expires_at bigint,
    revoked_at bigint
);

-- Changes and refusals. Ids are in order of time; a row belongs to no seal until one is written for it.
CREATE TABLE audit (
    id   text COLLATE "C" PRIMARY KEY,
    at   bigint NOT NULL,
    run  text COLLATE "C",
    body bytea NOT NULL,  -- JSON
    seal bigint
);

CREATE INDEX audit_of_run ON audit (run, id) WHERE run IS NOT NULL;
CREATE INDEX audit_unsealed ON audit (id) WHERE seal IS NULL;
CREATE INDEX audit_sealed ON audit (seal);

-- Each seal holds the hash of the one before it and the digests of its rows.
CREATE TABLE audit_seals (
    number   bigint PRIMARY KEY,
    server   text NOT NULL,
    at       bigint NOT NULL,
    rows     bigint NOT NULL,
    previous bytea NOT NULL,
    hash     bytea NOT NULL
);

-- Idempotency keys of requests whose key is not kept by a run.
CREATE TABLE request_keys (
    who    text COLLATE "C" NOT NULL,
    key    text COLLATE "C" NOT NULL,
    digest bytea NOT NULL,
    at     bigint NOT NULL,
    status bigint,
    answer bytea,
    PRIMARY KEY (who, key)
);

CREATE INDEX request_keys_old ON request_keys (at);
