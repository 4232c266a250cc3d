-- Partitions are numbered in order, and no number is given twice: an owner that was taken over finds its row gone, never
-- another's under the same number. A row is there while a process owns the partition, or until the next one clears it away.
CREATE TABLE partition_numbers (
    last INTEGER NOT NULL
) STRICT;

INSERT INTO partition_numbers SELECT coalesce(max(used), 0) FROM (
    SELECT max(id) AS used FROM partitions UNION ALL SELECT max(partition) FROM runs UNION ALL SELECT max(partition) FROM inbox
);
