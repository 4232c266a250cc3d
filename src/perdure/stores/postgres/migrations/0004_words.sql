-- compatible: 1

-- What somebody said to a run, and was told that it is recorded: `ps` shows it, and the run is not removed before it is
-- decided. A signal, a steering, a cancel or a reopening is known by how its body begins: its length and its tag.
ALTER TABLE inbox ADD COLUMN is_word smallint NOT NULL DEFAULT 0;

UPDATE inbox SET is_word = 1 WHERE encode(substr(body, 1, 2), 'hex') IN ('9506', '950d', '9307', '940e');

CREATE INDEX inbox_words ON inbox (run) WHERE is_word = 1;
