-- compatible: 1

-- How many runs began in which hour, by namespace and status: kept with the runs, whoever writes them. `hour` is its first instant.
-- A change is a row of its own, so that no commit waits for another; every thousandth one adds those that nobody else is adding
-- to the sums. A run that is created and removed leaves nothing.
CREATE TABLE run_count_sums (
    namespace text COLLATE "C" NOT NULL,
    hour      bigint NOT NULL,
    status    text COLLATE "C" NOT NULL,
    number    bigint NOT NULL,
    PRIMARY KEY (namespace, hour, status)
);

CREATE INDEX run_count_sums_empty ON run_count_sums (hour) WHERE number = 0;

CREATE TABLE run_count_changes (
    id        bigint GENERATED ALWAYS AS IDENTITY,
    namespace text COLLATE "C" NOT NULL,
    hour      bigint NOT NULL,
    status    text COLLATE "C" NOT NULL,
    number    bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

CREATE VIEW run_counts AS
    SELECT namespace, hour, status, sum(number)::bigint AS number FROM (
        SELECT namespace, hour, status, number FROM run_count_sums
        UNION ALL SELECT namespace, hour, status, number FROM run_count_changes) AS kept
    GROUP BY namespace, hour, status HAVING sum(number) <> 0;

CREATE FUNCTION add_up_run_counts() RETURNS void LANGUAGE plpgsql SET search_path = perdure AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock(7036874417766) THEN
        RETURN;
    END IF;
    WITH taken AS (
        DELETE FROM run_count_changes WHERE ctid = ANY (ARRAY(SELECT ctid FROM run_count_changes LIMIT 10000))
        RETURNING namespace, hour, status, number)
    INSERT INTO run_count_sums AS s
        SELECT namespace, hour, status, sum(number) FROM taken GROUP BY 1, 2, 3 HAVING sum(number) <> 0
    ON CONFLICT (namespace, hour, status) DO UPDATE SET number = s.number + excluded.number;
    DELETE FROM run_count_sums WHERE number = 0;
END $$;

CREATE FUNCTION count_run() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    change bigint;
BEGIN
    IF TG_OP <> 'INSERT' THEN
        INSERT INTO perdure.run_count_changes (namespace, hour, status, number)
        VALUES (OLD.namespace, OLD.created_at - OLD.created_at % 3600000000, OLD.status, -1) RETURNING id INTO change;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO perdure.run_count_changes (namespace, hour, status, number)
        VALUES (NEW.namespace, NEW.created_at - NEW.created_at % 3600000000, NEW.status, 1) RETURNING id INTO change;
    END IF;
    IF change % 1000 < 2 THEN
        PERFORM perdure.add_up_run_counts();
    END IF;
    RETURN NULL;
END $$;

INSERT INTO run_count_sums
    SELECT namespace, created_at - created_at % 3600000000, status, count(*) FROM runs GROUP BY 1, 2, 3;

CREATE TRIGGER run_counted AFTER INSERT OR DELETE ON runs FOR EACH ROW EXECUTE FUNCTION count_run();
CREATE TRIGGER run_recounted AFTER UPDATE OF status ON runs FOR EACH ROW
    WHEN (OLD.status <> NEW.status) EXECUTE FUNCTION count_run();

-- Lists of the runs of one document, and of one language: a page costs what it shows.
DROP INDEX runs_called;
CREATE INDEX runs_called ON runs (name COLLATE "C", status, created_at, id);
CREATE INDEX runs_in_language ON runs (language, created_at, id);
CREATE INDEX runs_stuck ON runs (id) WHERE stuck IS NOT NULL;
