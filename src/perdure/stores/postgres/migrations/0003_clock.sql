-- compatible: 1

-- The store's clock is the database's plus `shift`, which takes back what the database's clock was set by. Tests put
-- another function in the place of `wall`.
CREATE TABLE clock (
    id    boolean PRIMARY KEY DEFAULT true CHECK (id),  -- there is one row, or none yet
    shift bigint NOT NULL DEFAULT 0,                    -- microseconds
    seen  bigint NOT NULL DEFAULT 0                     -- when the last server left in order
);

CREATE FUNCTION wall() RETURNS bigint LANGUAGE sql VOLATILE
    AS $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;

CREATE FUNCTION instant() RETURNS bigint LANGUAGE sql VOLATILE
    AS $$ SELECT perdure.wall() + coalesce((SELECT shift FROM perdure.clock), 0) $$;

-- What the server itself counted when it renewed its lease last.
ALTER TABLE servers ADD COLUMN renewed bigint NOT NULL DEFAULT 0;
