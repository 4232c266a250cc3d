-- compatible: 1

-- One row per engine process. Every commit locks its own (FOR KEY SHARE), a take-over removes it. Renewing the lease
-- changes no column of a key, so it never waits for commits; raising the epoch does, and ends what came before.
CREATE TABLE servers (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    epoch      bigint NOT NULL DEFAULT 1,
    token      text NOT NULL,     -- begins the application_name of its sessions
    name       text NOT NULL,
    role       text NOT NULL,     -- serve, private
    until      bigint NOT NULL,   -- microseconds of the database's clock
    reads      integer NOT NULL,  -- the newest event version it reads
    started_at bigint NOT NULL,
    UNIQUE (id, epoch)
) WITH (fillfactor = 50);

-- Runs are owned by partition. 1 to 64 are shared by those who serve; higher ones belong to one process each.
CREATE TABLE partitions (
    id        integer PRIMARY KEY,
    owner     bigint REFERENCES servers ON DELETE SET NULL,
    is_shared boolean NOT NULL
);

CREATE INDEX partitions_of_owner ON partitions (owner);

INSERT INTO partitions (id, is_shared) SELECT id, true FROM generate_series(1, 64) AS id;

-- Documents as they were when a run started, by content.
CREATE TABLE programs (
    digest       bytea PRIMARY KEY,
    language     text NOT NULL,
    text         bytea NOT NULL,
    unused_since bigint           -- seen without a run; removed when it still has none much later
);

-- What must be known of a run without reading its log. Rewritten when a run is parked, ends or is taken up;
-- `due` means nothing while there is work. `number` carries the partition of its birth in its high bits and stays
-- when the run is moved: keys of log, snapshots and large values begin with a partition.
CREATE TABLE runs (
    id         text COLLATE "C" PRIMARY KEY,
    number     bigint NOT NULL,
    partition  integer NOT NULL,
    language   text NOT NULL,
    name       text NOT NULL,
    program    bytea NOT NULL,
    parent     text COLLATE "C",
    labels     jsonb,
    key        bytea NOT NULL,
    status     text NOT NULL,
    has_work   boolean NOT NULL,
    due        bigint,
    created_at bigint NOT NULL,
    ended_at   bigint,
    stuck      text
) WITH (fillfactor = 80);

CREATE SEQUENCE run_numbers INCREMENT BY 64 START WITH 64;  -- a writer takes 64 at a time

CREATE INDEX runs_open ON runs (partition, has_work, due) WHERE ended_at IS NULL;
CREATE INDEX runs_ended ON runs (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX runs_children ON runs (parent) WHERE parent IS NOT NULL;
CREATE INDEX runs_latest ON runs (created_at, number);
CREATE INDEX runs_labelled ON runs USING gin (labels jsonb_path_ops) WHERE labels IS NOT NULL;

-- The truth. One row per run and commit; `seq` is the number of the last event in it.
CREATE TABLE log (
    run  bigint NOT NULL,
    seq  bigint NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (run, seq)
);

-- Shortens the fold; a cache.
CREATE TABLE snapshots (
    run  bigint PRIMARY KEY,
    seq  bigint NOT NULL,
    body bytea NOT NULL
) WITH (fillfactor = 50);

-- Values too large for the log, once per run.
CREATE TABLE large_values (
    run    bigint NOT NULL,
    digest bytea NOT NULL,
    text   bytea NOT NULL,
    PRIMARY KEY (run, digest)
);

-- Inputs on their way. A row is deleted by the commit that decides it. A commit takes one step of the sequence and counts
-- its letters from there: the low 20 bits of a position say which of them it is.
CREATE TABLE inbox (
    partition integer NOT NULL,
    position  bigint NOT NULL,
    run       text COLLATE "C" NOT NULL,
    at        bigint NOT NULL,
    body      bytea NOT NULL,
    PRIMARY KEY (partition, position)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

CREATE SEQUENCE inbox_positions INCREMENT BY 1048576 START WITH 1048576;

-- Limits over many runs.
CREATE TABLE limits (
    scope    text COLLATE "C" PRIMARY KEY,
    capacity bigint NOT NULL
);

CREATE TABLE permits (
    scope    text COLLATE "C" NOT NULL,
    run      text COLLATE "C" NOT NULL,
    permit   bigint NOT NULL,
    priority bigint NOT NULL,
    capacity bigint NOT NULL,
    asked_at bigint NOT NULL,
    granted  boolean NOT NULL,
    ageing   bigint NOT NULL,     -- so many microseconds in line are worth one step of priority; 0: they are worth nothing
    PRIMARY KEY (scope, run, permit)
);

CREATE INDEX permits_of_run ON permits (run, permit);
CREATE INDEX permits_held ON permits (scope) WHERE granted;
CREATE INDEX permits_waiting ON permits (scope, priority DESC, asked_at, run, permit) WHERE NOT granted;
CREATE INDEX permits_ageing ON permits (scope) WHERE NOT granted AND ageing > 0;

-- Work for workers in other processes.
CREATE TABLE tasks (
    run       text COLLATE "C" NOT NULL,
    task      bigint NOT NULL,
    delivery  bigint NOT NULL,
    pool      text COLLATE "C" NOT NULL,
    provider  text COLLATE "C" NOT NULL,
    state     text NOT NULL,      -- ready, leased, lost
    recalled  boolean NOT NULL DEFAULT false,
    worker    text,
    until     bigint,
    body      bytea NOT NULL,
    PRIMARY KEY (run, task)
);

CREATE INDEX tasks_ready ON tasks (pool, run, task) WHERE state = 'ready';
CREATE INDEX tasks_leased ON tasks (until) WHERE state = 'leased';

-- Resources that documents refer to. `version` is new with every write, `generation` with every change of what is said.
CREATE TABLE resources (
    kind       text COLLATE "C" NOT NULL,
    namespace  text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    uid        text NOT NULL UNIQUE,
    generation bigint NOT NULL,
    version    bigint NOT NULL,
    body       bytea NOT NULL,
    source     bytea NOT NULL,
    labels     jsonb,
    status     bytea,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    PRIMARY KEY (kind, namespace, name)
);

CREATE SEQUENCE resource_versions;

-- What a resource said in each of its generations.
CREATE TABLE editions (
    uid        text NOT NULL,
    generation bigint NOT NULL,
    body       bytea NOT NULL,
    source     bytea NOT NULL,
    created_at bigint NOT NULL,
    PRIMARY KEY (uid, generation)
);

-- What runs remember for each other.
CREATE TABLE memories (
    key        bytea PRIMARY KEY,
    value      bytea NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint
);

CREATE INDEX memories_expiring ON memories (expires_at) WHERE expires_at IS NOT NULL;
