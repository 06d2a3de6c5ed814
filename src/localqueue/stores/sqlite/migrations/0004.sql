-- Where the events of each queue are is written by the fold, so that the journal of a quiet queue is
-- read without those of a busy one. What is not folded yet is found when it is. Processes of the
-- former version that have the file open go on folding: a mark says up to where there are spans.
CREATE TABLE span (
    queue INTEGER NOT NULL,
    last  INTEGER NOT NULL,
    first INTEGER NOT NULL,
    PRIMARY KEY (queue, last)
) STRICT, WITHOUT ROWID;
INSERT INTO span (queue, last, first) SELECT queue, max(seq), min(seq) FROM event
WHERE seq <= (SELECT seq FROM mark WHERE name = 'fold') GROUP BY queue, seq / 256;
INSERT INTO mark (name, seq) SELECT 'span', seq FROM mark WHERE name = 'fold';
