-- Lives that have ended are listed by the fold, many at a time, instead of in an index that every ack
-- writes. What is not folded yet is listed when it is.
CREATE TABLE ended (
    message INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    PRIMARY KEY (message, seq)
) STRICT, WITHOUT ROWID;
INSERT INTO ended (message, seq) SELECT message, seq FROM event
WHERE message IS NOT NULL AND to_state IS NULL AND seq <= (SELECT seq FROM mark WHERE name = 'fold')
ORDER BY message, seq;
DROP INDEX event_end;
