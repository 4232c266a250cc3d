-- compatible: 1

-- Sessions of browsers, and codes from which one is made, once: digests of random secrets. They end with their token.
CREATE TABLE sessions (
    digest     bytea PRIMARY KEY,
    token      text NOT NULL,
    created_at bigint NOT NULL,
    seen_at    bigint NOT NULL,
    is_code    bigint NOT NULL
);
