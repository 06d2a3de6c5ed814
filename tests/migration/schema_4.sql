-- Version 4 of a localqueue file. Times are store time, in seconds.
-- States: 0 ready, 1 delayed, 2 held behind its ordering key, 3 inflight, 4 dead.
-- STRICT and the checks let PRAGMA quick_check see a cell that holds what was never written.

-- Public ids are these 16 hex digits and 16 of seq; a restored backup starts a new row.
CREATE TABLE identity (
    from_seq INTEGER PRIMARY KEY,
    bits     TEXT NOT NULL
) STRICT;

-- Where store time stands against the steady clock of this boot.
CREATE TABLE clock (
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    boot_id TEXT NOT NULL,
    offset  REAL NOT NULL
) STRICT;

CREATE TABLE queue (
    id       INTEGER PRIMARY KEY,
    name     TEXT NOT NULL UNIQUE,
    settings TEXT NOT NULL,
    version  INTEGER NOT NULL,
    topic    INTEGER              -- set while this queue is a topic's subscriber
) STRICT;

CREATE TABLE message (
    id         INTEGER PRIMARY KEY,  -- seq of the event that made it
    queue      INTEGER NOT NULL,
    state      INTEGER NOT NULL CHECK (state BETWEEN 0 AND 4),
    rank       INTEGER NOT NULL CHECK (rank <= 0),
    pos        REAL NOT NULL,        -- when it became due; of a dead letter: when it failed
    due_at     REAL,                 -- delayed, held: when it may go; inflight: end of the lease
    created_at REAL NOT NULL,
    attempts   INTEGER NOT NULL DEFAULT 0,
    failures   INTEGER NOT NULL DEFAULT 0,
    crashes    INTEGER NOT NULL DEFAULT 0,
    ended      INTEGER NOT NULL DEFAULT 0,  -- how many ended attempts the history has
    token      INTEGER,              -- seq of the lease event: the receipt
    worker     TEXT,
    liveness   TEXT,
    note       TEXT,
    leased_at  REAL,
    cancel     INTEGER NOT NULL DEFAULT 0,
    expires_at REAL,
    failed_at  REAL,
    error      TEXT,
    dedupe_key TEXT,
    key        TEXT,
    turn       INTEGER,              -- the order within its key: seq of enqueue or requeue
    last       INTEGER NOT NULL,     -- seq of its newest event
    home       INTEGER,              -- the queue it was put to, when that one overflowed
    origin     INTEGER,              -- seq of the publication it was made from
    copy_of    INTEGER,              -- seq of the kept publication that it is a copy of
    alias      TEXT,                 -- the id it brought along from another file
    codec      TEXT,                 -- NULL is json
    checksum   INTEGER NOT NULL,     -- over value and headers, bound to id and queue
    body       INTEGER,              -- where the value is, when it is not here
    headers    BLOB,
    value      BLOB
) STRICT;
-- The rowid ends every index, so (rank, pos, id) is read in order without a sort.
CREATE INDEX message_ready    ON message (queue, rank, pos) WHERE state = 0;
CREATE INDEX message_delayed  ON message (queue, due_at) WHERE state = 1;
CREATE INDEX message_lease    ON message (queue, due_at, worker, leased_at) WHERE state = 3;
CREATE INDEX message_dead     ON message (queue, pos) WHERE state = 4;
CREATE INDEX message_keyed    ON message (queue, key, turn) WHERE key IS NOT NULL AND state < 4;
CREATE INDEX message_expiring ON message (queue, expires_at, state)
    WHERE expires_at IS NOT NULL AND state < 3;
CREATE INDEX message_origin   ON message (origin, queue) WHERE origin IS NOT NULL;
CREATE INDEX message_copy     ON message (copy_of, queue) WHERE copy_of IS NOT NULL;
CREATE INDEX message_alias    ON message (alias) WHERE alias IS NOT NULL;

-- Values that are large or shared. The count stands apart: inside the row it would rewrite the value.
CREATE TABLE body (
    id    INTEGER PRIMARY KEY,
    value BLOB NOT NULL
) STRICT;
CREATE TABLE body_use (
    body INTEGER PRIMARY KEY,
    n    INTEGER NOT NULL
) STRICT;

-- Ended attempts of a living message: written only when an attempt does not succeed.
CREATE TABLE attempt (
    message INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    entries TEXT NOT NULL,
    PRIMARY KEY (message, seq)
) STRICT, WITHOUT ROWID;

-- kind 0: dedupe keys, kind 1: request ids. expires_at NULL: as long as the message lives.
CREATE TABLE dedupe (
    queue       INTEGER NOT NULL,
    kind        INTEGER NOT NULL,
    key         TEXT NOT NULL,
    message     INTEGER NOT NULL,
    fingerprint INTEGER NOT NULL,
    expires_at  REAL,
    PRIMARY KEY (queue, kind, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX dedupe_expiring ON dedupe (expires_at) WHERE expires_at IS NOT NULL;

-- What happened, in commit order. Ids, receipts and counters come from it.
CREATE TABLE event (
    seq         INTEGER PRIMARY KEY,
    at          REAL NOT NULL,
    queue       INTEGER NOT NULL,
    message     INTEGER,
    prev        INTEGER,             -- the message's event before this one
    kind        INTEGER NOT NULL,
    from_state  INTEGER,
    to_state    INTEGER,
    n           INTEGER NOT NULL,
    attempt     INTEGER,
    worker      TEXT,
    by          INTEGER NOT NULL,    -- 0 worker, 1 operator, 2 sweep
    error_type  TEXT,
    error_text  TEXT,
    fingerprint TEXT,
    enqueued_at REAL,
    leased_at   REAL,
    waited      REAL,
    body        INTEGER,
    detail      TEXT
) STRICT;
-- The events that end a life, by message: the rest of it is found by following prev. A publication
-- has an end in every queue that it came to. Written by the fold, many at a time: an index would be
-- written by every ack. What ended after the fold is in the tail of the journal.
CREATE TABLE ended (
    message INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    PRIMARY KEY (message, seq)
) STRICT, WITHOUT ROWID;

-- Where the events of a queue are, up to the mark 'span': none is outside its spans, and no two of
-- these overlap. Whoever reads a quiet queue goes from one to the next and does not meet what
-- others wrote. Written by the fold, like the ends above; what is newer is in the tail of the
-- journal. The mark is not that of the fold: a process of the former version that has had the file
-- open since before it was migrated folds and trims too, and knows no spans.
CREATE TABLE span (
    queue INTEGER NOT NULL,
    last  INTEGER NOT NULL,
    first INTEGER NOT NULL,
    PRIMARY KEY (queue, last)
) STRICT, WITHOUT ROWID;

-- Counts up to the fold; what is newer is added from the tail of the journal.
CREATE TABLE counter (
    queue INTEGER NOT NULL,
    state INTEGER NOT NULL,
    n     INTEGER NOT NULL,
    PRIMARY KEY (queue, state)
) STRICT, WITHOUT ROWID;
CREATE TABLE worker (
    queue     INTEGER NOT NULL,
    name      TEXT NOT NULL,
    leases    INTEGER NOT NULL,
    last_seen REAL,
    PRIMARY KEY (queue, name)
) STRICT, WITHOUT ROWID;
CREATE TABLE mark (
    name TEXT PRIMARY KEY,
    seq  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
-- How many events of a queue the journal keeps, and up to where some were trimmed.
CREATE TABLE kept (
    queue   INTEGER PRIMARY KEY,
    n       INTEGER NOT NULL,
    trimmed INTEGER NOT NULL,
    scanned INTEGER NOT NULL DEFAULT 0  -- up to where the trimmer has looked for this queue
) STRICT;
CREATE TABLE reader (
    name       TEXT PRIMARY KEY,
    seq        INTEGER NOT NULL,
    updated_at REAL NOT NULL,
    max_age    REAL NOT NULL
) STRICT, WITHOUT ROWID;

-- Topics: a log of publications, and where each subscriber has read to.
CREATE TABLE topic (
    queue INTEGER PRIMARY KEY,
    last  INTEGER NOT NULL
) STRICT;
CREATE TABLE subscription (
    queue    INTEGER PRIMARY KEY,
    topic    INTEGER NOT NULL,
    name     TEXT NOT NULL,
    position INTEGER NOT NULL,
    until    INTEGER                 -- the end of what is read from the log; NULL: no end
) STRICT;
CREATE INDEX subscription_topic ON subscription (topic, queue);
CREATE TABLE publication (
    topic      INTEGER NOT NULL,
    offset     INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    created_at REAL NOT NULL,
    expires_at REAL,
    dedupe_key TEXT,
    fingerprint INTEGER NOT NULL DEFAULT 0,
    codec      TEXT,
    checksum   INTEGER NOT NULL,
    body       INTEGER NOT NULL,
    headers    BLOB,
    PRIMARY KEY (topic, offset)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX publication_seq ON publication (seq);
CREATE INDEX publication_expiring ON publication (topic, expires_at)
    WHERE expires_at IS NOT NULL;
-- Publications that one subscriber does not get: cancelled for it, or a duplicate there.
CREATE TABLE skipped (
    queue  INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    PRIMARY KEY (queue, offset)
) STRICT, WITHOUT ROWID;

CREATE TABLE record (
    kind       TEXT NOT NULL,
    key        TEXT NOT NULL,
    value      BLOB NOT NULL,
    version    INTEGER NOT NULL,
    expires_at REAL,
    PRIMARY KEY (kind, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX record_expiring ON record (expires_at, kind) WHERE expires_at IS NOT NULL;

INSERT INTO mark VALUES ('fold', 0), ('span', 0);
