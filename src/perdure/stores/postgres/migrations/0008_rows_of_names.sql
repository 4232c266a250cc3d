-- compatible: 1

-- Names of runs are rows: whoever has one, has it in its namespace alone, among the runs of its language. A row is written by
-- the commit that creates its run, or that starts it where nobody waits for it, and goes with the run. With an `heir`, its run
-- was disowned: the next run of this name below the heir takes the row over. Without a namespace, its run came second before
-- names were kept, and is reported.
CREATE TABLE names (
    language  text COLLATE "C" NOT NULL,
    namespace text COLLATE "C",
    name      text COLLATE "C" NOT NULL,
    run       text COLLATE "C" NOT NULL,
    heir      text COLLATE "C"
);

CREATE UNIQUE INDEX names_taken ON names (language, namespace, name);
CREATE INDEX names_of_run ON names (run);

INSERT INTO names SELECT language, namespace, run_name, id, NULL FROM runs WHERE run_name IS NOT NULL;

DROP INDEX runs_named;
ALTER TABLE runs DROP COLUMN namespace, DROP COLUMN run_name;
