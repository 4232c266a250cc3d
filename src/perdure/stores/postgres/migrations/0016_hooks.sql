-- compatible: 1

-- Outgoing hooks: up to which position of the feed their deliveries are written. They hold the feed until then.
CREATE TABLE hooks (
    name      text COLLATE "C" PRIMARY KEY,
    address   text NOT NULL,
    position  bigint NOT NULL,
    is_paused boolean NOT NULL,
    seen_at   bigint NOT NULL
);

-- Events on their way to receivers. `next_at` is when an attempt may begin; while one is under way, when another may.
CREATE TABLE hook_deliveries (
    hook        text COLLATE "C" NOT NULL,
    position    bigint NOT NULL,
    run         text COLLATE "C" NOT NULL,
    namespace   text COLLATE "C" NOT NULL,
    body        bytea NOT NULL,
    created_at  bigint NOT NULL,
    state       text NOT NULL,  -- open, delivered, dead
    attempts    bigint NOT NULL,
    next_at     bigint NOT NULL,
    answered_at bigint,
    status      bigint,
    error       text NOT NULL,
    PRIMARY KEY (hook, position)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

CREATE INDEX hook_deliveries_open ON hook_deliveries (next_at) WHERE state = 'open';
CREATE INDEX hook_deliveries_done ON hook_deliveries (answered_at) WHERE state = 'delivered';
