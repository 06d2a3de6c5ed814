-- Every statement of the SQLite store, named, with its reason where it is not plain.
-- (hot) statements run in ordinary calls: a test shows that none of them scans a table or sorts.
-- Lists of ids come in as one JSON array, so that one prepared statement serves every length. Most
-- lists are runs of numbers that follow each other: those have statements of their own.
-- OR FAIL: whatever raises is undone as a whole, so a statement need not be able to undo itself.
-- Copying the pages for that costs a third of a batch.

-- name: row (fragment)
m.id, m.queue, m.state, m.rank, m.pos, m.due_at, m.created_at, m.attempts, m.failures, m.crashes,
m.ended, m.token, m.worker, m.liveness, m.note, m.leased_at, m.cancel, m.expires_at, m.failed_at,
m.error, m.dedupe_key, m.key, m.turn, m.last, m.home, m.origin, m.alias, m.codec, m.checksum, m.body

-- name: content (fragment)
m.headers, coalesce(m.value, (SELECT b.value FROM body AS b WHERE b.id = m.body)) FROM message AS m

-- ---------------------------------------------------------------------------------------- the file

-- name: last_seq (hot)
SELECT seq FROM event ORDER BY seq DESC LIMIT 1

-- name: identities
SELECT from_seq, bits FROM identity ORDER BY from_seq

-- name: add_identity
INSERT INTO identity (from_seq, bits) VALUES (?, ?)

-- name: mark_copied
INSERT OR REPLACE INTO mark (name, seq) VALUES ('copied', ?)

-- name: forget_copied
DELETE FROM mark WHERE name = 'copied'

-- name: read_clock
SELECT boot_id, offset FROM clock WHERE one = 1

-- name: write_clock
INSERT OR REPLACE INTO clock (one, boot_id, offset) VALUES (1, ?, ?)

-- name: last_event_time
SELECT at FROM event ORDER BY seq DESC LIMIT 1

-- name: free_all_leases
-- After a boot: every lease is over, and nobody is charged for it.
UPDATE message SET due_at = ?, liveness = NULL WHERE state = 3

-- -------------------------------------------------------------------------------------- queue rows

-- name: find_queue (hot)
SELECT id, version, settings, topic FROM queue WHERE name = ?

-- name: queue_names
SELECT id, name FROM queue ORDER BY name

-- name: queue_by_id (hot)
SELECT name FROM queue WHERE id = ?

-- name: add_queue
INSERT INTO queue (name, settings, version, topic) VALUES (?, ?, ?, ?)

-- name: write_settings
UPDATE queue SET settings = ?, version = ? WHERE id = ?

-- name: set_topic
UPDATE queue SET topic = ? WHERE id = ?

-- ---------------------------------------------------------------------------------------- messages

-- name: add_message (hot)
INSERT INTO message (id, queue, state, rank, pos, due_at, created_at, expires_at, failed_at, error,
    dedupe_key, key, turn, last, home, origin, alias, codec, checksum, body, headers, value)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: ready_messages (hot)
SELECT {row}, {content} WHERE m.queue = ? AND m.state = 0 ORDER BY m.rank, m.pos, m.id LIMIT ?

-- name: plain (fragment)
-- Narrow: reading all columns of a row costs more than twice as much. The last one tells whether the
-- others are as put left them, on a message that has nothing but a value.
SELECT id, rank, pos, created_at, checksum, value,
    coalesce(error, failed_at, dedupe_key, key, expires_at, origin, alias, codec, body, headers)
        IS NULL AND attempts + failures + crashes + ended = 0 AND last = id
FROM message WHERE queue = ?1 AND state = 0

-- name: plain_messages (hot)
{plain} ORDER BY rank, pos, id LIMIT ?2

-- name: plain_messages_beside (hot)
-- From there on: what comes before is leased in the daybook, and no row says so yet. First those that
-- were put in the same moment, then the others: in one statement, all of the former would be passed.
{plain} AND rank = ?2 AND pos = ?3 AND id > ?4 ORDER BY id LIMIT ?5

-- name: plain_messages_after (hot)
{plain} AND (rank, pos) > (?2, ?3) ORDER BY rank, pos, id LIMIT ?4

-- name: is_ready (hot)
SELECT 1 FROM message WHERE state = 0 AND queue = ? LIMIT 1

-- name: room (fragment)
-- A note is read of a lease only. Until there is one it keeps the room that the lease will take:
-- rows that grow split their pages, which costs a lease as much as writing its events.
'........................'

-- name: alike_messages (fragment)
INSERT OR FAIL INTO message (id, last, queue, state, rank, pos, due_at, created_at, expires_at, codec,
    headers, checksum, value, note)

-- name: add_alike_message (hot)
-- Messages that differ in value only; sql.py makes the same for many rows.
{alike_messages} VALUES (?10, ?10, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?11, ?12, {room})

-- name: plain_message (fragment)
INSERT OR FAIL INTO message (id, last, queue, state, rank, pos, created_at, checksum, value, note)

-- name: add_plain_message (hot)
-- Most messages: what they do not have is not bound. Two microseconds of ten.
{plain_message}
VALUES (?1, ?1, ?2, 0, 0, ?3, ?3, ?4, ?5, {room})

-- name: add_plain_event (hot)
INSERT INTO event (seq, at, queue, message, kind, to_state, n, by)
VALUES (?1, ?2, ?3, ?1, 1, ?4, 1, 0)

-- name: add_alike_events (hot)
-- One event for each message of a range, without a row crossing from Python.
INSERT OR FAIL INTO event (seq, at, queue, message, kind, to_state, n, by)
SELECT id, created_at, queue, id, 1, state, 1, 0 FROM message WHERE id BETWEEN ? AND ?

-- name: noted_event (fragment)
INSERT OR FAIL INTO event (seq, at, queue, message, prev, kind, from_state, to_state, n, attempt,
    worker, by, enqueued_at, leased_at, waited)

-- name: add_noted_event (hot)
-- Of an entry of the daybook, whichever it is: they are written in their order, and many at once.
{noted_event}
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 1, ?9, ?10, 0, ?11, ?12, ?13)

-- name: lease_messages (hot)
-- What waits has no wish to cancel: it left with the lease before.
UPDATE OR FAIL message SET state = 3, attempts = attempts + 1, token = ?1 + j.key, last = ?1 + j.key,
    due_at = ?2, worker = ?3, liveness = ?4, leased_at = ?5, note = ?7
FROM json_each(?6) AS j WHERE message.id = j.value

-- name: lease_run (hot)
-- The same for ids from ?6 to ?7.
UPDATE OR FAIL message SET state = 3, attempts = attempts + 1, token = ?1 + id - ?6,
    last = ?1 + id - ?6, due_at = ?2, worker = ?3, liveness = ?4, leased_at = ?5, note = ?8
WHERE id BETWEEN ?6 AND ?7

-- name: lease_event (fragment)
INSERT OR FAIL INTO event (seq, at, queue, message, prev, kind, from_state, to_state, n, attempt,
    worker, by)

-- name: add_lease_events (hot)
-- Before the rows change: prev is their last event until now.
{lease_event}
SELECT ?1 + j.key, ?2, m.queue, coalesce(m.origin, m.id), m.last, 3, 0, 3, 1, m.attempts + 1, ?3, 0
FROM json_each(?4) AS j CROSS JOIN message AS m WHERE m.id = j.value

-- name: add_lease_events_of_run (hot)
{lease_event}
SELECT ?1 + m.id - ?4, ?2, m.queue, coalesce(m.origin, m.id), m.last, 3, 0, 3, 1, m.attempts + 1,
    ?3, 0
FROM message AS m WHERE m.id BETWEEN ?4 AND ?5

-- name: add_lease_event_of_plain (hot)
-- Of a message that nothing has happened to: what its row has to tell is known.
{lease_event} VALUES (?1, ?2, ?3, ?4, ?4, 3, 0, 3, 1, 1, ?5, 0)

-- name: lease_plain_message (hot)
UPDATE OR FAIL message SET state = 3, attempts = 1, token = ?1, last = ?1, due_at = ?2, worker = ?3,
    liveness = ?4, leased_at = ?5, note = ?6
WHERE id = ?7

-- name: plain_to_ack (fragment)
coalesce(m.key, m.dedupe_key, m.body) IS NULL AND m.ended = 0

-- name: held_messages (hot)
-- What ack must know of a batch; plain is a message that nothing else refers to.
SELECT m.queue, m.state, m.token, {plain_to_ack}
FROM json_each(?) AS j CROSS JOIN message AS m WHERE m.id = j.value

-- name: ack_event (fragment)
INSERT OR FAIL INTO event (seq, at, queue, message, prev, kind, from_state, n, attempt, worker, by,
    enqueued_at, leased_at, waited)

-- name: acked (fragment)
?2, m.queue, m.id, m.last, 5, 3, 1, m.attempts, m.worker, 0, m.created_at, m.leased_at,
max(0.0, m.leased_at - m.pos)

-- name: add_ack_event_of_plain (hot)
-- Of a message that is removed as it is leased, by the lease ?5.
{ack_event} VALUES (?1, ?2, ?3, ?4, ?5, 5, 3, 1, 1, ?6, 0, ?7, ?2, ?8)

-- name: add_ack_events (hot)
{ack_event} SELECT ?1 + j.key, {acked}
FROM json_each(?3) AS j CROSS JOIN message AS m WHERE m.id = j.value

-- name: add_ack_events_in_order (hot)
-- Only of those that are plain and held: by the tokens from ?4 on, in the order of the list.
{ack_event} SELECT ?1 + j.key, {acked}
FROM json_each(?5) AS j CROSS JOIN message AS m WHERE m.id = j.value AND m.queue = ?3
    AND m.state = 3 AND m.token = ?4 + j.key AND {plain_to_ack}

-- name: add_ack_events_of_run (hot)
-- The same for ids from ?5 to ?6. The plus keeps SQLite from walking all leases of the queue.
{ack_event} SELECT ?1 + m.id - ?5, {acked}
FROM message AS m WHERE m.id BETWEEN ?5 AND ?6 AND +m.queue = ?3 AND m.state = 3
    AND m.token = ?4 + m.id - ?5 AND {plain_to_ack}

-- name: add_noted_acks_of_run (hot)
-- Of leases that stand in the daybook only, by the tokens from ?3 on: the rows know nothing of them.
{ack_event} SELECT ?1 + m.id - ?6, ?2, m.queue, m.id, ?3 + m.id - ?6, 5, 3, 1, 1, ?5, 0, m.created_at,
    ?4, max(0.0, ?4 - m.pos)
FROM message AS m WHERE m.id BETWEEN ?6 AND ?7

-- name: first_lease (fragment)
SELECT m.id, m.created_at, m.pos, m.token, m.leased_at, m.worker

-- name: is_first_lease (fragment)
m.state = 3 AND m.attempts = 1 AND m.last = m.token AND {plain_to_ack}

-- name: first_leases (hot)
-- Leases whose ends the daybook can tell: nothing happened to the messages before or since.
{first_lease}
FROM json_each(?2) AS j CROSS JOIN message AS m
WHERE m.id = j.value AND m.queue = ?1 AND {is_first_lease}

-- name: first_leases_of_run (hot)
{first_lease}
FROM message AS m WHERE m.id BETWEEN ?2 AND ?3 AND +m.queue = ?1 AND {is_first_lease}

-- name: delete_messages (hot)
DELETE FROM message WHERE id IN (SELECT value FROM json_each(?))

-- name: delete_run (hot)
DELETE FROM message WHERE id BETWEEN ? AND ?

-- name: take_back_events (hot)
DELETE FROM event WHERE seq >= ?

-- name: read_message (hot)
SELECT {row}, {content} WHERE m.id = ?

-- name: message_row (hot)
SELECT {row}, NULL, NULL FROM message AS m WHERE m.id = ?

-- name: message_rows (hot)
SELECT {row}, NULL, NULL FROM json_each(?) AS j CROSS JOIN message AS m WHERE m.id = j.value

-- name: message_by_origin (hot)
SELECT id FROM message WHERE origin = ? AND queue = ?

-- name: message_by_alias (hot)
SELECT id FROM message WHERE alias = ? AND queue = ?

-- name: delete_message (hot)
DELETE FROM message WHERE id = ?

-- name: place_message (hot)
-- Back to waiting: released, expired, requeued, or a held one whose turn has come.
UPDATE message SET state = ?, pos = ?, due_at = ?, failures = ?, crashes = ?, ended = ?, failed_at = ?,
    error = ?, turn = ?, last = ?, expires_at = ?, token = NULL, worker = NULL, liveness = NULL,
    note = NULL, leased_at = NULL, cancel = 0
WHERE id = ?

-- name: bury_message (hot)
UPDATE message SET state = 4, pos = ?, due_at = NULL, failed_at = ?, error = ?, last = ?,
    failures = ?, crashes = ?, ended = ?, token = NULL, worker = NULL, liveness = NULL,
    note = NULL, leased_at = NULL, cancel = 0
WHERE id = ?

-- name: extend_lease (hot)
UPDATE message SET due_at = ?, note = ?, last = ? WHERE id = ?

-- name: leases_under (hot)
-- By liveness name, which no index has: a dead worker is rarer than a lease. All leases of the queue
-- are walked, and nothing that waits.
SELECT id, token FROM message WHERE state = 3 AND queue = ? AND liveness = ?

-- name: messages_under (hot)
-- The same leases with their messages. In any order: most are found as their tokens follow.
SELECT {row}, {content} WHERE m.state = 3 AND m.queue = ? AND m.liveness = ?
    AND m.token > ? AND m.token <= ?

-- name: ask_cancel (hot)
UPDATE message SET cancel = 1, last = ? WHERE id = ?

-- name: oldest_of_rank (hot)
SELECT {row}, NULL, NULL FROM message AS m
WHERE m.queue = ? AND m.state = 0 AND m.rank = ? ORDER BY m.pos, m.id LIMIT 1

-- name: lowest_rank (hot)
SELECT rank FROM message WHERE queue = ? AND state = 0 ORDER BY rank DESC LIMIT 1

-- name: ready_in_order (hot)
SELECT {row}, {content} WHERE m.queue = ? AND m.state = 0 ORDER BY m.rank, m.pos, m.id

-- name: first_rank (hot)
SELECT rank, pos FROM message
WHERE queue = ? AND state = 0 AND (expires_at IS NULL OR expires_at > ?)
ORDER BY rank, pos, id LIMIT 1

-- name: next_rank (hot)
SELECT rank, pos FROM message
WHERE queue = ? AND state = 0 AND (expires_at IS NULL OR expires_at > ?) AND rank > ?
ORDER BY rank, pos, id LIMIT 1

-- ------------------------------------------------------------------------------------------ sweep

-- name: is_anything_due (hot)
-- The answer is nearly always no: one statement then instead of three.
SELECT 1 FROM message WHERE state = 3 AND queue = ?1 AND due_at <= ?2
UNION ALL SELECT 1 FROM message WHERE state = 1 AND queue = ?1 AND due_at <= ?2
UNION ALL SELECT 1 FROM message WHERE state < 3 AND queue = ?1 AND expires_at <= ?2
LIMIT 1

-- name: next_change (hot)
-- When something will be due.
SELECT min(due_at) FROM (
    SELECT min(due_at) AS due_at FROM message WHERE state = 3 AND queue = ?1
    UNION ALL SELECT min(due_at) FROM message WHERE state = 1 AND queue = ?1
    UNION ALL SELECT min(expires_at) FROM message
        WHERE state < 3 AND queue = ?1 AND expires_at IS NOT NULL)

-- name: ended_leases (hot)
SELECT {row}, NULL, NULL FROM message AS m
WHERE m.state = 3 AND m.queue = ? AND m.due_at <= ? ORDER BY m.due_at LIMIT ?

-- name: due_messages (hot)
SELECT id FROM message WHERE state = 1 AND queue = ? AND due_at <= ? ORDER BY due_at LIMIT ?

-- name: promote_messages (hot)
UPDATE message SET state = 0, pos = due_at, due_at = NULL
WHERE id IN (SELECT value FROM json_each(?))

-- name: expired_messages (hot)
SELECT id FROM message WHERE state < 3 AND queue = ? AND expires_at <= ?
ORDER BY expires_at LIMIT ?

-- ------------------------------------------------------------------------------------ ordering keys

-- name: key_is_taken (hot)
SELECT 1 FROM message WHERE queue = ? AND key = ? AND key IS NOT NULL AND state < 4 LIMIT 1

-- name: next_of_key (hot)
SELECT {row}, NULL, NULL FROM message AS m
WHERE m.queue = ? AND m.key = ? AND m.key IS NOT NULL AND m.state < 4 ORDER BY m.turn LIMIT 1

-- name: members_of_key (hot)
SELECT {row}, NULL, NULL FROM message AS m
WHERE m.queue = ? AND m.key = ? AND m.key IS NOT NULL AND m.state < 4 ORDER BY m.turn

-- ------------------------------------------------------------------------------------------ bodies

-- name: add_body (hot)
INSERT INTO body (id, value) VALUES (?, ?)

-- name: use_body (hot)
INSERT INTO body_use (body, n) VALUES (?, ?) ON CONFLICT (body) DO UPDATE SET n = n + excluded.n

-- name: body_uses (hot)
SELECT n FROM body_use WHERE body = ?

-- name: delete_body (hot)
DELETE FROM body WHERE id = ?

-- name: delete_body_use (hot)
DELETE FROM body_use WHERE body = ?

-- ----------------------------------------------------------------------------------------- history

-- name: add_attempt (hot)
INSERT INTO attempt (message, seq, entries) VALUES (?, ?, ?)

-- name: attempts (hot)
SELECT entries FROM attempt WHERE message = ? ORDER BY seq

-- name: forget_second_attempt
-- The first error stays visible; what goes is the oldest after it.
DELETE FROM attempt WHERE message = ?1 AND seq =
    (SELECT seq FROM attempt WHERE message = ?1 ORDER BY seq LIMIT 1 OFFSET 1)

-- name: delete_attempts (hot)
DELETE FROM attempt WHERE message = ?

-- ------------------------------------------------------------------------------------ deduplication

-- name: find_dedupe (hot)
SELECT message, fingerprint, expires_at FROM dedupe WHERE queue = ? AND kind = ? AND key = ?

-- name: write_dedupe (hot)
INSERT OR REPLACE INTO dedupe (queue, kind, key, message, fingerprint, expires_at)
VALUES (?, ?, ?, ?, ?, ?)

-- name: release_dedupe (hot)
-- The message is gone: the record goes with it, unless its window is still open.
DELETE FROM dedupe WHERE queue = ? AND kind = 0 AND key = ? AND message = ?
    AND (expires_at IS NULL OR expires_at <= ?)

-- name: expired_dedupes (hot)
SELECT queue, kind, key, message FROM dedupe WHERE expires_at <= ? ORDER BY expires_at LIMIT ?

-- name: delete_dedupe (hot)
DELETE FROM dedupe WHERE queue = ? AND kind = ? AND key = ?

-- name: keep_dedupe (hot)
-- Its window is over but the message lives: from now on it goes with the message.
UPDATE dedupe SET expires_at = NULL WHERE queue = ? AND kind = ? AND key = ?

-- name: purge_dedupes
DELETE FROM dedupe WHERE queue = ?

-- ----------------------------------------------------------------------------------------- journal

-- name: add_event (hot)
INSERT INTO event (seq, at, queue, message, prev, kind, from_state, to_state, n, attempt, worker,
    by, error_type, error_text, fingerprint, enqueued_at, leased_at, waited, body, detail)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: told (fragment)
e.seq, e.at, e.queue, e.message, e.prev, e.kind, e.from_state, e.to_state, e.n, e.attempt, e.worker,
e.by, e.error_type, e.error_text, e.fingerprint, e.enqueued_at, e.leased_at, e.waited, b.value,
e.detail

-- name: event (fragment)
{told} FROM event AS e LEFT JOIN body AS b ON b.id = e.body

-- name: events_after (hot)
SELECT {event} WHERE e.seq > ? ORDER BY e.seq LIMIT ?

-- name: folded_events (hot)
-- Of one queue, up to the mark of spans: from one to the next, whatever lies between them.
SELECT {told} FROM span AS s CROSS JOIN event AS e LEFT JOIN body AS b ON b.id = e.body
WHERE s.queue = ?1 AND s.last > ?2 AND e.seq BETWEEN max(s.first, ?2 + 1) AND s.last AND e.queue = ?1
ORDER BY s.last, e.seq LIMIT ?3

-- name: events_of_queues (hot)
-- For the tail: events of other queues are passed inside SQLite, without their bodies.
SELECT {event} WHERE e.seq > ? AND e.queue IN (SELECT value FROM json_each(?)) ORDER BY e.seq LIMIT ?

-- name: read_event (hot)
SELECT {event} WHERE e.seq = ?

-- name: late_end (hot)
-- Where a life ended after the fold: ?1. No index has it, but the tail is short.
SELECT seq FROM event WHERE seq > ?1 AND message = ?2 AND queue = ?3 AND to_state IS NULL
ORDER BY seq DESC LIMIT 1

-- name: listed_end (hot)
SELECT e.seq FROM ended AS d CROSS JOIN event AS e
WHERE d.message = ? AND e.seq = d.seq AND e.queue = ? ORDER BY d.seq DESC LIMIT 1

-- name: list_ends (hot)
-- At a fold. OR IGNORE: nothing can fail, so SQLite need not be able to undo it row by row.
INSERT OR IGNORE INTO ended (message, seq) SELECT message, seq FROM event
WHERE seq > ? AND seq <= ? AND to_state IS NULL AND message IS NOT NULL

-- name: part (fragment)
-- Of the journal, so that two events with many of others between them have a span each: passing so
-- many rows costs as much as reading two.
seq / 256

-- name: list_spans
-- At a fold, of queues that have few of its events. It sorts those few; each takes a fifth of a
-- microsecond.
INSERT INTO span (queue, last, first) SELECT queue, max(seq), min(seq) FROM event
WHERE seq > ? AND seq <= ? AND queue IN (SELECT value FROM json_each(?)) GROUP BY queue, {part}

-- name: list_all_spans
-- Of all queues, where nobody has counted what each of them has.
INSERT INTO span (queue, last, first) SELECT queue, max(seq), min(seq) FROM event
WHERE seq > ? AND seq <= ? GROUP BY queue, {part}

-- name: list_span (hot)
-- Of a queue that has many of them: one span, found from its two ends.
INSERT INTO span (queue, last, first) VALUES (?3,
    (SELECT seq FROM event WHERE seq > ?1 AND seq <= ?2 AND queue = ?3 ORDER BY seq DESC LIMIT 1),
    (SELECT seq FROM event WHERE seq > ?1 AND seq <= ?2 AND queue = ?3 ORDER BY seq LIMIT 1))

-- name: first_event
SELECT seq, at FROM event ORDER BY seq LIMIT 1

-- name: event_tail (hot)
-- For running counts: what happened since they were last brought up to date.
SELECT queue, from_state, to_state, n, CASE kind WHEN 3 THEN worker END
FROM event WHERE seq > ? AND seq <= ?

-- name: read_mark (hot)
SELECT seq FROM mark WHERE name = ?

-- name: write_mark (hot)
UPDATE mark SET seq = ? WHERE name = ?

-- name: counters (hot)
SELECT queue, state, n FROM counter

-- name: add_to_counter (hot)
INSERT INTO counter (queue, state, n) VALUES (?, ?, ?)
ON CONFLICT (queue, state) DO UPDATE SET n = n + excluded.n

-- name: queue_counters (hot)
SELECT state, n FROM counter WHERE queue = ?

-- name: worker_leases (hot)
SELECT queue, name, leases FROM worker

-- name: add_to_worker (hot)
INSERT INTO worker (queue, name, leases) VALUES (?, ?, ?)
ON CONFLICT (queue, name) DO UPDATE SET leases = leases + excluded.leases

-- name: see_worker (hot)
INSERT INTO worker (queue, name, leases, last_seen) VALUES (?, ?, 0, ?)
ON CONFLICT (queue, name) DO UPDATE SET last_seen = excluded.last_seen

-- name: workers_seen (hot)
SELECT name, last_seen FROM worker WHERE queue = ? AND last_seen IS NOT NULL

-- name: delete_workers
DELETE FROM worker WHERE queue = ?

-- name: add_to_kept (hot)
INSERT INTO kept (queue, n, trimmed, scanned) VALUES (?, ?, 0, 0)
ON CONFLICT (queue) DO UPDATE SET n = n + excluded.n

-- name: trim_kept (hot)
UPDATE kept SET n = n - ?, trimmed = max(trimmed, ?), scanned = ? WHERE queue = ?

-- name: kept
SELECT q.id, q.name, q.settings, k.n, k.trimmed, k.scanned
FROM kept AS k JOIN queue AS q ON q.id = k.queue

-- name: first_span (hot)
-- The first that is not trimmed. The former version trims events and leaves their spans.
SELECT first FROM span WHERE queue = ? AND last > ? ORDER BY last LIMIT 1

-- name: first_within (hot)
-- Of one queue's events in a window: the first after so many that are too many.
SELECT seq FROM event WHERE seq > ? AND seq <= ? AND queue = ? ORDER BY seq LIMIT 1 OFFSET ?

-- name: first_to_keep (hot)
-- The first that somebody at ?4 still wants, and that is not too old for it.
SELECT seq FROM event WHERE seq > max(?1, ?4) AND seq <= ?2 AND queue = ?3 AND at > ?5
ORDER BY seq LIMIT 1

-- name: last_to_trim (hot)
SELECT seq FROM event WHERE seq > ? AND seq <= ? AND queue = ? ORDER BY seq DESC LIMIT 1

-- name: bodies_to_trim (hot)
SELECT body FROM event WHERE seq > ? AND seq <= ? AND queue = ? AND body IS NOT NULL

-- name: forget_ends (hot)
DELETE FROM ended WHERE (message, seq) IN (SELECT message, seq FROM event
    WHERE seq > ? AND seq <= ? AND queue = ? AND to_state IS NULL AND message IS NOT NULL)

-- name: trim_events (hot)
DELETE FROM event WHERE seq > ? AND seq <= ? AND queue = ?

-- name: forget_spans (hot)
-- One that is trimmed in part stays as it is.
DELETE FROM span WHERE queue = ? AND last <= ?

-- name: readers
SELECT name, seq, updated_at, max_age FROM reader ORDER BY name

-- name: find_reader
SELECT name, seq, updated_at, max_age FROM reader WHERE name = ?

-- name: write_reader
INSERT OR REPLACE INTO reader (name, seq, updated_at, max_age) VALUES (?, ?, ?, ?)

-- name: move_reader
UPDATE reader SET seq = max(seq, ?), updated_at = ? WHERE name = ?

-- name: delete_reader
DELETE FROM reader WHERE name = ?

-- ---------------------------------------------------------------------------------------- counting

-- name: count_due (hot)
SELECT count(*), min(due_at) FROM message WHERE state = 1 AND queue = ? AND due_at <= ?

-- name: expired_states (hot)
SELECT state, due_at, key FROM message WHERE state < 3 AND queue = ? AND expires_at <= ?

-- name: count_expired (hot)
SELECT count(*) FROM message WHERE state < 3 AND queue = ? AND expires_at <= ?

-- name: due_of_queue (hot)
SELECT {row}, {content} WHERE m.state = 1 AND m.queue = ? AND m.due_at <= ?
ORDER BY m.due_at LIMIT ?

-- name: ended_of_queue (hot)
SELECT {row}, {content} WHERE m.state = 3 AND m.queue = ? AND m.due_at <= ?
ORDER BY m.due_at LIMIT ?

-- name: fates_of_ended (hot)
-- What becomes of leases that are over: only what decides it.
SELECT crashes, liveness, note, expires_at, key FROM message
WHERE state = 3 AND queue = ? AND due_at <= ?

-- name: leases
-- By worker. Sorting them takes a third of the time of reading them into Python.
SELECT worker, count(*), max(?2 - leased_at), sum(?2 - leased_at) FROM message
WHERE state = 3 AND queue = ?1 AND due_at > ?2 GROUP BY worker

-- name: next_due_delayed (hot)
SELECT due_at FROM message WHERE state = 1 AND queue = ? ORDER BY due_at LIMIT 1

-- name: next_due_lease (hot)
SELECT due_at FROM message WHERE state = 3 AND queue = ? ORDER BY due_at LIMIT 1

-- ------------------------------------------------------------------------------------ dead letters

-- name: dead_messages (hot)
SELECT {row}, {content} WHERE m.queue = ? AND m.state = 4 ORDER BY m.pos, m.id LIMIT ?

-- name: dead_ids (hot)
-- What the public ids are made of: no value is read, however many there are.
SELECT coalesce(origin, id), alias FROM message
WHERE queue = ? AND state = 4 ORDER BY pos, id LIMIT ?

-- name: old_dead_messages (hot)
SELECT {row}, NULL, NULL FROM message AS m
WHERE m.queue = ? AND m.state = 4 AND m.pos <= ? ORDER BY m.pos LIMIT ?

-- name: count_old_dead (hot)
SELECT count(*) FROM message WHERE queue = ? AND state = 4 AND pos <= ?

-- ------------------------------------------------------------------------------------------- purge

-- One state after the other, because each has its own index; held ones by their keys.

-- name: purged_ready
SELECT id, body, ended, home, dedupe_key FROM message WHERE queue = ? AND state = 0

-- name: purged_delayed
SELECT id, body, ended, home, dedupe_key FROM message WHERE queue = ? AND state = 1

-- name: purged_held
SELECT id, body, ended, home, dedupe_key FROM message
WHERE queue = ? AND key IS NOT NULL AND state < 4 AND state = 2

-- name: purged_inflight
SELECT id, body, ended, home, dedupe_key FROM message WHERE queue = ? AND state = 3

-- name: purged_dead
SELECT id, body, ended, home, dedupe_key FROM message WHERE queue = ? AND state = 4

-- ------------------------------------------------------------------------------------------ topics

-- name: find_topic (hot)
SELECT last FROM topic WHERE queue = ?

-- name: write_topic (hot)
INSERT INTO topic (queue, last) VALUES (?, ?) ON CONFLICT (queue) DO UPDATE SET last = excluded.last

-- name: subscriptions (hot)
SELECT s.queue, s.name, s.position, s.until FROM subscription AS s WHERE s.topic = ? ORDER BY s.queue

-- name: find_subscription (hot)
SELECT topic, name, position, until FROM subscription WHERE queue = ?

-- name: add_subscription
INSERT INTO subscription (queue, topic, name, position, until) VALUES (?, ?, ?, ?, ?)

-- name: move_subscription (hot)
UPDATE subscription SET position = ? WHERE queue = ?

-- name: end_log
-- A topic that copies from now on: its subscribers read the log to where it ends today.
UPDATE subscription SET until = min(coalesce(until, ?1), ?1) WHERE topic = ?2

-- name: open_log
UPDATE subscription SET position = max(position, ?1), until = NULL WHERE topic = ?2
    AND until IS NOT NULL AND position >= until

-- name: forget_unread_dedupes
-- What was skipped has a row of its own, or is somewhere else: its key stays.
DELETE FROM dedupe WHERE queue = ?1 AND expires_at IS NULL AND message IN
    (SELECT p.seq FROM publication AS p WHERE p.topic = ?2 AND p.offset > ?3 AND p.offset <= ?4
        AND NOT EXISTS (SELECT 1 FROM skipped AS s WHERE s.queue = ?1 AND s.offset = p.offset))

-- name: delete_subscription
DELETE FROM subscription WHERE queue = ?

-- name: add_publication (hot)
INSERT INTO publication (topic, offset, seq, created_at, expires_at, dedupe_key, fingerprint, codec,
    checksum, body, headers)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: publication (fragment)
p.offset, p.seq, p.created_at, p.expires_at, p.dedupe_key, p.fingerprint, p.codec, p.checksum,
p.body, p.headers, b.value FROM publication AS p LEFT JOIN body AS b ON b.id = p.body

-- name: publications_after (hot)
SELECT {publication} WHERE p.topic = ?1 AND p.offset > ?2 AND p.offset <= ?3
    AND NOT EXISTS (SELECT 1 FROM skipped AS s WHERE s.queue = ?4 AND s.offset = p.offset)
ORDER BY p.offset LIMIT ?5

-- name: expired_publications (hot)
-- Unread ones of a subscriber whose time to live is over.
SELECT {publication} WHERE p.topic = ?1 AND p.expires_at <= ?5 AND p.offset > ?2 AND p.offset <= ?3
    AND NOT EXISTS (SELECT 1 FROM skipped AS s WHERE s.queue = ?4 AND s.offset = p.offset)
ORDER BY p.expires_at LIMIT ?6

-- name: count_expired_publications (hot)
SELECT count(*) FROM publication AS p
WHERE p.topic = ?1 AND p.expires_at <= ?5 AND p.offset > ?2 AND p.offset <= ?3
    AND NOT EXISTS (SELECT 1 FROM skipped AS s WHERE s.queue = ?4 AND s.offset = p.offset)

-- name: publication_by_seq (hot)
SELECT p.topic, {publication} WHERE p.seq = ?

-- name: offset_at_seq
-- The log position that belongs to a journal position.
SELECT offset FROM publication WHERE topic = ? AND seq <= ? ORDER BY offset DESC LIMIT 1

-- name: oldest_publications (hot)
SELECT offset, seq, body FROM publication WHERE topic = ? AND offset <= ? ORDER BY offset LIMIT ?

-- name: delete_publications (hot)
DELETE FROM publication WHERE topic = ? AND offset <= ?

-- name: pass_publication (hot)
-- The next one in line is passed by moving on.
UPDATE subscription SET position = ?2 WHERE queue = ?1 AND position = ?2 - 1

-- name: skip_publication (hot)
INSERT OR IGNORE INTO skipped (queue, offset) VALUES (?, ?)

-- name: skip_what_it_has
-- One who subscribes again may still have messages of the publications it would read anew.
INSERT OR IGNORE INTO skipped (queue, offset)
SELECT ?1, p.offset FROM publication AS p WHERE p.topic = ?2 AND p.offset > ?3
    AND (EXISTS (SELECT 1 FROM message AS m WHERE m.origin = p.seq AND m.queue = ?1)
        OR EXISTS (SELECT 1 FROM message AS m WHERE m.copy_of = p.seq AND m.queue = ?1))

-- name: remember_keys_of_unread
-- A late subscriber has the keys of what it will read, as if it had been there.
INSERT OR IGNORE INTO dedupe (queue, kind, key, message, fingerprint, expires_at)
SELECT ?1, 0, p.dedupe_key || ':' || ?4, p.seq, p.fingerprint, NULL FROM publication AS p
WHERE p.topic = ?2 AND p.offset > ?3 AND p.dedupe_key IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM skipped AS s WHERE s.queue = ?1 AND s.offset = p.offset)

-- name: mark_copy
UPDATE message SET copy_of = ? WHERE id = ?

-- name: is_skipped (hot)
SELECT 1 FROM skipped WHERE queue = ? AND offset = ?

-- name: skipped_after (hot)
SELECT offset FROM skipped WHERE queue = ? AND offset > ? ORDER BY offset LIMIT ?

-- name: count_skipped (hot)
SELECT count(*) FROM skipped WHERE queue = ? AND offset > ?

-- name: forget_skipped (hot)
DELETE FROM skipped WHERE queue = ? AND offset <= ?

-- ----------------------------------------------------------------------------------------- records

-- name: load_record (hot)
SELECT kind, key, value, version, expires_at FROM record WHERE kind = ? AND key = ?

-- name: save_record (hot)
INSERT OR REPLACE INTO record (kind, key, value, version, expires_at) VALUES (?, ?, ?, ?, ?)

-- name: delete_record (hot)
DELETE FROM record WHERE kind = ? AND key = ?

-- name: scan_records (hot)
SELECT kind, key, value, version, expires_at FROM record WHERE kind = ? AND key > ?
ORDER BY key LIMIT ?

-- name: expired_records (hot)
-- The plus keeps the planner from walking all records of the kind.
SELECT key FROM record WHERE expires_at <= ? AND +kind = ? ORDER BY expires_at LIMIT ?

-- name: any_expired_records (hot)
SELECT kind, key FROM record WHERE expires_at <= ? ORDER BY expires_at LIMIT ?

-- name: trimmed_upto (hot)
SELECT trimmed FROM kept WHERE queue = ?
